"""From a loop nest to CUDA C++: kernels, their statements, products on tensor cores."""
