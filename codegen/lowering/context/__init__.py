"""What lowering carries through the loops of a stage: names, open loops, conditions, accumulators, slots."""
