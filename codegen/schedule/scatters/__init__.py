"""Primitives of scatters: owners, sorted sends, long segments."""
