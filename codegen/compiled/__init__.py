"""Compiled functions: what a call takes and gives on a CPU (`function`) and on a GPU (`gpu_function`), the check of its arguments
(`arguments`), programs that are compiled once and run on many arrays (`storage`), and what such a run works on (`context`)."""
