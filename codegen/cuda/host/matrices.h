// Products of matrices of a warp in plain C++, after the tables of the PTX ISA: where the elements of a fragment lie is said by
// the functions `te_row_of_*` and `te_column_of_*` alone, which a test compares with those tables.
#pragma once

struct te_lane_matrices {
  const uint16_t *row;
  uint32_t *to;
};
// Register q of lane n holds of matrix q the elements at row n / 4, columns 2 (n % 4) and one more; or transposed.
template <int N, bool TRANSPOSED> static void te_spread(void **lanes) {
  for (int n = 0; n < 32; ++n)
    for (int q = 0; q < N; ++q) {
      uint32_t packed = 0;
      for (int half = 0; half < 2; ++half) {
        int row = n / 4, column = 2 * (n % 4) + half;
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

// The fragments of m16n8k16 (two elements, `parts`, to a register), m16n8k8 of TF32 and m8n8k4 (one): where element `part` of register `q`
// of lane n lies; `wide`: there are sixteen rows.
static inline int te_row_of_c(int n, int q, bool) { return n / 4 + 8 * (q / 2); }
static inline int te_column_of_c(int n, int q, bool) { return 2 * (n % 4) + q % 2; }
static inline int te_row_of_a(int n, int q, bool wide) { return n / 4 + (wide ? 8 * (q % 2) : 0); }
static inline int te_k_of_a(int n, int q, int part, int parts) { return parts * (n % 4 + 4 * (q / 2)) + part; }
static inline int te_column_of_b(int n, int, bool) { return n / 4; }
static inline int te_k_of_b(int n, int q, int part, int parts) { return parts * (n % 4 + 4 * q) + part; }

// To the nearest of ten bits of fraction, in the middle away from zero. The instruction reads no other bits.
struct te_tf32_bits {};
static inline uint32_t te_tf32(float x) { return x != x ? 0x7fffffffu : (te_bits_of_float(x) + 0x1000u) & 0xffffe000u; }
static inline double te_part_of(uint32_t bits, int, te_tf32_bits) { return te_float_of_bits(bits & 0xffffe000u); }

static inline double te_part_of(uint32_t bits, int part, te_bf16) { te_bf16 x; x.bits = (uint16_t)(bits >> (16 * part)); return te_f32(x); }
static inline double te_part_of(uint32_t bits, int part, te_f16) { te_f16 x; x.bits = (uint16_t)(bits >> (16 * part)); return te_f32(x); }
static inline double te_part_of(double value, int, double) { return value; }

template <class C, class R> struct te_lane_product {
  C *c[4];
  const R *a, *b;
};
// Sums in the type of the result, k in order.
template <class C, class R, class T, int M, int K> static void te_multiply(void **lanes) {
  constexpr bool wide = M == 16;
  constexpr int parts = K == 16 ? 2 : 1, as = M * K / 32 / parts, bs = 8 * K / 32 / parts, cs = M * 8 / 32;
  double a[M][K], b[K][8];
  for (int n = 0; n < 32; ++n) {
    auto *lane = (te_lane_product<C, R> *)lanes[n];
    for (int q = 0; q < as; ++q)
      for (int part = 0; part < parts; ++part) a[te_row_of_a(n, q, wide)][te_k_of_a(n, q, part, parts)] = te_part_of(lane->a[q], part, T());
    for (int q = 0; q < bs; ++q)
      for (int part = 0; part < parts; ++part) b[te_k_of_b(n, q, part, parts)][te_column_of_b(n, q, wide)] = te_part_of(lane->b[q], part, T());
  }
  for (int n = 0; n < 32; ++n) {
    auto *lane = (te_lane_product<C, R> *)lanes[n];
    for (int q = 0; q < cs; ++q) {
      C sum = *lane->c[q];
      for (int k = 0; k < K; ++k) sum = (C)(sum + (C)(a[te_row_of_c(n, q, wide)][k] * b[k][te_column_of_c(n, q, wide)]));
      *lane->c[q] = sum;
    }
  }
}
#define TE_MMA_FLOAT(name, type, depth)                                                                                \
  static inline void name(float &c0, float &c1, float &c2, float &c3, const uint32_t (&a)[4], const uint32_t (&b)[2],  \
                          int line = __builtin_LINE()) {                                                               \
    te_lane_product<float, uint32_t> mine = {{&c0, &c1, &c2, &c3}, a, b};                                              \
    te_host_collective(te_multiply<float, uint32_t, type, 16, depth>, &mine, line);                                    \
  }
TE_MMA_FLOAT(te_mma_bf16, te_bf16, 16)
TE_MMA_FLOAT(te_mma_f16, te_f16, 16)
TE_MMA_FLOAT(te_mma_tf32, te_tf32_bits, 8)
static inline void te_mma_f64(double &c0, double &c1, const double (&a)[1], const double (&b)[1], int line = __builtin_LINE()) {
  te_lane_product<double, double> mine = {{&c0, &c1, nullptr, nullptr}, a, b};
  te_host_collective(te_multiply<double, double, double, 8, 4>, &mine, line);
}
TE_MMA_REST
