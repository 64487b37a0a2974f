"""Primitives of scatters: owners, sorted sends, blocks of elements, long segments."""
