"""The layer above the compiler: functions with effects, replaceable composites, variables and modules.

It stands above `kernels` and below `interop`, and knows neither LLVM nor CUDA: what it compiles goes through `te.build`."""
