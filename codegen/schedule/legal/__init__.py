"""What makes loops legal, and where a definition may be computed."""
