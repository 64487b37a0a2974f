"""Planners of what writes in an order: scans, skewed or swept, and scatters."""
