"""Random programs for the laws of every room and for the fuzzer: as text (`random_sample`), and as IR (`random_program`)."""

from tests.random_programs.programs import (
    assert_agrees,
    assert_same_bits,
    meaning,
    random_inputs,
    random_program,
    random_sample,
    random_sizes,
)
from tests.random_programs.sample import Sample
from tests.random_programs.writer import Options

__all__ = [
    "Options",
    "Sample",
    "assert_agrees",
    "assert_same_bits",
    "meaning",
    "random_inputs",
    "random_program",
    "random_sample",
    "random_sizes",
]
