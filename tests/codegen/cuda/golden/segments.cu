// The gradient of a table by rows that data names.
// s['table_bar'].reorder('p', 'd', 'k')
// s['table_bar'].fuse('p', 'd')
// s['table_bar'].parallel('p_d')

extern "C" __global__ void __launch_bounds__(256) k0_table_offsets_table_order(
    const int64_t *__restrict__ ids,
    int64_t *__restrict__ table_offsets,
    int64_t *__restrict__ table_order,
    int64_t *__restrict__ table_offsets_keys,
    te_error *__restrict__ error) {
  for (int x0 = 0; x0 < 3; ++x0) {
    __syncthreads();
    {
      const int lane = (int)threadIdx.x;
      table_offsets[lane + x0 * 256] = 0;
    }
  }
  __syncthreads();
  for (int x0 = 768; x0 < 1001; ++x0) {
    if (threadIdx.x == 0) table_offsets[x0] = 0;
  }
  __syncthreads();
  for (int i = 0; i < 5000; ++i) {
    if (te_outside(ids[i], 1000)) { te_fail(error, 0, ids[i], 1000); return; }
    __syncthreads();
    if (threadIdx.x == 0) table_offsets_keys[i] = ids[i];
    __syncthreads();
    if (table_offsets_keys[i] < 999) {
      if (threadIdx.x == 0) table_offsets[(int)(int64_t)((uint64_t)table_offsets_keys[i] + (uint64_t)2)] = (int64_t)((uint64_t)table_offsets[(int)(int64_t)((uint64_t)table_offsets_keys[i] + (uint64_t)2)] + (uint64_t)1);
    }
  }
  __syncthreads();
  for (int v = 2; v < 1001; ++v) {
    __syncthreads();
    if (threadIdx.x == 0) table_offsets[v] = (int64_t)((uint64_t)table_offsets[v] + (uint64_t)table_offsets[v - 1]);
  }
  __syncthreads();
  for (int p = 0; p < 5000; ++p) {
    __syncthreads();
    if (threadIdx.x == 0) table_order[(int)table_offsets[(int)(int64_t)((uint64_t)table_offsets_keys[p] + (uint64_t)1)]] = p;
    __syncthreads();
    if (threadIdx.x == 0) table_offsets[(int)(int64_t)((uint64_t)table_offsets_keys[p] + (uint64_t)1)] = (int64_t)((uint64_t)table_offsets[(int)(int64_t)((uint64_t)table_offsets_keys[p] + (uint64_t)1)] + (uint64_t)1);
  }
}

extern "C" __global__ void __launch_bounds__(256) k1_table_bar(
    const float *__restrict__ g,
    float *__restrict__ table_bar,
    const int64_t *__restrict__ table_offsets,
    const int64_t *__restrict__ table_order) {
  const int p_d = (int)(blockIdx.x * 256u + threadIdx.x);
  if (p_d >= 64000) return;
  float table_bar_sum;
  table_bar_sum = 0.0f;
  for (int64_t k = table_offsets[p_d / 64]; k < table_offsets[p_d / 64 + 1]; ++k) {
    table_bar_sum = table_bar_sum + g[(int)table_order[(int)(int64_t)((uint64_t)table_offsets[p_d / 64] + (uint64_t)(int64_t)((uint64_t)k - (uint64_t)table_offsets[p_d / 64]))] * 64 + p_d % 64];
  }
  table_bar[p_d] = table_bar_sum;
}
