"""Primitives that change the loops of a definition."""
