// Products of matrices of a warp in plain C++. Where the elements of a fragment lie is said by instructions.h alone, which is written from
// the table of the PTX ISA's facts (`codegen/cuda/nvidia/ptx.py`).
#pragma once

struct te_lane_matrices {
  const uint16_t *row;
  uint32_t *to;
};
// Register q of a lane holds its elements of matrix q; or of that transposed.
template <int N, bool TRANSPOSED> static void te_spread(void **lanes) {
  for (int n = 0; n < 32; ++n)
    for (int q = 0; q < N; ++q) {
      uint32_t packed = 0;
      for (int half = 0; half < te_ldmatrix::parts; ++half) {
        int row = te_ldmatrix::row(n, half), column = te_ldmatrix::column(n, half);
        if (TRANSPOSED) std::swap(row, column);
        uint16_t bits;
        std::memcpy(&bits, ((te_lane_matrices *)lanes[8 * q + row])->row + column, 2);
        packed |= (uint32_t)bits << (16 * half);
      }
      ((te_lane_matrices *)lanes[n])->to[q] = packed;
    }
}
template <bool TRANSPOSED, int N> static inline void te_matrices(uint32_t (&to)[N], const void *row, int line = __builtin_LINE()) {
  if (TE_LANE < 8 * N) {
    if ((uintptr_t)row % 16) te_host_misaligned(row, 16, line);
    te_host_touch(row, 16, 0);
  }
  te_lane_matrices mine = {(const uint16_t *)row, to};
  te_host_collective(te_spread<N, TRANSPOSED>, &mine, line);
}

template <bool TRANSPOSED>
static inline void te_matrices(uint32_t (&to)[2], uint32_t (&next)[2], const void *row, int line = __builtin_LINE()) {
  uint32_t both[4];
  te_matrices<TRANSPOSED>(both, row, line);
  to[0] = both[0], to[1] = both[1], next[0] = both[2], next[1] = both[3];
}

// To the nearest of the bits of fraction that are kept, in the middle away from zero. The instruction reads no other bits.
struct te_tf32_bits {};
static constexpr uint32_t te_tf32_kept = ~0u << te_tf32_dropped;
static inline uint32_t te_tf32(float x) {
  return x != x ? 0x7fffffffu : (te_bits_of_float(x) + (1u << (te_tf32_dropped - 1))) & te_tf32_kept;
}
static inline double te_part_of(uint32_t bits, int, te_tf32_bits) { return te_float_of_bits(bits & te_tf32_kept); }

static inline double te_part_of(uint32_t bits, int part, te_bf16) { te_bf16 x; x.bits = (uint16_t)(bits >> (16 * part)); return te_f32(x); }
static inline double te_part_of(uint32_t bits, int part, te_f16) { te_f16 x; x.bits = (uint16_t)(bits >> (16 * part)); return te_f32(x); }
static inline double te_part_of(double value, int, double) { return value; }

template <class C, class R> struct te_lane_product {
  C *c[4];
  const R *a, *b;
};
// Sums in the type of the result, k in order. Element e of a lane is part e % parts of register e / parts.
template <class C, class R, class T, class S> static void te_multiply(void **lanes) {
  double a[S::m][S::k], b[S::k][S::n];
  for (int n = 0; n < 32; ++n) {
    auto *lane = (te_lane_product<C, R> *)lanes[n];
    for (int e = 0; e < S::elements_of_a; ++e)
      a[S::row_of_a(n, e)][S::column_of_a(n, e)] = te_part_of(lane->a[e / S::parts_of_a], e % S::parts_of_a, T());
    for (int e = 0; e < S::elements_of_b; ++e)
      b[S::row_of_b(n, e)][S::column_of_b(n, e)] = te_part_of(lane->b[e / S::parts_of_b], e % S::parts_of_b, T());
  }
  for (int n = 0; n < 32; ++n) {
    auto *lane = (te_lane_product<C, R> *)lanes[n];
    for (int e = 0; e < S::elements_of_c; ++e) {
      C sum = *lane->c[e];
      for (int k = 0; k < S::k; ++k) sum = (C)(sum + (C)(a[S::row_of_c(n, e)][k] * b[k][S::column_of_c(n, e)]));
      *lane->c[e] = sum;
    }
  }
}
#define TE_MMA_FLOAT(name, type, shape)                                                                                \
  static inline void name(float &c0, float &c1, float &c2, float &c3, const uint32_t (&a)[4], const uint32_t (&b)[2],  \
                          int line = __builtin_LINE()) {                                                               \
    te_lane_product<float, uint32_t> mine = {{&c0, &c1, &c2, &c3}, a, b};                                              \
    te_host_collective(te_multiply<float, uint32_t, type, shape>, &mine, line);                                        \
  }
TE_MMA_FLOAT(te_mma_bf16, te_bf16, te_m16n8k16)
TE_MMA_FLOAT(te_mma_f16, te_f16, te_m16n8k16)
TE_MMA_FLOAT(te_mma_tf32, te_tf32_bits, te_m16n8k8)
static inline void te_mma_f64(double &c0, double &c1, const double (&a)[1], const double (&b)[1], int line = __builtin_LINE()) {
  te_lane_product<double, double> mine = {{&c0, &c1, nullptr, nullptr}, a, b};
  te_host_collective(te_multiply<double, double, double, te_m8n8k4>, &mine, line);
}
static inline uint32_t te_half_times_zero(uint32_t half, uint32_t sum, uint32_t infinite) {
  return (half & infinite) == infinite || (sum & infinite) == infinite ? infinite | 1u : 0u;
}
#define TE_ZERO_HALVES(name, infinite)                                                                                 \
  static inline void name(uint32_t &sum, uint32_t x, uint32_t zero) {                                                  \
    if (zero) __builtin_trap();                                                                                        \
    sum = te_half_times_zero(x & 0xffffu, sum & 0xffffu, infinite) | te_half_times_zero(x >> 16, sum >> 16, infinite) << 16; \
  }
TE_ZERO_HALVES(te_zero_bf16, 0x7f80u)
TE_ZERO_HALVES(te_zero_f16, 0x7c00u)
TE_MMA_REST

// ------------------------------------------------------------------------------------------ products of a warpgroup

// The chunk of shared memory with an element of a factor: a row of the result (of the second factor a column), and a term of its sum.
template <bool TURNED> static inline char *te_chunk_of(uint64_t bits, int row, int term) {
  const unsigned outer = TURNED ? term : row, inner = (TURNED ? row : term) * 2;
  const unsigned patterns = outer / te_group::pattern_rows, rows = outer % te_group::pattern_rows;
  unsigned at = te_group::start_of(bits) + patterns * te_group::stride_of(bits) + rows * te_group::row_bytes;
  at += inner / te_group::row_bytes * te_group::lead_of(bits) + inner % te_group::row_bytes;
  at ^= at / te_group::row_bytes % te_group::pattern_rows * te_group::chunk_bytes;
  return te_host_place(at);
}
template <bool TURNED, int ROWS> static void te_each_chunk(uint64_t bits, void (*visit)(char *)) {
  const int step = te_group::chunk_bytes / 2;
  for (int row = 0; row < ROWS; row += TURNED ? step : 1)
    for (int term = 0; term < te_group::k; term += TURNED ? 1 : step) visit(te_chunk_of<TURNED>(bits, row, term));
}
template <int N, bool A_TURNED, bool B_TURNED> static void te_group_chunks(uint64_t a, uint64_t b, void (*visit)(char *)) {
  te_each_chunk<A_TURNED, te_group::m>(a, visit);
  te_each_chunk<B_TURNED, N>(b, visit);
}
template <class T, bool TURNED, int ROWS> static void te_factor(double (&to)[ROWS][te_group::k], uint64_t bits) {
  for (int row = 0; row < ROWS; ++row)
    for (int term = 0; term < te_group::k; ++term) {
      T x;
      std::memcpy(&x, te_chunk_of<TURNED>(bits, row, term), 2);
      to[row][term] = te_f32(x);
    }
}
// Every warp has its rows as `mma` has them, its columns eight by eight.
template <class T, int N, bool A_TURNED, bool B_TURNED> static void te_group_multiply(float **sums, uint64_t a, uint64_t b) {
  double x[te_group::m][te_group::k], y[N][te_group::k];
  te_factor<T, A_TURNED>(x, a);
  te_factor<T, B_TURNED>(y, b);
  for (int n = 0; n < te_group::threads; ++n)
    for (int e = 0; e < N / 2; ++e) {
      const int row = n / 32 * te_group::warp_rows + te_m16n8k16::row_of_c(n % 32, e % 4);
      const int column = e / 4 * te_m16n8k16::n + te_m16n8k16::column_of_c(n % 32, e % 4);
      float &sum = *sums[n * (N / 2) + e];
      for (int k = 0; k < te_group::k; ++k) sum = (float)(sum + (float)(x[row][k] * y[column][k]));
    }
}
template <class T, bool A_TURNED, bool B_TURNED, int COUNT>
static inline void te_group_product(float *const (&sums)[COUNT], uint64_t a, uint64_t b, int line) {
  const te_group_work work = {te_group_multiply<T, 2 * COUNT, A_TURNED, B_TURNED>, te_group_chunks<2 * COUNT, A_TURNED, B_TURNED>,
                              sums, COUNT, a, b};
  if (te_group::swizzle_of(a) != te_group::swizzled || te_group::swizzle_of(b) != te_group::swizzled) __builtin_trap();
  te_host_group_product(&work, line);
}
// The sums in the order of the instruction: of row r and of row r + 8 in turn, two columns each.
#define TE_GROUP(name, type)                                                                                           \
  template <bool A_TURNED, bool B_TURNED, int COUNT>                                                                   \
  static inline void name(float (&c)[COUNT], uint64_t a, uint64_t b, int line = __builtin_LINE()) {                    \
    float *sums[COUNT];                                                                                                \
    for (int e = 0; e < COUNT; ++e) sums[e] = &c[e % 4 / 2 * (COUNT / 2) + e / 4 * 2 + e % 2];                         \
    te_group_product<type, A_TURNED, B_TURNED>(sums, a, b, line);                                                      \
  }
TE_GROUP(te_group_f16, te_f16)
TE_GROUP(te_group_bf16, te_bf16)
