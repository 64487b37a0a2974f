"""NVIDIA's tools and words: NVRTC, cubins, the table of PTX."""
