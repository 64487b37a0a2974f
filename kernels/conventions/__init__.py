"""What kernels have in common: arguments as PyTorch takes them, axes, broadcasting, windows."""
