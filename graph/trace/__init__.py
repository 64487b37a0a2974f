"""From a Python function to a graph: values that record, branches and loops, derivatives inside."""
