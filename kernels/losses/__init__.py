"""Losses: between numbers, over classes, with margins, over sequences."""
