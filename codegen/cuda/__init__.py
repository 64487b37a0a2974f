"""The CUDA backend: loop nests to CUDA C++, cubins by NVRTC, launches through CuPy."""
