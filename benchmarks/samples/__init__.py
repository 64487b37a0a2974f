"""What the measures are taken on: operations of the table and of the library at any size, and programs written in other ways.

`sample` is an operation with descriptions of its arrays, `growth` finds which of its axes change together and gives it other sizes,
`library` lists the samples of the case table and random programs. `speaking` says a program again in the language, with changes that
rules in `variants` ask for; `by_hand` draws legal schedules as a person might write them, `texts` evaluates PyTorch's side of a row
in PyTorch and in JAX.
"""
