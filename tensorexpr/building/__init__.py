"""What derivation and compilation share: less garbage collection, progress that is told, the plain form where an optimisation fails,
and numbers that the environment says."""
