"""Functions in files."""
