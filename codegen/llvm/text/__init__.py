"""LLVM's IR as text: values, a builder of functions, the entry point and its workspace, the machine that it is for."""
