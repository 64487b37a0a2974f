"""Examples that are tutorials: each file reads top to bottom and runs as a program."""
