"""The loops of one stage of a schedule, and what stands inside of them."""
