"""What all compiled code shares, as LLVM IR: the call path, memory of results, the thread pool."""
