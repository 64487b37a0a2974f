"""One subject each: compiling, deriving, calls, products, training steps, threads, memory, what is paid before the first call."""
