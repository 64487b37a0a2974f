"""Passes over whole programs: definitions in normal form, inlined, shared, split off as terms, factored, their axes made plain."""
