"""What is known at each place of a nest, and questions about integers there: the floor of the dependences and of the proofs.

`places` walks over a nest and hands on every access with the loops around it and its scope; `scope` is what holds there, as facts and
ranges; `forms` are affine bounds, which decide most of what ranges leave open; `questions` asks the integer sets, in counted steps;
`winners` are what wins in an argmax.
"""
