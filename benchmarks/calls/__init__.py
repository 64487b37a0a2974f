"""What a call costs in each library: a module per host, with `calls()`, named functions that make one call each, its own first."""
