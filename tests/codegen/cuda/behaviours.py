"""What the functions of the prelude do that a CPU does not see: each has a kernel of one warp, arrays for it, and what it leaves in them.

References are NumPy's, and formulas of the manual for how matrices lie in a warp, written apart from the table in the compiler.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Arrays = list[np.ndarray]


@dataclass(frozen=True)
class Behaviour:
    """A kernel; the functions that it shows; arrays to read and arrays to write as they are before, and the latter as they are behind;
    the first machine that has it, bytes of shared memory to ask for, how many threads it has, and whether it is for that machine alone."""

    text: str
    shows: tuple[str, ...]
    case: Callable[[], tuple[Arrays, Arrays, Arrays]]
    sm: int = 75
    shared: int = 0
    threads: int = 32
    alone: bool = False

    def is_for(self, arch: str) -> bool:
        """Whether code for an architecture such as "sm_80" may have it."""
        return arch == f"sm_{self.sm}a" if self.alone else int("".join(filter(str.isdigit, arch))) >= self.sm


def kernel(name: str, parameters: str, body: str, threads: int = 32) -> str:
    """A kernel of one warp, or several; `n` is the thread."""
    head = f'extern "C" __global__ void __launch_bounds__({threads}) {name}({parameters})'
    return f"{head} {{\n  const int n = (int)threadIdx.x;\n{body}\n}}\n"


def _arrays(types: list[str]) -> str:
    """An array x to read and an array y to write of each type."""
    return ", ".join([f"const {t} *x{k}" for k, t in enumerate(types)] + [f"{t} *y{k}" for k, t in enumerate(types)])


# ------------------------------------------------------------------------------------------------------------ numbers


def _edges(kind: type, bits: int) -> np.ndarray:
    """Numbers around those of a format with so many bits of fraction: in the middle, and one place to either side; zeros, the largest."""
    rng = np.random.default_rng(bits)
    ulp, tiny = 2.0**-bits, 2.0 ** (-53 if kind is np.float64 else -23)
    base = np.concatenate([1 + rng.integers(0, 2**bits, 60) * ulp, [1.0, 2 - ulp]])
    near = np.concatenate([base, base + ulp / 2, base + ulp / 2 - tiny, base + ulp / 2 + tiny, base + ulp - tiny])
    scaled = np.concatenate([near, near * 2.0**-14, near * 2.0**-20, near * 2.0**-24, near * 2.0**14, near * 2.0**15])
    special = [0.0, 65504.0, 65519.9, 65520.0, 3.3e38, 2.0**-126, 2.0**-140, 2.0**-25, np.inf, np.nan]
    found = np.concatenate([scaled, special]).astype(kind)
    return np.concatenate([found, -found])


def nearest(x: np.ndarray, fraction: int, away: bool) -> np.ndarray:
    """float32 with so many bits of fraction: the nearest, in the middle the even one or that away from zero."""
    bits, dropped = x.view(np.uint32).astype(np.uint64), 23 - fraction
    half = np.uint64(1 << (dropped - 1))
    more = half if away else half - np.uint64(1) + ((bits >> np.uint64(dropped)) & np.uint64(1))
    rounded = ((bits + more) >> np.uint64(dropped) << np.uint64(dropped)).astype(np.uint32).view(np.float32)
    return np.where(np.isnan(x), np.float32(np.nan), rounded)


def _of_f16() -> tuple[Arrays, Arrays, Arrays]:
    x = np.arange(65536, dtype=np.uint16)
    return [x], [np.zeros(65536, np.float32)], [x.view(np.float16).astype(np.float32)]


def _to_f16() -> tuple[Arrays, Arrays, Arrays]:
    x, w = _edges(np.float32, 10), _edges(np.float64, 10)
    with np.errstate(all="ignore"):
        wanted = [x.astype(np.float16), w.astype(np.float16)]
    return [x, w], [np.zeros_like(a) for a in wanted], wanted


def _rounded(fraction: int, away: bool, copies: int) -> Callable[[], tuple[Arrays, Arrays, Arrays]]:
    def case() -> tuple[Arrays, Arrays, Arrays]:
        x = _edges(np.float32, fraction)
        return [x], [np.zeros_like(x) for _ in range(copies)], [nearest(x, fraction, away)] * copies

    return case


def _bits() -> tuple[Arrays, Arrays, Arrays]:
    x, w = _edges(np.float32, 10), _edges(np.float64, 10)
    u, v = x.view(np.uint32), w.view(np.uint64)
    return [x, w, u, v], [np.zeros_like(a) for a in (u, v, x, w)], [u, v, x, w]


_COUNT = len(_edges(np.float32, 10))
_EACH = f"  for (int k = n; k < {_COUNT}; k += 32) {{{{ {{}} }}}}"

# ------------------------------------------------------------------------------------------------------ memory, lanes

_PACKS = (("uint8_t", 16), ("uint16_t", 8), ("int32_t", 2), ("float", 4), ("double", 2))
_NUMPY = {"uint8_t": np.uint8, "uint16_t": np.uint16, "int32_t": np.int32, "uint32_t": np.uint32, "int64_t": np.int64,
          "uint64_t": np.uint64, "float": np.float32, "double": np.float64}  # fmt: skip
_PACK = """  {{
    {0} pack[{1}], turned[{1}];
    te_load(pack, x{2} + {1} * n);
    for (int k = 0; k < {1}; ++k) turned[k] = pack[{1} - 1 - k];
    te_load(pack, x{2} + {1} * n, n % 2 == 0);
    for (int k = 0; k < {1}; ++k) turned[k] += pack[{1} - 1 - k];
    te_store(y{2} + {1} * n, turned);
  }}"""


def _packs() -> tuple[Arrays, Arrays, Arrays]:
    given = [np.arange(32 * n).astype(_NUMPY[t]) for t, n in _PACKS]
    # Every second thread loads twice, the others zeros beside.
    turned = [
        ((2 - np.arange(32) % 2)[:, None] * x.reshape(32, n)[:, ::-1]).astype(x.dtype).ravel()
        for x, (_, n) in zip(given, _PACKS, strict=True)
    ]
    return given, [np.zeros_like(x) for x in given], turned


def _arena() -> tuple[Arrays, Arrays, Arrays]:
    x = np.arange(32, dtype=np.float32)
    return [x], [np.zeros(32, np.float32), np.ones(32, np.int64)], [x[::-1], np.zeros(32, np.int64)]


_LANES = (("int32_t", "int32_t"), ("double", "double"), ("int64_t", "int64_t"), ("te_f16", "uint16_t"), ("te_bf16", "uint16_t"))


def _lanes() -> tuple[Arrays, Arrays, Arrays]:
    given = [(np.arange(32) * 257 + 3).astype(_NUMPY[t]) for _, t in _LANES]
    lane = np.arange(32)
    further = np.where(lane[:, None] + lane < 32, lane[:, None] + lane, lane[:, None])
    one = np.broadcast_to((lane * 7 + 5) % 32, (32, 32))
    wanted = [np.stack([x[further], x[one]]) for x in given]
    return given, [np.zeros_like(w) for w in wanted], wanted


def _votes() -> tuple[Arrays, Arrays, Arrays]:
    x = np.array([17, 99, 31, 32], np.int32)
    return [x], [np.full((4, 32), 7, np.int32)], [np.repeat(np.array([[1], [0], [1], [0]], np.int32), 32, 1)]


_COPIES = """  __shared__ __align__(16) uint8_t at[5][32][{0}];
  for (int k = 0; k < 4; ++k) {{
    te_copy_async<{0}>(&at[k][n][0], x + (k * 32 + n) * {0}, k == 3 ? n % {1} : {0});
    te_copies_commit();
  }}
  te_copies_wait<2>();
  for (int k = 0; k < {0}; ++k) for (int j = 0; j < 2; ++j) y[(j * 32 + n) * {0} + k] = at[j][n][k];
  te_copies_wait<1>();
  for (int k = 0; k < {0}; ++k) y[(64 + n) * {0} + k] = at[2][n][k];
  te_copy_async<{0}>(&at[4][n][0], x + (128 + n) * {0});
  te_copies_wait<0>();
  for (int k = 0; k < {0}; ++k) y[(96 + n) * {0} + k] = at[3][n][k];
  te_copies_wait_all();
  for (int k = 0; k < {0}; ++k) y[(128 + n) * {0} + k] = at[4][n][k];"""


def _copies(size: int) -> Callable[[], tuple[Arrays, Arrays, Arrays]]:
    def case() -> tuple[Arrays, Arrays, Arrays]:
        x = (np.arange(5 * 32 * size) % 251 + 1).astype(np.uint8).reshape(5, 32, size)
        wanted = x.copy()
        for lane in range(32):
            wanted[3, lane, lane % (size + 1) :] = 0
        return [x], [np.zeros_like(x)], [wanted]

    return case


# ----------------------------------------------------------------------------------------------------------- matrices

# Where element i of a lane lies (Matrix Fragments for mma): groupID = lane >> 2, threadID_in_group = lane % 4.
FRAGMENTS: dict[str, dict[str, tuple[int, Callable[[int, int], tuple[int, int]]]]] = {
    "m16n8k16": {
        "a": (8, lambda lane, i: ((lane >> 2) + (8 if i in (2, 3, 6, 7) else 0), (lane % 4) * 2 + (i & 1) + (8 if i >= 4 else 0))),
        "b": (4, lambda lane, i: ((lane % 4) * 2 + (i & 1) + (8 if i >= 2 else 0), lane >> 2)),
        "c": (4, lambda lane, i: ((lane >> 2) + (8 if i >= 2 else 0), (lane % 4) * 2 + (i & 1))),
    },
    "m16n8k8": {
        "a": (4, lambda lane, i: ((lane >> 2) + (8 if i in (1, 3) else 0), lane % 4 + (4 if i >= 2 else 0))),
        "b": (2, lambda lane, i: (lane % 4 + (4 if i == 1 else 0), lane >> 2)),
        "c": (4, lambda lane, i: ((lane >> 2) + (8 if i >= 2 else 0), (lane % 4) * 2 + (i & 1))),
    },
    "m8n8k4": {
        "a": (1, lambda lane, i: (lane >> 2, lane % 4)),
        "b": (1, lambda lane, i: (lane % 4, lane >> 2)),
        "c": (2, lambda lane, i: (lane >> 2, (lane % 4) * 2 + i)),
    },
}
_MATRICES = """  __shared__ __align__(16) uint16_t tile[32][8];
  for (int k = 0; k < 8; ++k) tile[n][k] = x[n * 8 + k];
  __syncwarp();
  uint32_t four[4], other[4], two[2], last[2], pair[4][2];
  te_matrices<false>(four, &tile[n][0]);
  te_matrices<true>(other, &tile[n][0]);
  te_matrices<false>(two, &tile[n % 16][0]);
  te_matrices<true>(last, &tile[n % 16][0]);
  te_matrices<false>(pair[0], pair[1], &tile[n][0]);
  te_matrices<true>(pair[2], pair[3], &tile[n][0]);
  for (int q = 0; q < 4; ++q) y[n * 20 + q] = four[q], y[n * 20 + 4 + q] = other[q];
  for (int q = 0; q < 2; ++q) y[n * 20 + 8 + q] = two[q], y[n * 20 + 10 + q] = last[q];
  for (int q = 0; q < 8; ++q) y[n * 20 + 12 + q] = pair[q / 2][q % 2];"""


def _matrices() -> tuple[Arrays, Arrays, Arrays]:
    x = (np.arange(256, dtype=np.uint32) * 259 % 65536).astype(np.uint16)
    matrices = x.reshape(4, 8, 8).astype(np.uint32)
    wanted = np.zeros((32, 20), np.uint32)
    for lane in range(32):
        row, column = lane // 4, 2 * (lane % 4)
        straight = [m[row, column] | m[row, column + 1] << 16 for m in matrices]
        turned = [m[column, row] | m[column + 1, row] << 16 for m in matrices]
        wanted[lane] = [*straight, *turned, *straight[:2], *turned[:2], *straight, *turned]
    return [x], [np.zeros_like(wanted)], [wanted]


@dataclass(frozen=True)
class _Product:
    """An instruction: shape, the type of a register of an operand and of the result, and how an element becomes bits of a register."""

    shape: str
    held: str
    result: str
    bits: Callable[[np.ndarray], np.ndarray]


def _high(x: np.ndarray) -> np.ndarray:
    return (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


_PRODUCTS = {
    "te_mma_f16": _Product("m16n8k16", "uint32_t", "float", lambda x: x.astype(np.float16).view(np.uint16)),
    "te_mma_bf16": _Product("m16n8k16", "uint32_t", "float", _high),
    "te_mma_tf32": _Product("m16n8k8", "uint32_t", "float", lambda x: x.astype(np.float32).view(np.uint32)),
    "te_mma_f64": _Product("m8n8k4", "double", "double", lambda x: x),
}
_EXTENTS = {"m16n8k16": (16, 8, 16), "m16n8k8": (16, 8, 8), "m8n8k4": (8, 8, 4)}


def _spread(matrix: np.ndarray, shape: str, operand: str, held: str) -> np.ndarray:
    """A matrix as the registers of the lanes."""
    count, place = FRAGMENTS[shape][operand]
    elements = np.array([[matrix[place(lane, i)] for i in range(count)] for lane in range(32)])
    return np.ascontiguousarray(elements).view(_NUMPY[held])


def _product_text(name: str) -> str:
    p = _PRODUCTS[name]
    counts = {o: FRAGMENTS[p.shape][o][0] // (2 if p.shape == "m16n8k16" and o != "c" else 1) for o in "abc"}
    results = [", ".join(f"c[{j}][{k}]" for k in range(counts["c"])) for j in range(2)]
    body = f"""  {p.held} fa[{counts["a"]}], fb[{counts["b"]}];
  {p.result} c[2][{counts["c"]}];
  for (int k = 0; k < {counts["a"]}; ++k) fa[k] = a[n * {counts["a"]} + k];
  for (int k = 0; k < {counts["b"]}; ++k) fb[k] = b[n * {counts["b"]} + k];
  for (int k = 0; k < {counts["c"]}; ++k) c[0][k] = c[1][k] = given[n * {counts["c"]} + k];
  {name}({results[0]}, fa, fb);
  {name}_columns({results[1]}, fa, fb, n % 2 == 0, n % 3 == 0);
  for (int k = 0; k < {counts["c"]}; ++k) all[n * {counts["c"]} + k] = c[0][k], some[n * {counts["c"]} + k] = c[1][k];
  for (int k = 0; k < {counts["c"]}; ++k) c[1][k] = given[n * {counts["c"]} + k];
  {name}_rows({results[1]}, fa, fb, n % 2 == 0{", n % 3 == 0" if counts["c"] == 4 else ""});
  for (int k = 0; k < {counts["c"]}; ++k) rows[n * {counts["c"]} + k] = c[1][k];"""
    parameters = f"const {p.held} *a, const {p.held} *b, const {p.result} *given, {p.result} *all, {p.result} *some, {p.result} *rows"
    return kernel(f"x_{name}", parameters, body)


def _product(name: str) -> Callable[[], tuple[Arrays, Arrays, Arrays]]:
    def case() -> tuple[Arrays, Arrays, Arrays]:
        p = _PRODUCTS[name]
        rows, columns, depth = _EXTENTS[p.shape]
        rng = np.random.default_rng(depth)
        a, b, c = (rng.integers(-8, 9, e).astype(np.float64) for e in ((rows, depth), (depth, columns), (rows, columns)))
        spread = [_spread(p.bits(a), p.shape, "a", p.held), _spread(p.bits(b), p.shape, "b", p.held)]
        given, found = (_spread(m.astype(_NUMPY[p.result]), p.shape, "c", p.result) for m in (c, a @ b + c))
        lane, column = np.arange(32)[:, None], np.arange(given.shape[1])[None, :] % 2
        taken = np.where(column == 0, lane % 2 == 0, lane % 3 == 0)
        row = np.broadcast_to(np.arange(given.shape[1])[None, :] // 2, taken.shape)
        of_rows = np.where(np.where(row == 0, lane % 2 == 0, lane % 3 == 0), found, given)
        return [*spread, given], [np.zeros_like(given) for _ in range(3)], [found, np.where(taken, found, given), of_rows]

    return case


def _zeros(asked: int) -> tuple[Arrays, Arrays, Arrays]:
    """Which numbers are not finite: of halves of a register, of float32 and of float64; a bit for each, those that are asked for."""
    halves = [0x0000, 0x8000, 0x3F80, 0x7F7F, 0x7F80, 0xFF80, 0x7FC1, 0x7BFF, 0x7C00, 0xFC00, 0x7E00, 0x0001, 0x807F]
    x = np.array([halves[k % 13] | halves[(5 * k + 1) % 13] << 16 for k in range(32)], np.uint32)
    w = np.array([[0.0, -0.0, np.inf, -np.inf, np.nan, 1e308, 5e-324, -1.0][k % 8] for k in range(32)])
    low, high = x & 0xFFFF, x >> 16
    bf16, f16 = ([h & mask == mask for h in (low, high)] for mask in (0x7F80, 0x7C00))
    tf32 = x & 0x7F800000 == 0x7F800000
    y = (bf16[0] | bf16[1]) * 1 + (f16[0] | f16[1]) * 2 + tf32 * 4 + ~np.isfinite(w) * 8
    return [x, w], [np.zeros(32, np.int32)], [y.astype(np.int32) & asked]


# ------------------------------------------------------------------------------------------ products of a warpgroup

# Factors of 64 terms, rows of 64 elements, whose chunks of eight lie in another order from row to row: a row for each row of the result, or
# for each term. Columns beyond 64 of a row lie below.
_IN_GROUP = """  te_{t} (&a)[64 * 64] = te_arena<te_{t}[64 * 64]>(0), (&b)[{n} * 64] = te_arena<te_{t}[{n} * 64]>(8192);
  for (int turns = 0; turns < 4; ++turns) {{
    for (int k = n; k < 64 * 64; k += 128) {{
      const int r = k / 64, q = k % 64;
      a[turns & 1 ? q * 64 + (r ^ q % 8 * 8) : r * 64 + (q ^ r % 8 * 8)].bits = x[k];
    }}
    for (int k = n; k < {n} * 64; k += 128) {{
      const int r = k / 64, q = k % 64;
      b[turns & 2 ? r / 64 * 4096 + q * 64 + (r % 64 ^ q % 8 * 8) : r * 64 + (q ^ r % 8 * 8)].bits = w[k];
    }}
    te_hand_over();
    __syncthreads();
    float c[{n} / 2];
    for (int k = 0; k < {n} / 2; ++k) c[k] = y[(turns * {n} / 2 + k) * 128 + n];
    te_group_enter(c);
    for (int k = 0; k < 64; k += 16) {{
      if (turns == 0) te_group_{t}<false, false>(c, te_tile<0, 1024>(a + k), te_tile<0, 1024>(b + k));
      if (turns == 1) te_group_{t}<true, false>(c, te_tile<8192, 1024>(a + k * 64), te_tile<0, 1024>(b + k));
      if (turns == 2) te_group_{t}<false, true>(c, te_tile<0, 1024>(a + k), te_tile<8192, 1024>(b + k * 64));
      if (turns == 3) te_group_{t}<true, true>(c, te_tile<8192, 1024>(a + k * 64), te_tile<8192, 1024>(b + k * 64));
    }}
    te_group_commit();
    if (turns % 2) te_group_wait_before();
    te_group_wait(c);
    for (int k = 0; k < {n} / 2; ++k) y[(turns * {n} / 2 + k) * 128 + n] = c[k];
    __syncthreads();
  }}"""


def _in_group(bits: Callable[[np.ndarray], np.ndarray], columns: int) -> Callable[[], tuple[Arrays, Arrays, Arrays]]:
    def case() -> tuple[Arrays, Arrays, Arrays]:
        rng = np.random.default_rng(columns)
        x, w = (rng.integers(-3, 4, (rows, 64)).astype(np.float32) for rows in (64, columns))
        start = rng.integers(-9, 10, (4, columns // 2, 128)).astype(np.float32)
        product, wanted = x @ w.T, start.copy()
        for thread in range(128):
            # D of wgmma.m64nN: a warp has 16 rows, a lane of it the elements that it has of mma's 16 x 8, by eight columns.
            row, column = thread // 32 * 16 + thread % 32 // 4, thread % 4 * 2
            for k in range(columns // 2):
                half, rest = divmod(k, columns // 4)
                wanted[:, k, thread] += product[row + 8 * half, rest // 2 * 8 + column + rest % 2]
        return [bits(x), bits(w)], [start], [wanted]

    return case


_HALVES = {"f16": lambda x: x.astype(np.float16).view(np.uint16), "bf16": _high}

# ------------------------------------------------------------------------------------------------------------ updates

_WORDS = ("add", "maximum", "minimum", "mul")
_UPDATED = ("float", "double", "int32_t", "uint32_t", "int64_t", "uint64_t")


def _updates(kind: str) -> Callable[[], tuple[Arrays, Arrays, Arrays]]:
    def case() -> tuple[Arrays, Arrays, Arrays]:
        dtype = np.dtype(_NUMPY[kind])
        rng = np.random.default_rng(len(kind))
        if dtype.kind == "f":
            x, start = rng.integers(-100, 100, 32).astype(dtype), rng.integers(-9, 9, (4, 3)).astype(dtype)
            factors = rng.choice([-1.0, 2.0, 0.5], 32).astype(dtype)
        else:
            info = np.iinfo(dtype)
            x, start = (rng.integers(info.min, info.max, e, dtype, endpoint=True) for e in (32, (4, 3)))
            factors = x | dtype.type(1)
        wanted = start.copy()
        with np.errstate(all="ignore"):
            for lane in range(32):
                at = lane % 3
                wanted[0, at] += x[lane]
                wanted[1, at] = max(wanted[1, at], x[lane])
                wanted[2, at] = min(wanted[2, at], x[lane])
                wanted[3, at] *= factors[lane]
        return [x, factors], [start], [wanted]

    return case


def _failed() -> tuple[Arrays, Arrays, Arrays]:
    return [], [np.zeros(3, np.int64)], [np.array([5, 100, 50])]


BEHAVIOURS = {
    "of_f16": Behaviour(
        kernel("x_of_f16", "const uint16_t *x, float *y", "  for (int k = n; k < 65536; k += 32) y[k] = te_f32(te_f16{x[k]});"),
        ("te_ptx_f32_of_f16",), _of_f16,
    ),
    "to_f16": Behaviour(
        kernel("x_to_f16", "const float *x, const double *w, uint16_t *y, uint16_t *z",
               _EACH.format("y[k] = te_to_f16(x[k]).bits, z[k] = te_to_f16(w[k]).bits;")),
        ("te_ptx_f16_of_f32", "te_ptx_f16_of_f64"), _to_f16,
    ),
    "to_bf16": Behaviour(
        kernel("x_to_bf16", "const float *x, float *y", _EACH.format("y[k] = te_f32(te_to_bf16(x[k]));")),
        ("te_bf16_bits",), _rounded(7, away=False, copies=1),
    ),
    "to_tf32": Behaviour(
        kernel("x_to_tf32", "const float *x, float *y, float *z",
               _EACH.format("uint32_t r[1] = {te_bits_of_float(x[k])}; te_tf32(r); y[k] = te_float_of_bits(te_tf32(x[k])),"
                            " z[k] = te_float_of_bits(r[0]);")),
        ("te_tf32",), _rounded(10, away=True, copies=2), sm=80,
    ),
    "bits": Behaviour(
        kernel("x_bits", "const float *x, const double *w, const uint32_t *u, const uint64_t *v,"
               " uint32_t *a, uint64_t *b, float *c, double *d",
               _EACH.format("a[k] = te_bits_of_float(x[k]), b[k] = te_bits_of_double(w[k]), c[k] = te_float_of_bits(u[k]),"
                            " d[k] = te_double_of_bits(v[k]);")),
        ("te_bits_of_float", "te_bits_of_double", "te_float_of_bits", "te_double_of_bits"), _bits,
    ),
    "packs": Behaviour(
        kernel("x_packs", _arrays([t for t, _ in _PACKS]),
               "\n".join(_PACK.format(t, count, k) for k, (t, count) in enumerate(_PACKS))),
        ("te_load", "te_store"), _packs,
    ),
    "arena": Behaviour(
        kernel("x_arena", "const float *x, float *y, int64_t *z", """  __shared__ float declared[3];  // in front
  te_arena<float[32]>(128)[n] = x[n];
  declared[n % 3] = 2.0f;
  __syncwarp();
  y[n] = te_arena<float[32]>(128)[31 - n] * declared[n % 3] / 2.0f;
  z[n] = (int64_t)(te_ptx_shared(&te_arena<float>(0)) % 1024);"""),
        ("te_arena", "te_ptx_shared"), _arena, shared=256,
    ),
    "lanes": Behaviour(
        kernel("x_lanes", _arrays([t for t, _ in _LANES]),
               "  for (int k = 0; k < 32; ++k) {\n" + "\n".join(
                   f"    y{k}[n * 32 + k] = te_shuffle_down(x{k}[n], k);\n"
                   f"    y{k}[1024 + n * 32 + k] = te_shuffle_from(x{k}[n], (k * 7 + 5) % 32);"
                   for k in range(len(_LANES))) + "\n  }"),
        ("te_shuffle_down", "te_shuffle_from"), _lanes,
    ),
    "votes": Behaviour(
        kernel("x_votes", "const int32_t *x, int32_t *y", """  y[n] = __syncthreads_or(n == x[0]);
  y[32 + n] = __syncthreads_or(n == x[1]);
  y[64 + n] = __any_sync(0xffffffffu, n == x[2]);
  y[96 + n] = __any_sync(0xffffffffu, n == x[3]);"""),
        (), _votes,
    ),
    **{
        f"copies_{size}": Behaviour(
            kernel(f"x_copies_{size}", "const uint8_t *x, uint8_t *y", _COPIES.format(size, size + 1)),
            ("te_copy_async", "te_copies_commit", "te_copies_wait", "te_copies_wait_all", "te_ptx_shared"), _copies(size),
        )
        for size in (4, 8, 16)
    },
    "matrices": Behaviour(
        kernel("x_matrices", "const uint16_t *x, uint32_t *y", _MATRICES), ("te_matrices", "te_ptx_shared"), _matrices,
    ),
    **{name: Behaviour(_product_text(name), (name, f"{name}_columns", f"{name}_rows"), _product(name), sm=80) for name in _PRODUCTS},
    **{
        f"group_{t}_{n}": Behaviour(
            kernel(f"x_group_{t}_{n}", "const uint16_t *x, const uint16_t *w, float *y", _IN_GROUP.format(t=t, n=n), 128),
            (f"te_group_{t}", "te_group_enter", "te_group_commit", "te_group_wait", "te_group_wait_before", "te_ptx_group_fence",
             "te_ptx_group_wait", "te_pinned",
             "te_hand_over", "te_ptx_shared"),
            _in_group(_HALVES[t], n), sm=90, shared=8192 + 128 * n, threads=128, alone=True,
        )
        for t in ("f16", "bf16") for n in (64, 128, 256)
    },
    "zeros": Behaviour(
        kernel("x_zeros", "const uint32_t *x, const double *w, int32_t *y", """  uint32_t one[1] = {x[n]}, f16 = 0, tf32 = 0;
  double two[1] = {w[n]}, f64 = 0;
  te_zeros_f16(f16, one), te_zeros_tf32(tf32, one), te_zeros_f64(f64, two);
  y[n] = te_odd(f16) << 1 | te_odd(tf32) << 2 | te_odd(f64) << 3;"""),
        ("te_zeros_f16", "te_zeros_tf32", "te_zeros_f64", "te_zero_f16", "te_odd"), lambda: _zeros(14),
    ),
    "zeros_bf16": Behaviour(
        kernel("x_zeros_bf16", "const uint32_t *x, const double *w, int32_t *y", """  uint32_t one[1] = {x[n]}, sum = 0;
  te_zeros_bf16(sum, one);
  y[n] = te_odd(sum);"""),
        ("te_zeros_bf16", "te_zero_bf16", "te_odd"), lambda: _zeros(1), sm=80,
    ),
    **{
        f"updates_{kind}": Behaviour(
            kernel(f"x_updates_{kind}", f"const {kind} *x, const {kind} *factors, {kind} *y",
                   "\n".join(f"  te_atomic_{word}<{kind}>(&y[{3 * k} + n % 3], {'factors' if word == 'mul' else 'x'}[n]);"
                             for k, word in enumerate(_WORDS))),
            ("te_atomic_add", "te_atomic_maximum", "te_atomic_minimum"), _updates(kind),
        )
        for kind in _UPDATED
    },
    "failed": Behaviour(
        kernel("x_failed", "int64_t *report", "  te_fail((te_error *)report, 4, 100, 50);\n  te_fail((te_error *)report, 9, 1, 2);"),
        ("te_fail",), _failed,
    ),
}  # fmt: skip
"""By name; the kernel is the name behind "x_"."""
