"""Recurrences, folds and running tables backwards."""
