// The gradient of a table by rows that data names.
// s['table_bar'].part('k', 64)
// s['table_bar_parts'].reorder('p_1', 'd', 'i')
// s['table_bar_parts'].fuse('p_1', 'd')
// s['table_bar_parts'].parallel('p_1_d')
// s['table_bar'].reorder('p', 'd', 'k_1', 'p_1', 'k_2')
// s['table_bar'].fuse('p', 'd')
// s['table_bar'].parallel('p_d')

extern "C" __global__ void __launch_bounds__(256) k0_table_offsets_table_order(
    int64_t *__restrict__ table_offsets_keys) {
  const int p = (int)(blockIdx.x * 256u + threadIdx.x);
  if (p >= 5000) return;
  table_offsets_keys[p] = -1;
}

extern "C" __global__ void __launch_bounds__(256) k1_table_offsets_table_order(
    const int64_t *__restrict__ ids,
    int64_t *__restrict__ table_offsets_keys,
    te_error *__restrict__ error) {
  const int i = (int)(blockIdx.x * 256u + threadIdx.x);
  if (i >= 5000) return;
  if (te_outside(ids[i], 1000)) { te_fail(error, 0, ids[i], 1000); return; }
  table_offsets_keys[i] = ids[i];
}

extern "C" __global__ void __launch_bounds__(256) k2_table_offsets_table_order(
    const int64_t *__restrict__ table_offsets_keys,
    int64_t *__restrict__ table_offsets_counts) {
  const int q = (int)(blockIdx.x * 256u + threadIdx.x);
  if (q >= 32) return;
  for (int d = 0; d < 1024; ++d) {
    table_offsets_counts[q * 1024 + d] = 0;
  }
  for (int p = q * 157; p < te_minimum(5000, q * 157 + 157); ++p) {
    table_offsets_counts[q * 1024 + (int)(table_offsets_keys[p] < 0 ? 1000ll : table_offsets_keys[p])] = (int64_t)((uint64_t)table_offsets_counts[q * 1024 + (int)(table_offsets_keys[p] < 0 ? 1000ll : table_offsets_keys[p])] + (uint64_t)1);
  }
}

extern "C" __global__ void __launch_bounds__(256) k3_table_offsets_table_order(
    int64_t *__restrict__ table_offsets_counts,
    int64_t *__restrict__ table_offsets_starts) {
  const int q = (int)(blockIdx.x * 256u + threadIdx.x);
  int64_t total;
  total = 0;
  for (int c = 0; c < 32; ++c) {
    int64_t now;
    now = table_offsets_counts[c * 1024 + q];
    table_offsets_counts[c * 1024 + q] = total;
    total = (int64_t)((uint64_t)total + (uint64_t)now);
  }
  table_offsets_starts[q + 1] = total;
}

extern "C" __global__ void __launch_bounds__(1) k4_table_offsets_table_order(
    int64_t *__restrict__ table_offsets_starts) {
  int64_t total_1;
  total_1 = 0;
  table_offsets_starts[0] = 0;
  for (int d = 0; d < 1024; ++d) {
    total_1 = (int64_t)((uint64_t)total_1 + (uint64_t)table_offsets_starts[d + 1]);
    table_offsets_starts[d + 1] = total_1;
  }
}

extern "C" __global__ void __launch_bounds__(256) k5_table_offsets_table_order(
    int64_t *__restrict__ table_order,
    const int64_t *__restrict__ table_offsets_keys,
    int64_t *__restrict__ table_offsets_sorted_keys,
    int64_t *__restrict__ table_offsets_counts,
    const int64_t *__restrict__ table_offsets_starts) {
  const int q = (int)(blockIdx.x * 256u + threadIdx.x);
  if (q >= 32) return;
  for (int p = q * 157; p < te_minimum(5000, q * 157 + 157); ++p) {
    table_offsets_sorted_keys[(int)(int64_t)((uint64_t)table_offsets_starts[(int)(table_offsets_keys[p] < 0 ? 1000ll : table_offsets_keys[p])] + (uint64_t)table_offsets_counts[q * 1024 + (int)(table_offsets_keys[p] < 0 ? 1000ll : table_offsets_keys[p])])] = table_offsets_keys[p] < 0 ? 1000ll : table_offsets_keys[p];
    table_order[(int)(int64_t)((uint64_t)table_offsets_starts[(int)(table_offsets_keys[p] < 0 ? 1000ll : table_offsets_keys[p])] + (uint64_t)table_offsets_counts[q * 1024 + (int)(table_offsets_keys[p] < 0 ? 1000ll : table_offsets_keys[p])])] = p;
    table_offsets_counts[q * 1024 + (int)(table_offsets_keys[p] < 0 ? 1000ll : table_offsets_keys[p])] = (int64_t)((uint64_t)table_offsets_counts[q * 1024 + (int)(table_offsets_keys[p] < 0 ? 1000ll : table_offsets_keys[p])] + (uint64_t)1);
  }
}

extern "C" __global__ void __launch_bounds__(256) k6_table_offsets_table_order(
    int64_t *__restrict__ table_offsets,
    const int64_t *__restrict__ table_offsets_sorted_keys) {
  const int v = (int)(blockIdx.x * 256u + threadIdx.x);
  if (v >= 1001) return;
  int64_t low;
  int64_t high;
  low = 0;
  high = 5000;
  for (int step = 0; step < 13; ++step) {
    if (low < high) {
      if (table_offsets_sorted_keys[(int)te_floordiv<int64_t>((int64_t)((uint64_t)low + (uint64_t)high), 2ll)] < v) {
        low = (int64_t)((uint64_t)te_floordiv<int64_t>((int64_t)((uint64_t)low + (uint64_t)high), 2ll) + (uint64_t)1);
      } else {
        high = te_floordiv<int64_t>((int64_t)((uint64_t)low + (uint64_t)high), 2ll);
      }
    }
  }
  table_offsets[v] = low;
}

extern "C" __global__ void __launch_bounds__(256) k7_table_bar_parts(
    const int64_t *__restrict__ ids,
    const float *__restrict__ g,
    const int64_t *__restrict__ table_offsets,
    const int64_t *__restrict__ table_order,
    float *__restrict__ table_bar_parts) {
  const int p_1_d = (int)(blockIdx.x * 256u + threadIdx.x);
  if (p_1_d >= 4992) return;
  if (p_1_d / 64 * 64 + 63 < table_offsets[1000] && ids[(int)table_order[p_1_d / 64 * 64]] == ids[(int)table_order[p_1_d / 64 * 64 + 63]]) {
    float table_bar_parts_sum;
    table_bar_parts_sum = 0.0f;
    for (int i = 0; i < 64; ++i) {
      table_bar_parts_sum = table_bar_parts_sum + g[(int)table_order[i + p_1_d / 64 * 64] * 64 + p_1_d % 64];
    }
    table_bar_parts[p_1_d] = table_bar_parts_sum;
  } else {
    table_bar_parts[p_1_d] = 0.0f;
  }
}

extern "C" __global__ void __launch_bounds__(256) k8_table_bar(
    const float *__restrict__ g,
    float *__restrict__ table_bar,
    const int64_t *__restrict__ table_offsets,
    const int64_t *__restrict__ table_order,
    const float *__restrict__ table_bar_parts) {
  const int p_d = (int)(blockIdx.x * 256u + threadIdx.x);
  float table_bar_sum;
  table_bar_sum = 0.0f;
  for (int64_t k_1 = table_offsets[p_d / 64]; k_1 < te_minimum<int64_t>(table_offsets[p_d / 64 + 1], (int64_t)((uint64_t)te_floordiv<int64_t>((int64_t)((uint64_t)table_offsets[p_d / 64] + (uint64_t)63), 64ll) * (uint64_t)64)); ++k_1) {
    table_bar_sum = table_bar_sum + g[(int)table_order[(int)k_1] * 64 + p_d % 64];
  }
  float table_bar_sum_1;
  table_bar_sum_1 = 0.0f;
  for (int64_t p_1 = te_floordiv<int64_t>((int64_t)((uint64_t)table_offsets[p_d / 64] + (uint64_t)63), 64ll); p_1 < te_floordiv<int64_t>(table_offsets[p_d / 64 + 1], 64ll); ++p_1) {
    table_bar_sum_1 = table_bar_sum_1 + table_bar_parts[p_1 * 64 + p_d % 64];
  }
  float table_bar_sum_2;
  table_bar_sum_2 = 0.0f;
  for (int64_t k_2 = te_maximum<int64_t>((int64_t)((uint64_t)te_floordiv<int64_t>((int64_t)((uint64_t)table_offsets[p_d / 64] + (uint64_t)63), 64ll) * (uint64_t)64), (int64_t)((uint64_t)te_floordiv<int64_t>(table_offsets[p_d / 64 + 1], 64ll) * (uint64_t)64)); k_2 < table_offsets[p_d / 64 + 1]; ++k_2) {
    table_bar_sum_2 = table_bar_sum_2 + g[(int)table_order[(int)k_2] * 64 + p_d % 64];
  }
  table_bar[p_d] = table_bar_sum + table_bar_sum_1 + table_bar_sum_2;
}
