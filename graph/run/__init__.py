"""From a graph to what runs: implementations, replacements, plans, `te.function`."""
