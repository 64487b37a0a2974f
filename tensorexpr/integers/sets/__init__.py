"""Sets of integer points with symbolic sizes: projection, loops, difference, redundancy, inversion."""
