"""Launches: their plan, the same as native code, devices, what checks report."""
