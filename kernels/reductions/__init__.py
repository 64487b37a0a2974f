"""Along axes: sums and their kin, softmax, normalization, running results, order statistics."""
