"""Derived sharding rules in the hands of those that move data.

    plan     on a mesh: which rule along each dimension moves the least for arguments that lie as they do, and each device's part
    torch    DTensors: an op called on them computes on the shards, in `torch.autograd` too
    jax      arrays on a mesh of JAX: `as_jax` under `jit` keeps them split, by a partitioning rule for Shardy

A device holds blocks and receives what its part reads beyond them, nothing else. Gradients are operators with rules of their own.
"""
