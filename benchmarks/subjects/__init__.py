"""One subject each: compiling, deriving, calls, products, training steps, threads, what is paid before the first call."""
