"""What definitions of a schedule read, write and cost: bounds, windows, strides, steps, amounts of work."""
