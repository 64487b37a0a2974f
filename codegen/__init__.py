"""How a program is computed: from mathematics to machine code.

`schedule` holds the loops of a program as a value, `lowering` makes a loop nest of it (`nest`, with its text, verifier and
interpreter), `llvm` emits and loads code. `compile` goes the whole way and remembers it, `function` and `arguments` are
what users call, `cost` counts operations and bytes, `target` describes the machine.
"""
