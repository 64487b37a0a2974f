// In place of CUDA: the words that emitted kernels use, for a C++ compiler and a CPU. A thread of CUDA is a fiber of the run-time
// library (runtime.cpp), which keeps all state; this header only names it. The kernel's text is the same as on a GPU.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <cstddef>
#include <tuple>
#include <utility>

#define TE_HOST 1
#define TE_INLINE static inline
#define TE_SPECIAL template <> inline
#define __global__ __attribute__((visibility("default")))
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
// In a section of its own, so that the run-time knows its extent and can poison it before each block.
#define __shared__ static __attribute__((section("te_shared"), aligned(16)))

struct te_index3 { unsigned x, y, z; };
struct te_place { te_index3 thread, block, block_size, grid_size; };

extern "C" {
extern te_place *te_here;
extern char *te_host_arena;  // memory of the block that its launch asked for
void te_host_barrier(int line);
void te_host_warp_barrier(int line);
int te_host_vote(int value, int line);
void te_host_collective(void (*combine)(void **), void *operands, int line);
void te_host_touch(const void *address, int bytes, int kind);
void te_host_refused();
void te_host_copy_async(void *to, const void *from, int bytes, int filled);
void te_host_copies_commit();
void te_host_copies_wait(int allowed);
unsigned te_host_shared(const void *place);
char *te_host_place(unsigned address);
void te_host_hand_over();
void te_host_group_enter();
void te_host_group_product(const struct te_group_work *work, int line);
void te_host_group_commit();
void te_host_group_wait(int batches);
uint64_t te_host_shuffle(unsigned mask, uint64_t value, int lane, int line);
uint64_t te_host_exchange(void *address, int size, uint64_t compare, uint64_t value);
extern char __start_te_shared[] __attribute__((weak, visibility("hidden")));
extern char __stop_te_shared[] __attribute__((weak, visibility("hidden")));
}

// A product of a warpgroup: what it does with the sums of all lanes (`count` of each, one lane after the other) and both descriptors,
// which chunks of shared memory it reads, the sums of this lane, the descriptors.
struct te_group_work {
  void (*run)(float **sums, uint64_t a, uint64_t b);
  void (*chunks)(uint64_t a, uint64_t b, void (*visit)(char *chunk));
  float *const *sums;
  int count;
  uint64_t a, b;
};

template <class T> static inline T &te_arena(int at) { return *(T *)(te_host_arena + at); }

#define threadIdx (te_here->thread)
#define blockIdx (te_here->block)
#define blockDim (te_here->block_size)
#define gridDim (te_here->grid_size)
#define __syncthreads() te_host_barrier(__LINE__)
#define __syncwarp() te_host_warp_barrier(__LINE__)
#define __syncthreads_or(value) te_host_vote(value, __LINE__)

template <class T> static inline T te_host_shuffled(unsigned mask, T value, int lane, int line) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = te_host_shuffle(mask, bits, lane, line);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}
#define TE_LANE ((int)((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) & 31u))
#define __shfl_sync(mask, value, lane) te_host_shuffled(mask, value, (lane) & 31, __LINE__)
#define __shfl_xor_sync(mask, value, distance) te_host_shuffled(mask, value, TE_LANE ^ (distance), __LINE__)
#define __shfl_down_sync(mask, value, distance) \
  te_host_shuffled(mask, value, TE_LANE + (distance) > 31 ? TE_LANE : TE_LANE + (distance), __LINE__)
static inline int te_host_any(unsigned mask, int value, int line) {
  for (int distance = 16; distance; distance >>= 1) value |= te_host_shuffled(mask, value, TE_LANE ^ distance, line);
  return value;
}
#define __any_sync(mask, value) te_host_any(mask, value, __LINE__)

#define te_shuffle_down(value, distance) __shfl_down_sync(0xffffffffu, value, distance)
#define te_shuffle_from(value, lane) __shfl_sync(0xffffffffu, value, lane)

static inline unsigned long long atomicCAS(unsigned long long *address, unsigned long long compare, unsigned long long value) {
  return te_host_exchange(address, 8, compare, value);
}
static inline unsigned atomicCAS(unsigned *address, unsigned compare, unsigned value) {
  return (unsigned)te_host_exchange(address, 4, compare, value);
}

// An addition that no other thread comes between.
template <class T> __attribute__((no_sanitize("thread"))) static inline T atomicAdd(T *address, T value) {
  te_host_touch(address, sizeof(T), 2);
  T old = *address;
  *address = old + value;
  return old;
}

template <int B> static inline void te_copy_async(void *to, const void *from, int filled = B) {
  static_assert(te_copies(B), "no asynchronous copy has so many bytes");
  te_host_copy_async(to, from, B, filled);
}
static inline void te_copies_commit() { te_host_copies_commit(); }
static inline void te_copies_wait_all() { te_host_copies_commit(); te_host_copies_wait(0); }
template <int N> static inline void te_copies_wait() { te_host_copies_wait(N); }

static inline uint32_t te_ptx_shared(const void *place) { return te_host_shared(place); }
static inline void te_hand_over() { te_host_hand_over(); }
static inline void te_group_commit() { te_host_group_commit(); }
template <int N> static inline void te_group_enter(float (&)[N]) { te_host_group_enter(); }
template <int N> static inline void te_group_wait(float (&)[N]) { te_host_group_wait(0); }
static inline void te_group_wait_before() { te_host_group_wait(1); }

static inline float te_float_of_bits(uint32_t bits) { float x; std::memcpy(&x, &bits, 4); return x; }
static inline uint32_t te_bits_of_float(float x) { uint32_t bits; std::memcpy(&bits, &x, 4); return bits; }
static inline double te_double_of_bits(uint64_t bits) { double x; std::memcpy(&x, &bits, 8); return x; }
static inline uint64_t te_bits_of_double(double x) { uint64_t bits; std::memcpy(&bits, &x, 8); return bits; }

// float16 by arithmetic on bits: exact one way, to nearest even the other.
static inline float te_ptx_f32_of_f16(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 31u, digits = h & 0x3ffu;
  if (exponent == 31) return te_float_of_bits(sign | 0x7f800000u | (digits << 13));
  if (exponent == 0) return std::copysign(std::ldexp((float)digits, -24), te_float_of_bits(sign));
  return te_float_of_bits(sign | ((exponent + 112) << 23) | (digits << 13));
}
static inline uint16_t te_ptx_f16_of_f64(double x) {
  uint64_t bits;
  std::memcpy(&bits, &x, 8);
  uint16_t sign = (uint16_t)(bits >> 48) & 0x8000u;
  if (x != x) return sign | 0x7e00u;
  double size = std::fabs(x);
  if (size >= 65520.0) return sign | 0x7c00u;
  if (size < std::ldexp(1.0, -14)) return sign | (uint16_t)std::nearbyint(std::ldexp(size, 24));
  int exponent;
  double digits = std::frexp(size, &exponent);  // in [0.5, 1)
  int whole = (int)std::nearbyint(std::ldexp(digits, 11));  // 1024 to 2048, which carries into the exponent by itself
  return sign | (uint16_t)(((exponent + 14) << 10) + (whole - 1024));
}
static inline uint16_t te_ptx_f16_of_f32(float x) { return te_ptx_f16_of_f64((double)x); }

// An address that a GPU would fault at is reported; a CPU does not mind.
extern "C" void te_host_misaligned(const void *address, int size, int line);
template <class T, int N> static inline void te_load(T (&to)[N], const T *from) {
  if ((uintptr_t)from % sizeof(to)) te_host_misaligned(from, sizeof(to), 0);
  te_host_touch(from, sizeof(to), 0);
  std::memcpy(to, from, sizeof(to));
}
template <class T, int N> static inline void te_load(T (&to)[N], const T *from, bool is) {
  if (is)
    te_load(to, from);
  else
    std::memset(to, 0, sizeof(to));
}
template <class T, int N> static inline void te_store(T *to, const T (&from)[N]) {
  if ((uintptr_t)to % sizeof(from)) te_host_misaligned(to, sizeof(from), 0);
  te_host_touch(to, sizeof(from), 1);
  std::memcpy(to, from, sizeof(from));
}

// The arguments as cuLaunchKernel takes them: a pointer to each.
#define TE_UNCHECKED __attribute__((no_sanitize("thread"), noinline))
template <class... A, std::size_t... I> TE_UNCHECKED static void te_call(void (*kernel)(A...), void **arguments, std::index_sequence<I...>) {
  kernel(*static_cast<std::remove_const_t<A> *>(arguments[I])...);
}
#define TE_ENTRY(name)                                                                                                    \
  template <class... A> TE_UNCHECKED static void te_unpack_##name(void (*kernel)(A...), void **arguments) {                            \
    te_call(kernel, arguments, std::index_sequence_for<A...>{});                                                          \
  }                                                                                                                       \
  extern "C" __attribute__((visibility("default"))) void te_enter_##name(void **arguments) { te_unpack_##name(&name, arguments); } 
extern "C" __attribute__((visibility("default"))) void te_shared_extent(char **start, char **stop) {
  *start = __start_te_shared;
  *stop = __stop_te_shared;
}
