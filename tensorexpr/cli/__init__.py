"""The command line: `demo`, `show FILE:OP`, `tune FILE:OP`, `onnx MODEL.onnx`, `bench`, `info`. Colored on a terminal, plain elsewhere,
`--json` for machines.

It stands on everything else and nothing imports it. Errors of the user's side are printed as they are, without a
traceback, and give exit status 1 (2 for a command line that cannot be read).
"""
