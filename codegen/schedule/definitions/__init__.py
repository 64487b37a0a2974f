"""Primitives that write definitions anew, or in other tensors."""
