"""Scatters and sort plans as loops."""
