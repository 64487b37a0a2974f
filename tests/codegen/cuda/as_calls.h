// What instructions do, for the text of a GPU that runs on a CPU: each a function named after it, its operands in the order of the manual,
// made of what the shim has. An instruction that is not here does not compile.
#undef te_shuffle_down
#undef te_shuffle_from
#define te_arena_bytes te_host_arena

// Addresses in shared memory have 32 bits there.
static inline size_t __cvta_generic_to_shared(const void *place) { return te_host_shared(place); }
static inline char *te_asm_shared(uint32_t at) { return te_host_place(at); }
#define __uint_as_float ::te_float_of_bits
#define __float_as_uint ::te_bits_of_float
static inline double __longlong_as_double(long long bits) { return te_double_of_bits((uint64_t)bits); }
static inline long long __double_as_longlong(double x) { return (long long)te_bits_of_double(x); }

static inline void te_asm_cvt_f32_f16(float &d, uint16_t a) { d = te_ptx_f32_of_f16(a); }
static inline void te_asm_cvt_rn_f16_f32(uint16_t &d, float a) { d = te_ptx_f16_of_f32(a); }
static inline void te_asm_cvt_rn_f16_f64(uint16_t &d, double a) { d = te_ptx_f16_of_f64(a); }
static inline void te_asm_cvt_rn_bf16_f32(uint16_t &d, float a) { d = te_bf16_bits(a); }
static inline void te_asm_cvt_rna_tf32_f32(uint32_t &d, float a) { d = te_tf32(a); }

static inline void te_asm_cp_async_cg_shared_global(uint32_t to, const void *from, int bytes, int filled) {
  te_host_copy_async(te_asm_shared(to), from, bytes, filled);
}
#define te_asm_cp_async_ca_shared_global te_asm_cp_async_cg_shared_global
static inline void te_asm_cp_async_commit_group() { te_host_copies_commit(); }
static inline void te_asm_cp_async_wait_group(int last) { te_host_copies_wait(last); }
static inline void te_asm_cp_async_wait_all() { te_copies_wait_all(); }

#define TE_ASM_ZERO(instruction, function)                                                                              \
  static inline void te_asm_fma_rn_##instruction(uint32_t &d, uint32_t a, uint32_t b, uint32_t c) {                     \
    function(c, a, b), d = c;                                                                                           \
  }
TE_ASM_ZERO(bf16x2, te_zero_bf16)
TE_ASM_ZERO(f16x2, te_zero_f16)
#define TE_ASM_LDMATRIX(trans, turned)                                                                                  \
  static inline void te_asm_ldmatrix_sync_aligned_m8n8_x4##trans##_shared_b16(uint32_t &a, uint32_t &b, uint32_t &c, uint32_t &d, uint32_t at) { \
    uint32_t to[4];                                                                                                     \
    te_matrices<turned>(to, te_asm_shared(at));                                                                         \
    a = to[0], b = to[1], c = to[2], d = to[3];                                                                         \
  }                                                                                                                     \
  static inline void te_asm_ldmatrix_sync_aligned_m8n8_x2##trans##_shared_b16(uint32_t &a, uint32_t &b, uint32_t at) {   \
    uint32_t to[2];                                                                                                     \
    te_matrices<turned>(to, te_asm_shared(at));                                                                         \
    a = to[0], b = to[1];                                                                                               \
  }
TE_ASM_LDMATRIX(, false)
TE_ASM_LDMATRIX(_trans, true)

#define TE_ASM_MMA(instruction, function)                                                                               \
  static inline void te_asm_mma_sync_aligned_##instruction(float &d0, float &d1, float &d2, float &d3, uint32_t a0, uint32_t a1, uint32_t a2, \
                                                           uint32_t a3, uint32_t b0, uint32_t b1, float c0, float c1, float c2, float c3) { \
    const uint32_t a[4] = {a0, a1, a2, a3}, b[2] = {b0, b1};                                                            \
    function(c0, c1, c2, c3, a, b);                                                                                     \
    d0 = c0, d1 = c1, d2 = c2, d3 = c3;                                                                                 \
  }
TE_ASM_MMA(m16n8k16_row_col_f32_f16_f16_f32, te_mma_f16)
TE_ASM_MMA(m16n8k16_row_col_f32_bf16_bf16_f32, te_mma_bf16)
TE_ASM_MMA(m16n8k8_row_col_f32_tf32_tf32_f32, te_mma_tf32)
static inline void te_asm_mma_sync_aligned_m8n8k4_row_col_f64_f64_f64_f64(double &d0, double &d1, double a0, double b0, double c0, double c1) {
  const double a[1] = {a0}, b[1] = {b0};
  te_mma_f64(c0, c1, a, b);
  d0 = c0, d1 = c1;
}

// What only pins sums for the compiler does nothing.
static inline void te_asm_() {}
static inline void te_asm_fence_proxy_async_shared__cta() { te_hand_over(); }
static inline void te_asm_wgmma_fence_sync_aligned() { te_host_group_enter(); }
static inline void te_asm_wgmma_commit_group_sync_aligned() { te_group_commit(); }
static inline void te_asm_wgmma_wait_group_sync_aligned(int last) { te_host_group_wait(last); }
template <class T, class G, std::size_t... I> static inline void te_asm_group_of(const G &given, std::index_sequence<I...>) {
  constexpr int n = sizeof...(I);
  float *const sums[] = {&std::get<I>(given)...};
  const uint64_t a = std::get<n>(given), b = std::get<n + 1>(given);
  const bool a_turned = std::get<n + 5>(given), b_turned = std::get<n + 6>(given);
  if (a_turned && b_turned) te_group_product<T, true, true>(sums, a, b, 0);
  if (a_turned && !b_turned) te_group_product<T, true, false>(sums, a, b, 0);
  if (!a_turned && b_turned) te_group_product<T, false, true>(sums, a, b, 0);
  if (!a_turned && !b_turned) te_group_product<T, false, false>(sums, a, b, 0);
}
template <class T, int N, class... G> static inline void te_asm_group(G &&...given) {
  te_asm_group_of<T>(std::forward_as_tuple(given...), std::make_index_sequence<N / 2>{});
}
#define te_asm_wgmma_mma_async_sync_aligned_m64n64k16_f32_f16_f16 te_asm_group<::te_f16, 64>
#define te_asm_wgmma_mma_async_sync_aligned_m64n64k16_f32_bf16_bf16 te_asm_group<::te_bf16, 64>
#define te_asm_wgmma_mma_async_sync_aligned_m64n128k16_f32_f16_f16 te_asm_group<::te_f16, 128>
#define te_asm_wgmma_mma_async_sync_aligned_m64n128k16_f32_bf16_bf16 te_asm_group<::te_bf16, 128>
#define te_asm_wgmma_mma_async_sync_aligned_m64n256k16_f32_f16_f16 te_asm_group<::te_f16, 256>
#define te_asm_wgmma_mma_async_sync_aligned_m64n256k16_f32_bf16_bf16 te_asm_group<::te_bf16, 256>
