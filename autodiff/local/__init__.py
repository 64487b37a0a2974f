"""The derivative of one definition: what each read in it sends and receives, and the workspace in which derivatives are made."""
