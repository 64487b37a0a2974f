"""How tensors lie: parts that products read apart are tensors (`slices`), those on the way lie as those around them (`turned`), rings that
sums go around are rows (`rings`)."""
