"""What defines a tensor: computes, reductions, scans, scatters, sort plans, terms with a name, marks."""
