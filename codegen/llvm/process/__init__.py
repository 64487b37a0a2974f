"""Machine code in this process: made, loaded, called, run by the pool, interrupted."""
