"""Mathematical functions as polynomials of our own, in vectors of any width."""
