"""How long a kernel is likely to take, from its PTX alone: no GPU, no clock.

`text` reads PTX; `lanes` runs the integers of three blocks of a grid, all threads of a block at once, so that every loop has its count and
every access its addresses; `traffic` makes sectors, lines and bank conflicts of these; `instructions` says which unit each instruction
takes; `prediction` puts them against the facts of a GPU (`codegen.auto.gpus`) and `report` prints why. What floats hold is not known:
what is read from memory is 0 where it is an integer, and a comparison of floats is false. Where an index comes from data the traffic is
therefore that of equal indices, and the report says so.
"""
