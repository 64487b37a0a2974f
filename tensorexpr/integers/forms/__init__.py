"""Affine forms with floor division, constraints on them, and how they read."""
