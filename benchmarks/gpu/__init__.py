"""What GPU minutes are for: workloads beside peers, ceilings, single kernels for tools that look on, resources without a GPU."""
