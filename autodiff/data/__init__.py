"""Reads and writes at places that depend on data, turned around by sorting, by rows or by reading."""
