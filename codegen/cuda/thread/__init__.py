"""What one thread computes: values and expressions as C++, operations, neighbors and packs of elements."""
