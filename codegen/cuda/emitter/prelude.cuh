// What emitted kernels are written in: the scalar operations of the language where C++ means something else, the 16-bit
// floats, and the report of a failed check. Kernels use nothing else beyond CUDA's own words, so that a C++ compiler with a
// header of ours in place of CUDA runs the same text on a CPU.
//
// Inline PTX stands here alone, in functions that begin with te_ptx_, each beside the same in plain C++ for the host.

#ifndef TE_HOST
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#define TE_INLINE __device__ __forceinline__
#define TE_SPECIAL template <> __device__ __forceinline__
TE_INLINE float te_float_of_bits(uint32_t bits) { return __uint_as_float(bits); }
TE_INLINE uint32_t te_bits_of_float(float x) { return __float_as_uint(x); }
TE_INLINE double te_double_of_bits(uint64_t bits) { return __longlong_as_double((long long)bits); }
TE_INLINE uint64_t te_bits_of_double(double x) { return (uint64_t)__double_as_longlong(x); }
#endif

#define TE_INF_F32 te_float_of_bits(0x7f800000u)
#define TE_NAN_F32 te_float_of_bits(0x7fc00000u)
#define TE_INF_F64 te_double_of_bits(0x7ff0000000000000ull)
#define TE_NAN_F64 te_double_of_bits(0x7ff8000000000000ull)

// ------------------------------------------------------------------------------------------------ 16-bit floats
// In memory sixteen bits, in registers a float that is exact in its type; arithmetic rounds to nearest even after each step.

struct te_f16 { uint16_t bits; };
struct te_bf16 { uint16_t bits; };

#ifndef TE_HOST
TE_INLINE float te_ptx_f32_of_f16(uint16_t bits) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
}
TE_INLINE uint16_t te_ptx_f16_of_f32(float x) {
  uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}
TE_INLINE uint16_t te_ptx_f16_of_f64(double x) {
  uint16_t bits;
  asm("cvt.rn.f16.f64 %0, %1;" : "=h"(bits) : "d"(x));
  return bits;
}
#endif

TE_INLINE float te_f32(te_f16 x) { return te_ptx_f32_of_f16(x.bits); }
TE_INLINE float te_f32(te_bf16 x) { return te_float_of_bits((uint32_t)x.bits << 16); }
// Values, not calls: what a call returns into memory the instrumentation of a C++ compiler leaves out.
#define te_to_f16(x) (te_f16{te_f16_bits(x)})
#define te_to_bf16(x) (te_bf16{te_bf16_bits(x)})
TE_INLINE uint16_t te_f16_bits(float x) { return te_ptx_f16_of_f32(x); }
TE_INLINE uint16_t te_f16_bits(double x) { return te_ptx_f16_of_f64(x); }
TE_INLINE uint16_t te_bf16_bits(float x) {
#if !defined(TE_HOST) && __CUDA_ARCH__ >= 800
  uint16_t near;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(near) : "f"(x));
  return near;
#else
  uint32_t bits = te_bits_of_float(x);
  // A NaN keeps its top bits and is made quiet: adding to its bits could carry into the sign or make it infinite.
  uint32_t near = x != x ? bits | 0x400000u : bits + 0x7fffu + ((bits >> 16) & 1u);
  return (uint16_t)(near >> 16);
#endif
}
TE_INLINE float te_round_f16(float x) { return te_ptx_f32_of_f16(te_f16_bits(x)); }
TE_INLINE float te_round_f16(double x) { return te_ptx_f32_of_f16(te_f16_bits(x)); }
TE_INLINE float te_round_bf16(float x) { return te_f32(te_to_bf16(x)); }

// ------------------------------------------------------------------------------------------------------- packs
// A few elements side by side, at an address that is a multiple of their size together: one access of up to sixteen bytes. Where a condition
// fails zeros are loaded, from elsewhere: loads under a branch would wait for each other.

#ifndef TE_HOST
template <class T, int N> struct __align__(sizeof(T) * N) te_pack { T at[N]; };
template <class T, int N> TE_INLINE void te_load(T (&to)[N], const T *from) {
  const te_pack<T, N> pack = *reinterpret_cast<const te_pack<T, N> *>(from);
#pragma unroll
  for (int k = 0; k < N; ++k) to[k] = pack.at[k];
}
__device__ __align__(16) unsigned int te_nothing[4];  // zeros
template <class T, int N> TE_INLINE void te_load(T (&to)[N], const T *from, bool is) {
  te_load(to, is ? from : reinterpret_cast<const T *>(te_nothing));
}
template <class T, int N> TE_INLINE void te_store(T *to, const T (&from)[N]) {
  te_pack<T, N> pack;
#pragma unroll
  for (int k = 0; k < N; ++k) pack.at[k] = from[k];
  *reinterpret_cast<te_pack<T, N> *>(to) = pack;
}
#endif

// --------------------------------------------------------------------------------------------------- the arena
// Shared memory that a launch asks for: the buffer that begins so many bytes into it.

#ifndef TE_HOST
extern __shared__ __align__(1024) unsigned char te_arena_bytes[];
template <class T> TE_INLINE T &te_arena(int at) { return *reinterpret_cast<T *>(te_arena_bytes + at); }
#endif

// ---------------------------------------------------------------------------------------------------- shuffles
// What another lane of the warp holds: the one `distance` further on (beyond the last its own), or lane number `lane`. All lanes take part.

#ifndef TE_HOST
template <class T> TE_INLINE T te_shuffle_down(T x, int distance) { return (T)__shfl_down_sync(0xffffffffu, x, distance); }
template <class T> TE_INLINE T te_shuffle_from(T x, int lane) { return (T)__shfl_sync(0xffffffffu, x, lane); }
#define TE_SHUFFLE_BITS(type)                                                                                          \
  TE_SPECIAL type te_shuffle_down<type>(type x, int distance) { return type{te_shuffle_down(x.bits, distance)}; }      \
  TE_SPECIAL type te_shuffle_from<type>(type x, int lane) { return type{te_shuffle_from(x.bits, lane)}; }
TE_SHUFFLE_BITS(te_f16)
TE_SHUFFLE_BITS(te_bf16)
#endif

// -------------------------------------------------------------------------------------- asynchronous copies
// From global to shared memory past the registers (compute capability 8 and later): 4, 8 or 16 bytes, of which only the first
// `filled` are read and the rest are zeros. A thread's copies since the last commit are a group; `te_copies_wait<N>` waits for all
// of its groups but the last N, and says nothing of other threads' copies: a barrier follows.

#ifndef TE_HOST
TE_INLINE uint32_t te_ptx_shared(const void *place) { return (uint32_t)__cvta_generic_to_shared(place); }
template <int B> TE_INLINE void te_copy_async(void *to, const void *from, int filled = B) {
#if __CUDA_ARCH__ >= 800
  if (B == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(te_ptx_shared(to)), "l"(from), "r"(filled) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(te_ptx_shared(to)), "l"(from), "n"(B), "r"(filled) : "memory");
#else
  for (int k = 0; k < B; ++k) static_cast<char *>(to)[k] = k < filled ? static_cast<const char *>(from)[k] : 0;
#endif
}
TE_INLINE void te_copies_commit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
TE_INLINE void te_copies_wait_all() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}
template <int N> TE_INLINE void te_copies_wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}
#endif

// --------------------------------------------------------------------------------------- products of matrices
// All lanes of a warp together (compute capability 8 and later). Lane 4 r + c of a warp holds of the result, 16 rows and 8 columns,
// rows r and r + 8 at columns 2 c and 2 c + 1; of the first operand the same rows, of the second column r, at 2 c and 2 c + 1 and at 8 more
// along k. In float32, of the first operand column c and four more along k, of the second the same of column r: one to a register, rounded
// to the ten bits of fraction of TF32. `te_matrices` loads what four (or two) matrices of 8 x 8 hold at 16 bits, lane n giving the address of row n % 8 of
// matrix n / 8, and leaves them so spread; TRANSPOSED turns each around.

#ifndef TE_HOST
template <bool TRANSPOSED> TE_INLINE void te_matrices(uint32_t (&to)[4], const void *row) {
  if (TRANSPOSED)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(te_ptx_shared(row)) : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(te_ptx_shared(row)) : "memory");
}
template <bool TRANSPOSED> TE_INLINE void te_matrices(uint32_t (&to)[2], const void *row) {
  if (TRANSPOSED)
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(to[0]), "=r"(to[1]) : "r"(te_ptx_shared(row)) : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(to[0]), "=r"(to[1]) : "r"(te_ptx_shared(row)) : "memory");
}
// Two pairs of matrices at once.
template <bool TRANSPOSED> TE_INLINE void te_matrices(uint32_t (&to)[2], uint32_t (&next)[2], const void *row) {
  uint32_t both[4];
  te_matrices<TRANSPOSED>(both, row);
  to[0] = both[0], to[1] = both[1], next[0] = both[2], next[1] = both[3];
}
#define TE_MMA(name, types)                                                                                            \
  TE_INLINE void name(float &c0, float &c1, float &c2, float &c3, const uint32_t (&a)[4], const uint32_t (&b)[2]) {    \
    asm("mma.sync.aligned.m16n8k16.row.col.f32." types ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
        : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)                                                                       \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                                           \
  }
#define TE_ZERO(name, type)                                                                                            \
  TE_INLINE void name(uint32_t &sum, uint32_t x, uint32_t zero) {                                                      \
    asm("fma.rn." type " %0, %1, %2, %0;" : "+r"(sum) : "r"(x), "r"(zero));                                            \
  }
TE_ZERO(te_zero_bf16, "bf16x2")
TE_ZERO(te_zero_f16, "f16x2")
TE_MMA(te_mma_bf16, "bf16.bf16")
TE_MMA(te_mma_f16, "f16.f16")
TE_INLINE uint32_t te_tf32(float x) {
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
}
TE_INLINE void te_mma_tf32(float &c0, float &c1, float &c2, float &c3, const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
TE_INLINE void te_mma_f64(double &c0, double &c1, const double (&a)[1], const double (&b)[1]) {
  asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};" : "+d"(c0), "+d"(c1) : "d"(a[0]), "d"(b[0]));
}
#endif
// A number of float32 as three of bf16, eight bits of its fraction each (what is below 2^-133 is lost), two to a register; what is not finite is
// in the first of them. What the second and third are multiplied with must be finite, or (`te_finite`) has zeros where it is not: of such
// numbers no product counts but that with the first. A mask has zeros for what does not count; `te_alone` leaves of a fragment what lies at one point of k.
TE_INLINE float te_rest(float x) { return x - te_float_of_bits(te_bits_of_float(x) & 0xffff0000u); }
TE_INLINE uint32_t te_highs(float low, float high) { return te_bits_of_float(low) >> 16 | (te_bits_of_float(high) & 0xffff0000u); }
TE_INLINE void te_split(uint32_t &high, uint32_t &middle, uint32_t &low, float x, float y) {
  const uint32_t infinite = 0x7f800000u;
  const float x1 = (te_bits_of_float(x) & ~0x80000000u) == infinite ? 0.0f : te_rest(x);
  const float y1 = (te_bits_of_float(y) & ~0x80000000u) == infinite ? 0.0f : te_rest(y);
  high = te_highs(x, y), middle = te_highs(x1, y1), low = te_highs(te_rest(x1), te_rest(y1));
}
template <int N> struct te_both { uint32_t x[N], finite[N]; };
template <int N> TE_INLINE te_both<N> te_finite(const uint32_t (&x)[N]) {
  te_both<N> made;
  for (int k = 0; k < N; ++k) {
    const uint32_t odd = ((x[k] & 0x7f807f80u) + 0x00800080u) >> 15 & 0x00010001u;
    made.x[k] = x[k], made.finite[k] = x[k] & ~(odd * 0xffffu);
  }
  return made;
}
TE_INLINE void te_mask(uint32_t &x, bool low, bool high) { x &= (low ? 0xffffu : 0u) | (high ? 0xffff0000u : 0u); }
template <class T> TE_INLINE T te_counted(bool counts, T x) { return counts ? x : T{}; }
TE_INLINE void te_alone(uint32_t &to, uint32_t x, int k) {
  const int part = k - (int)(threadIdx.x % 4u) * 2;
  to = part == 0 ? x & 0xffffu : part == 1 ? x & 0xffff0000u : 0u;
}
TE_INLINE void te_alone(uint32_t (&to)[4], const uint32_t (&x)[4], int k) {
  for (int r = 0; r < 4; ++r) te_alone(to[r], x[r], k - r / 2 * 8);
}
TE_INLINE void te_alone(uint32_t (&to)[2], const uint32_t (&x)[2], int k) { te_alone(to[0], x[0], k), te_alone(to[1], x[1], k - 8); }
template <int N> TE_INLINE void te_alone(te_both<N> &to, const te_both<N> &x, int k) {
  te_alone(to.x, x.x, k), te_alone(to.finite, x.finite, k);
}
template <int M, int N> TE_INLINE void te_alone(uint32_t (&to)[M][N], const uint32_t (&x)[M][N], int k) {
  for (int m = 0; m < M; ++m) te_alone(to[m], x[m], k);
}
// Products of which only the first, or the second, column of a lane counts, or row; products of a fragment with zero added up, which are
// no zeros where something of it is not finite; a fragment of float32 rounded (here, or behind what the host has).
#define TE_MMA_COLUMNS(name)                                                                                           \
  template <class A, class B>                                                                                          \
  TE_INLINE void name##_columns(float &c0, float &c1, float &c2, float &c3, const A &a, const B &b, bool first, bool second) {\
    float d0 = c0, d1 = c1, d2 = c2, d3 = c3;                                                                          \
    name(d0, d1, d2, d3, a, b);                                                                                        \
    c0 = first ? d0 : c0, c1 = second ? d1 : c1, c2 = first ? d2 : c2, c3 = second ? d3 : c3;                          \
  }                                                                                                                    \
  template <class A, class B>                                                                                          \
  TE_INLINE void name##_rows(float &c0, float &c1, float &c2, float &c3, const A &a, const B &b, bool first, bool second) {\
    float d0 = c0, d1 = c1, d2 = c2, d3 = c3;                                                                          \
    name(d0, d1, d2, d3, a, b);                                                                                        \
    c0 = first ? d0 : c0, c1 = first ? d1 : c1, c2 = second ? d2 : c2, c3 = second ? d3 : c3;                          \
  }
#define TE_MMA_EACH(name, which)                                                                                       \
  template <class A, class B>                                                                                          \
  TE_INLINE void name##_##which(float &c0, float &c1, float &c2, float &c3, const A &a, const B &b, int k, bool first, bool second) {\
    A x;                                                                                                               \
    B y;                                                                                                               \
    te_alone(x, a, k), te_alone(y, b, k);                                                                              \
    name##_##which(c0, c1, c2, c3, x, y, first, second);                                                               \
  }
#define TE_MMA_PIECES(name, A, B, a1, b1, a2, b2, a3, b3)                                                              \
  TE_INLINE void name(float &c0, float &c1, float &c2, float &c3, const A, const B) {                                  \
    name(c0, c1, c2, c3, a1, b1);                                                                                      \
    name(c0, c1, c2, c3, a2, b2);                                                                                      \
    name(c0, c1, c2, c3, a3, b3);                                                                                      \
  }
#define TE_MMA_REST                                                                                                    \
  TE_MMA_PIECES(te_mma_bf16, uint32_t (&a)[3][4], uint32_t (&b)[2], a[0], b, a[1], b, a[2], b)                         \
  TE_MMA_PIECES(te_mma_bf16, uint32_t (&a)[4], uint32_t (&b)[3][2], a, b[0], a, b[1], a, b[2])                         \
  TE_MMA_PIECES(te_mma_bf16, uint32_t (&a)[3][4], te_both<2> &b, a[0], b.x, a[1], b.finite, a[2], b.finite)            \
  TE_MMA_PIECES(te_mma_bf16, te_both<4> &a, uint32_t (&b)[3][2], a.x, b[0], a.finite, b[1], a.finite, b[2])            \
  TE_MMA_COLUMNS(te_mma_bf16)                                                                                          \
  TE_MMA_COLUMNS(te_mma_f16)                                                                                           \
  TE_MMA_COLUMNS(te_mma_tf32)                                                                                          \
  TE_MMA_EACH(te_mma_bf16, rows)                                                                                       \
  TE_MMA_EACH(te_mma_bf16, columns)                                                                                    \
  TE_MMA_EACH(te_mma_f16, rows)                                                                                        \
  TE_MMA_EACH(te_mma_f16, columns)                                                                                     \
  TE_INLINE void te_mma_f64_columns(double &c0, double &c1, const double (&a)[1], const double (&b)[1], bool first, bool second) { \
    double d0 = c0, d1 = c1;                                                                                           \
    te_mma_f64(d0, d1, a, b);                                                                                          \
    c0 = first ? d0 : c0, c1 = second ? d1 : c1;                                                                       \
  }                                                                                                                    \
  TE_INLINE void te_mma_f64_rows(double &c0, double &c1, const double (&a)[1], const double (&b)[1], bool only) {      \
    te_mma_f64_columns(c0, c1, a, b, only, only);                                                                      \
  }                                                                                                                    \
  template <int N> TE_INLINE void te_zeros_bf16(uint32_t &sum, const uint32_t (&x)[N]) {                               \
    for (int k = 0; k < N; ++k) te_zero_bf16(sum, x[k], 0);                                                             \
  }                                                                                                                    \
  template <int N> TE_INLINE void te_zeros_f16(uint32_t &sum, const uint32_t (&x)[N]) {                                \
    for (int k = 0; k < N; ++k) te_zero_f16(sum, x[k], 0);                                                              \
  }                                                                                                                    \
  template <int N> TE_INLINE void te_zeros_tf32(uint32_t &sum, const uint32_t (&x)[N]) {                               \
    for (int k = 0; k < N; ++k) sum = te_bits_of_float(te_float_of_bits(x[k]) * 0.0f + te_float_of_bits(sum));         \
  }                                                                                                                    \
  TE_INLINE void te_zeros_f64(double &sum, const double (&x)[1]) { sum = x[0] * 0.0 + sum; }                           \
  TE_INLINE bool te_odd(uint32_t sum) { return (sum & 0x7fff7fffu) != 0; }                                             \
  TE_INLINE bool te_odd(double sum) { return sum != 0.0; }                                                             \
  template <int N> TE_INLINE void te_tf32(uint32_t (&x)[N]) {                                                          \
    for (int k = 0; k < N; ++k) x[k] = te_tf32(te_float_of_bits(x[k]));                                                \
  }
#ifndef TE_HOST
TE_MMA_REST
#endif
TE_INLINE uint32_t te_pair(te_bf16 low, te_bf16 high) { return (uint32_t)low.bits | (uint32_t)high.bits << 16; }
TE_INLINE uint32_t te_pair(te_f16 low, te_f16 high) { return (uint32_t)low.bits | (uint32_t)high.bits << 16; }

// ------------------------------------------------------------------------------------- products of a warpgroup
// Four warps together (sm_90a alone): of the result, 64 rows, each warp has 16 below each other, spread over its lanes as those of a warp;
// `c` has of all columns the sums of row r, then of row r + 8. Both factors are read from shared memory, by themselves: rows of 128 bytes
// whose chunks of sixteen lie in another order from row to row, a row for each row of the result (column, of the second) or, TURNED, for
// each term of its sums; `te_tile` says where. What threads have written there they hand over by `te_hand_over`, and a barrier. Sums and tiles are
// the machine's between `te_group_enter` and `te_group_wait`; `te_group_wait_before` gives back the tiles of all products but the last batch.

#ifndef TE_HOST
template <int N> TE_INLINE void te_pinned(float (&c)[N]) {
#pragma unroll
  for (int k = 0; k < N; ++k) asm volatile("" : "+f"(c[k]) :: "memory");
}
TE_INLINE void te_ptx_group_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
template <int N> TE_INLINE void te_ptx_group_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }
TE_INLINE void te_group_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
TE_INLINE void te_hand_over() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
TE_INLINE void te_group_wait_before() { te_ptx_group_wait<1>(); }
template <int N> TE_INLINE void te_group_enter(float (&c)[N]) {
  te_pinned(c);
  te_ptx_group_fence();
}
template <int N> TE_INLINE void te_group_wait(float (&c)[N]) {
  te_ptx_group_wait<0>();
  te_pinned(c);
}
#define TE_SUMS_64                                                                                                     \
  "+f"(c[0]), "+f"(c[1]), "+f"(c[16]), "+f"(c[17]), "+f"(c[2]), "+f"(c[3]), "+f"(c[18]), "+f"(c[19]), "+f"(c[4]),      \
  "+f"(c[5]), "+f"(c[20]), "+f"(c[21]), "+f"(c[6]), "+f"(c[7]), "+f"(c[22]), "+f"(c[23]), "+f"(c[8]), "+f"(c[9]),      \
  "+f"(c[24]), "+f"(c[25]), "+f"(c[10]), "+f"(c[11]), "+f"(c[26]), "+f"(c[27]), "+f"(c[12]), "+f"(c[13]),              \
  "+f"(c[28]), "+f"(c[29]), "+f"(c[14]), "+f"(c[15]), "+f"(c[30]), "+f"(c[31])
#define TE_NAMES_64                                                                                                    \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "     \
  "%24, %25, %26, %27, %28, %29, %30, %31"
#define TE_SUMS_128                                                                                                    \
  "+f"(c[0]), "+f"(c[1]), "+f"(c[32]), "+f"(c[33]), "+f"(c[2]), "+f"(c[3]), "+f"(c[34]), "+f"(c[35]), "+f"(c[4]),      \
  "+f"(c[5]), "+f"(c[36]), "+f"(c[37]), "+f"(c[6]), "+f"(c[7]), "+f"(c[38]), "+f"(c[39]), "+f"(c[8]), "+f"(c[9]),      \
  "+f"(c[40]), "+f"(c[41]), "+f"(c[10]), "+f"(c[11]), "+f"(c[42]), "+f"(c[43]), "+f"(c[12]), "+f"(c[13]),              \
  "+f"(c[44]), "+f"(c[45]), "+f"(c[14]), "+f"(c[15]), "+f"(c[46]), "+f"(c[47]), "+f"(c[16]), "+f"(c[17]),              \
  "+f"(c[48]), "+f"(c[49]), "+f"(c[18]), "+f"(c[19]), "+f"(c[50]), "+f"(c[51]), "+f"(c[20]), "+f"(c[21]),              \
  "+f"(c[52]), "+f"(c[53]), "+f"(c[22]), "+f"(c[23]), "+f"(c[54]), "+f"(c[55]), "+f"(c[24]), "+f"(c[25]),              \
  "+f"(c[56]), "+f"(c[57]), "+f"(c[26]), "+f"(c[27]), "+f"(c[58]), "+f"(c[59]), "+f"(c[28]), "+f"(c[29]),              \
  "+f"(c[60]), "+f"(c[61]), "+f"(c[30]), "+f"(c[31]), "+f"(c[62]), "+f"(c[63])
#define TE_NAMES_128                                                                                                   \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "     \
  "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, "     \
  "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define TE_SUMS_256                                                                                                    \
  "+f"(c[0]), "+f"(c[1]), "+f"(c[64]), "+f"(c[65]), "+f"(c[2]), "+f"(c[3]), "+f"(c[66]), "+f"(c[67]), "+f"(c[4]),      \
  "+f"(c[5]), "+f"(c[68]), "+f"(c[69]), "+f"(c[6]), "+f"(c[7]), "+f"(c[70]), "+f"(c[71]), "+f"(c[8]), "+f"(c[9]),      \
  "+f"(c[72]), "+f"(c[73]), "+f"(c[10]), "+f"(c[11]), "+f"(c[74]), "+f"(c[75]), "+f"(c[12]), "+f"(c[13]),              \
  "+f"(c[76]), "+f"(c[77]), "+f"(c[14]), "+f"(c[15]), "+f"(c[78]), "+f"(c[79]), "+f"(c[16]), "+f"(c[17]),              \
  "+f"(c[80]), "+f"(c[81]), "+f"(c[18]), "+f"(c[19]), "+f"(c[82]), "+f"(c[83]), "+f"(c[20]), "+f"(c[21]),              \
  "+f"(c[84]), "+f"(c[85]), "+f"(c[22]), "+f"(c[23]), "+f"(c[86]), "+f"(c[87]), "+f"(c[24]), "+f"(c[25]),              \
  "+f"(c[88]), "+f"(c[89]), "+f"(c[26]), "+f"(c[27]), "+f"(c[90]), "+f"(c[91]), "+f"(c[28]), "+f"(c[29]),              \
  "+f"(c[92]), "+f"(c[93]), "+f"(c[30]), "+f"(c[31]), "+f"(c[94]), "+f"(c[95]), "+f"(c[32]), "+f"(c[33]),              \
  "+f"(c[96]), "+f"(c[97]), "+f"(c[34]), "+f"(c[35]), "+f"(c[98]), "+f"(c[99]), "+f"(c[36]), "+f"(c[37]),              \
  "+f"(c[100]), "+f"(c[101]), "+f"(c[38]), "+f"(c[39]), "+f"(c[102]), "+f"(c[103]), "+f"(c[40]), "+f"(c[41]),          \
  "+f"(c[104]), "+f"(c[105]), "+f"(c[42]), "+f"(c[43]), "+f"(c[106]), "+f"(c[107]), "+f"(c[44]), "+f"(c[45]),          \
  "+f"(c[108]), "+f"(c[109]), "+f"(c[46]), "+f"(c[47]), "+f"(c[110]), "+f"(c[111]), "+f"(c[48]), "+f"(c[49]),          \
  "+f"(c[112]), "+f"(c[113]), "+f"(c[50]), "+f"(c[51]), "+f"(c[114]), "+f"(c[115]), "+f"(c[52]), "+f"(c[53]),          \
  "+f"(c[116]), "+f"(c[117]), "+f"(c[54]), "+f"(c[55]), "+f"(c[118]), "+f"(c[119]), "+f"(c[56]), "+f"(c[57]),          \
  "+f"(c[120]), "+f"(c[121]), "+f"(c[58]), "+f"(c[59]), "+f"(c[122]), "+f"(c[123]), "+f"(c[60]), "+f"(c[61]),          \
  "+f"(c[124]), "+f"(c[125]), "+f"(c[62]), "+f"(c[63]), "+f"(c[126]), "+f"(c[127])
#define TE_NAMES_256                                                                                                   \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "     \
  "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, "     \
  "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, "     \
  "%68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, "     \
  "%90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, "     \
  "%110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define TE_GROUP_PRODUCT(name, types, shape, count, names, sums, rest)                                                  \
  template <bool A_TURNED, bool B_TURNED> TE_INLINE void name(float (&c)[count], uint64_t a, uint64_t b) {              \
    asm volatile("wgmma.mma_async.sync.aligned." shape ".f32." types " {" names "}, " rest ";"                          \
                 : sums : "l"(a), "l"(b), "n"(A_TURNED), "n"(B_TURNED) : "memory");                                     \
  }
TE_GROUP_PRODUCT(te_group_f16, "f16.f16", "m64n64k16", 32, TE_NAMES_64, TE_SUMS_64, "%32, %33, 1, 1, 1, %34, %35")
TE_GROUP_PRODUCT(te_group_bf16, "bf16.bf16", "m64n64k16", 32, TE_NAMES_64, TE_SUMS_64, "%32, %33, 1, 1, 1, %34, %35")
TE_GROUP_PRODUCT(te_group_f16, "f16.f16", "m64n128k16", 64, TE_NAMES_128, TE_SUMS_128, "%64, %65, 1, 1, 1, %66, %67")
TE_GROUP_PRODUCT(te_group_bf16, "bf16.bf16", "m64n128k16", 64, TE_NAMES_128, TE_SUMS_128, "%64, %65, 1, 1, 1, %66, %67")
TE_GROUP_PRODUCT(te_group_f16, "f16.f16", "m64n256k16", 128, TE_NAMES_256, TE_SUMS_256, "%128, %129, 1, 1, 1, %130, %131")
TE_GROUP_PRODUCT(te_group_bf16, "bf16.bf16", "m64n256k16", 128, TE_NAMES_256, TE_SUMS_256, "%128, %129, 1, 1, 1, %130, %131")
#endif
// Where a tile begins; bytes from one column of patterns of eight rows to the next, and from one row of them.
template <int LEAD, int STRIDE> TE_INLINE uint64_t te_tile(const void *start) {
  return (uint64_t)(te_ptx_shared(start) >> 4 & 0x3fffu) | (uint64_t)(LEAD >> 4) << 16 | (uint64_t)(STRIDE >> 4) << 32 | 1ull << 62;
}

// ------------------------------------------------------------------------------------------------------ integers
// Division rounds to minus infinity and gives 0 for a divisor of 0; shifts of any distance; powers wrap. Nothing traps.

template <class T> TE_INLINE T te_floordiv(T x, T y) {
  if (y == 0) return 0;
  if (T(-1) < T(0) && y == T(-1)) return T(0 - (uint64_t)x);
  T q = x / y;
  return (x % y != 0 && ((x < 0) != (y < 0))) ? q - 1 : q;
}
template <class T> TE_INLINE T te_mod(T x, T y) {
  if (y == 0 || (T(-1) < T(0) && y == T(-1))) return 0;
  T r = x % y;
  return (r != 0 && ((r < 0) != (y < 0))) ? r + y : r;
}
template <class T> TE_INLINE T te_shift_left(T x, T y, int bits) { return (uint64_t)y < (uint64_t)bits ? T((uint64_t)x << (int)y) : T(0); }
template <class T> TE_INLINE T te_shift_right(T x, T y, int bits) {
  if ((uint64_t)y < (uint64_t)bits) return x >> (int)y;
  return x < T(0) ? T(-1) : T(0);
}
template <class T> TE_INLINE T te_power(T x, T y) {
  if (y < T(0)) return x == T(1) ? T(1) : x == T(-1) ? (y % 2 == 0 ? T(1) : T(-1)) : T(0);
  uint64_t result = 1, square = (uint64_t)x, left = (uint64_t)y;
  for (; left; left >>= 1) {
    if (left & 1) result *= square;
    square *= square;
  }
  return T(result);
}
template <class T> TE_INLINE T te_sign(T x) { return T((x > T(0)) - (x < T(0))); }
template <class T> TE_INLINE T te_abs(T x) { return x < T(0) ? T(0 - (uint64_t)x) : x; }
template <class T> TE_INLINE T te_minimum(T x, T y) { return x < y ? x : y; }
template <class T> TE_INLINE T te_maximum(T x, T y) { return x > y ? x : y; }

// -------------------------------------------------------------------------------------------------------- floats
// Minimum and maximum propagate NaN; floor division and remainder are NumPy's; conversions to integers saturate.

TE_INLINE float te_minimum(float x, float y) { return x < y || x != x ? x : y; }
TE_INLINE float te_maximum(float x, float y) { return x > y || x != x ? x : y; }
TE_INLINE double te_minimum(double x, double y) { return x < y || x != x ? x : y; }
TE_INLINE double te_maximum(double x, double y) { return x > y || x != x ? x : y; }
TE_INLINE float te_sign(float x) { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x != x ? x : 0.0f; }
TE_INLINE double te_sign(double x) { return x > 0.0 ? 1.0 : x < 0.0 ? -1.0 : x != x ? x : 0.0; }

// x to the power n, not 0, by squares and products: those of the code for CPUs.
template <int n, class T> TE_INLINE T te_whole_power(T x) {
  if (n < 0) x = T(1) / x;
  T result = x;
  bool begun = n & 1;
  for (int left = (n < 0 ? -n : n) >> 1; left; left >>= 1) {
    x = x * x;
    if (left & 1) result = begun ? result * x : x, begun = true;
  }
  return result;
}
TE_INLINE float te_mod(float x, float y) {
  float r = fmodf(x, y);
  if (y == 0.0f) return r;
  if (r == 0.0f) return copysignf(0.0f, y);
  return (y < 0.0f) != (r < 0.0f) ? r + y : r;
}
TE_INLINE double te_mod(double x, double y) {
  double r = fmod(x, y);
  if (y == 0.0) return r;
  if (r == 0.0) return copysign(0.0, y);
  return (y < 0.0) != (r < 0.0) ? r + y : r;
}
TE_INLINE float te_floordiv(float x, float y) {
  if (y == 0.0f) return x / y;
  float r = fmodf(x, y), q = (x - r) / y;
  if (r != 0.0f && (y < 0.0f) != (r < 0.0f)) q -= 1.0f;
  if (q == 0.0f) return copysignf(0.0f, x / y);
  float whole = floorf(q);
  return q - whole > 0.5f ? whole + 1.0f : whole;
}
TE_INLINE double te_floordiv(double x, double y) {
  if (y == 0.0) return x / y;
  double r = fmod(x, y), q = (x - r) / y;
  if (r != 0.0 && (y < 0.0) != (r < 0.0)) q -= 1.0;
  if (q == 0.0) return copysign(0.0, x / y);
  double whole = floor(q);
  return q - whole > 0.5 ? whole + 1.0 : whole;
}
TE_INLINE float te_rsqrt(float x) { return 1.0f / sqrtf(x); }
TE_INLINE double te_rsqrt(double x) { return 1.0 / sqrt(x); }
// On exp(-|x|), which cannot overflow.
TE_INLINE float te_sigmoid(float x) {
  float small = expf(-fabsf(x));
  return x >= 0.0f ? 1.0f / (1.0f + small) : small / (1.0f + small);
}
TE_INLINE double te_sigmoid(double x) {
  double small = exp(-fabs(x));
  return x >= 0.0 ? 1.0 / (1.0 + small) : small / (1.0 + small);
}

template <class T, class F> TE_INLINE T te_saturate(F x, T least, T greatest) {
  // Beyond either end by comparison in the floating type; both ends are powers of two or round up to one.
  if (x != x) return T(0);
  if (x <= F(least)) return least;
  if (x >= F(greatest)) return greatest;
  return T(x);
}

// ---------------------------------------------------------------------------------------------------- atomics
// Updates of an element by many threads, each in one piece, in any order. Where the machine has the instruction it is used; else what
// was seen is exchanged for what follows from it until nobody has come between, and nothing is written that changes nothing.

template <class T> struct te_word { typedef unsigned int type; };  // the integer that holds the bits of a T
template <> struct te_word<double> { typedef unsigned long long type; };
template <> struct te_word<int64_t> { typedef unsigned long long type; };
template <> struct te_word<uint64_t> { typedef unsigned long long type; };
template <class T> TE_INLINE typename te_word<T>::type te_bits(T x) { return (typename te_word<T>::type)x; }
TE_SPECIAL unsigned int te_bits<float>(float x) { return te_bits_of_float(x); }
TE_SPECIAL unsigned long long te_bits<double>(double x) { return te_bits_of_double(x); }
template <class T> TE_INLINE T te_of_bits(typename te_word<T>::type bits) { return (T)bits; }
TE_SPECIAL float te_of_bits<float>(unsigned int bits) { return te_float_of_bits(bits); }
TE_SPECIAL double te_of_bits<double>(unsigned long long bits) { return te_double_of_bits(bits); }
// Sums and products of integers wrap.
template <class T> TE_INLINE T te_plus(T x, T y) { return (T)((typename te_word<T>::type)x + (typename te_word<T>::type)y); }
TE_SPECIAL float te_plus<float>(float x, float y) { return x + y; }
TE_SPECIAL double te_plus<double>(double x, double y) { return x + y; }
template <class T> TE_INLINE T te_times(T x, T y) { return (T)((typename te_word<T>::type)x * (typename te_word<T>::type)y); }
TE_SPECIAL float te_times<float>(float x, float y) { return x * y; }
TE_SPECIAL double te_times<double>(double x, double y) { return x * y; }

#define TE_ATOMIC(name, combine)                                                                                       \
  template <class T> TE_INLINE void name(T *place, T value) {                                                          \
    typedef typename te_word<T>::type word;                                                                            \
    word *at = reinterpret_cast<word *>(place), seen = atomicCAS(at, (word)0, (word)0);                                \
    for (;;) {                                                                                                         \
      const word next = te_bits<T>(combine(te_of_bits<T>(seen), value));                                               \
      const word found = next == seen ? seen : atomicCAS(at, seen, next);                                              \
      if (found == seen) return;                                                                                       \
      seen = found;                                                                                                    \
    }                                                                                                                  \
  }
TE_ATOMIC(te_atomic_add, te_plus)
TE_ATOMIC(te_atomic_mul, te_times)
TE_ATOMIC(te_atomic_maximum, te_maximum)
TE_ATOMIC(te_atomic_minimum, te_minimum)
#ifndef TE_HOST
#define TE_NATIVE(name, function, type, word)                                                                          \
  TE_SPECIAL void name<type>(type *place, type value) { function((word *)place, (word)value); }
TE_NATIVE(te_atomic_add, atomicAdd, float, float)
TE_NATIVE(te_atomic_add, atomicAdd, double, double)
TE_NATIVE(te_atomic_add, atomicAdd, int32_t, int)
TE_NATIVE(te_atomic_add, atomicAdd, uint32_t, unsigned int)
TE_NATIVE(te_atomic_add, atomicAdd, int64_t, unsigned long long)
TE_NATIVE(te_atomic_add, atomicAdd, uint64_t, unsigned long long)
TE_NATIVE(te_atomic_maximum, atomicMax, int32_t, int)
TE_NATIVE(te_atomic_maximum, atomicMax, uint32_t, unsigned int)
TE_NATIVE(te_atomic_maximum, atomicMax, int64_t, long long)
TE_NATIVE(te_atomic_maximum, atomicMax, uint64_t, unsigned long long)
TE_NATIVE(te_atomic_minimum, atomicMin, int32_t, int)
TE_NATIVE(te_atomic_minimum, atomicMin, uint32_t, unsigned int)
TE_NATIVE(te_atomic_minimum, atomicMin, int64_t, long long)
TE_NATIVE(te_atomic_minimum, atomicMin, uint64_t, unsigned long long)
#endif

// -------------------------------------------------------------------------------------------------------- checks
// The first check that fails is what the call reports; the thread that found it leaves, or the loop it is in where others wait for it.

struct te_error { int64_t check, index, extent; };

TE_INLINE bool te_outside(int64_t index, int64_t extent) { return (uint64_t)index >= (uint64_t)extent; }
TE_INLINE void te_fail(te_error *error, int check, int64_t index, int64_t extent) {
  if (atomicCAS((unsigned long long *)&error->check, 0ull, (unsigned long long)(check + 1)) == 0ull) {
    error->index = index;
    error->extent = extent;
  }
#ifdef TE_HOST
  te_host_refused();
#endif
}
