"""Products: of matrices, by any equation of Einstein's, of all pairs; attention and recurrent layers."""
