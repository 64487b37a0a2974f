"""Rules of scalar expressions: those of every dtype (`common`), of floats, of integers, and of reductions."""
