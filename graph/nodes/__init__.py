"""The graph of a function: its nodes, what they do to the world, calls taken apart, dead nodes."""
