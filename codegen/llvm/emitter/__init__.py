"""From a loop nest to the text of an LLVM module."""
