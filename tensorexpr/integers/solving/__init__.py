"""Integer systems without names of sizes: normal forms, simplex, emptiness, optima, each within a budget of steps."""
