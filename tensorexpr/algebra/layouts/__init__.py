"""How tensors lie: parts that products read apart are tensors (`slices`), those on the way lie as those around them (`turned`), so do those
that all steps of a scan read (`steps`), rings that sums go around are rows (`rings`)."""
