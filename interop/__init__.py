"""tensorexpr in other libraries: one module for each host, none of which is loaded unless it is asked for."""
