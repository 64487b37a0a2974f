"""Reverse and forward mode over whole programs."""
