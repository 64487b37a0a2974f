"""What one thread computes: values and expressions as C++, neighbors and packs of elements."""
