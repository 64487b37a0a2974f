"""What programs hold: the data of constants, how placeholders are initialised, and placeholders made constants."""
