"""Planners of one definition: its vectors, registers, panels, blocks, and long reductions taken apart."""
