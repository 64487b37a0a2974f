"""Variables and what holds them: modules, their state, methods."""
