"""What users call: gradients, tangents, Jacobians, `vmap`, and the report on a gradient."""
