"""What programs hold: the data of constants, and placeholders made constants."""
