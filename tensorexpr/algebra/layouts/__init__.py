"""How tensors lie: parts that products read apart are tensors (`slices`), several products in a sum have one operand (`joined`), those on
the way lie as those around them (`turned`), so do those that all steps of a scan read (`steps`), an output is read in place of a scan
(`copies`), rings that sums go around are rows (`rings`), small integers have few bits (`winners`)."""
