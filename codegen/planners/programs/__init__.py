"""Planners of several definitions at once: passes that reductions share, rows and batches that stay near, terms computed again."""
