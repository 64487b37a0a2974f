"""Scalars and tensors while they are written down, borders, and the programs that they become."""
