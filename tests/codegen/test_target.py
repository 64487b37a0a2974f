"""The machine that schedules are made for."""

from tensorexpr import dtypes
from tensorexpr.codegen import target
from tensorexpr.codegen.target import Target, host_target


def test_lanes_are_elements_of_a_vector():
    assert [Target("t", 512).lanes(d) for d in (dtypes.float32, dtypes.float64, dtypes.int8, dtypes.bool_)] == [16, 8, 64, 64]


def test_the_host_has_vectors_cores_and_caches():
    host = host_target()
    assert host.vector_bits in (128, 256, 512) and host.cores >= 1 and host.l1_bytes >= 8 << 10
    assert host is host_target()


def test_what_the_system_does_not_say_has_defaults(tmp_path):
    assert target._cpu_flags(tmp_path / "none") == frozenset()
    assert target._cache_sizes(tmp_path / "none") == {}
    (tmp_path / "cpuinfo").write_text("processor : 0\nflags\t\t: fpu avx2 fma\n")
    assert target._cpu_flags(tmp_path / "cpuinfo") == {"fpu", "avx2", "fma"}
    cache = tmp_path / "cache" / "index0"
    cache.mkdir(parents=True)
    for name, value in (("type", "Data"), ("level", "1"), ("size", "48K")):
        (cache / name).write_text(value)
    assert target._cache_sizes(tmp_path / "cache") == {1: 48 << 10}


def test_vectors_that_a_core_multiplies_in_one_cycle(tmp_path):
    """Zen 4 makes one of 512 bits in its two units of 256."""
    zen4, other = tmp_path / "zen4", tmp_path / "other"
    zen4.write_text("processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\n\nprocessor\t: 1\n")
    other.write_text("processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\n")
    assert target._multiplies(512, zen4) == 1 and target._multiplies(256, zen4) == 2
    assert target._multiplies(512, other) == 2 and target._multiplies(512, tmp_path / "none") == 2
