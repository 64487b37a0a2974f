"""Passes over finished kernels: merged, cut where tests change, folded."""
