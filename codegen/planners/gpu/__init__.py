"""Planners for a GPU: the grid, its blocks, warps and tensor cores."""
