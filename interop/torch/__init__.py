"""tensorexpr in PyTorch: `as_torch(op)` is a function on torch tensors that torch differentiates, batches, compiles and exports.

    from tensorexpr.interop.torch import as_torch

    correlate = as_torch(correlation)     # correlation: a te.op
    y = correlate(a, b, radius=4)         # tensors in and out, on their device, on the current stream
    y.square().sum().backward()           # the gradient is a compiled operation, too

Ops take torch tensors themselves (`correlation(a, b, radius=4)`): that is this function, made once per op.

- **Gradients**: reverse mode to any order, forward mode, `torch.func.grad, vjp, jvp, jacrev, jacfwd, hessian, vmap`, nested at will. The
  gradient is compiled for those inputs that want one and those outputs that have one to give.
- **Graphs**: `torch.compile(fullgraph=True)`, `torch.export` (open extents are compiled as such), `torch.jit.trace`, `make_fx`. The op is
  one node.
- **Memory**: nothing is copied but tensors that are not contiguous; results are new contiguous tensors, of torch's allocator on a GPU,
  of memory that we keep on a CPU if they are large (their storage cannot be resized).
- **Autocast**: nothing is cast unless `autocast=` says so, see `as_torch`.

Errors are `tensorexpr.errors.ArgumentError` and name the argument.
"""

from __future__ import annotations

from tensorexpr.interop.torch.door import HOST, as_torch

__all__ = ["HOST", "as_torch"]
