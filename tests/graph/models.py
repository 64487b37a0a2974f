"""Small modules that the tests of the graph layer share."""

import numpy as np

import tensorexpr as te


class Linear(te.Module):
    def __init__(self, inputs=2, outputs=3, name=None):
        super().__init__(name)
        with self.name_scope:
            self.w = te.Variable(np.zeros((inputs, outputs), "float32"), name="w")
            self.b = te.Variable(np.zeros(outputs, "float32"), name="b")


class Empty(te.Module):
    pass


def holding(**attributes):
    """A module with these attributes."""
    module = Empty()
    for name, value in attributes.items():
        setattr(module, name, value)
    return module
