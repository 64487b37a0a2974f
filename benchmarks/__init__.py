"""Benchmarks: one way to time, side by side with peers in one run, results as tables and JSON."""
