// The gradient of a table by rows that data names.
// s['table_bar'].part('k', 64)

extern "C" __global__ void __launch_bounds__(256) k0_table_offsets_table_order(
    const int64_t *__restrict__ ids,
    int64_t *__restrict__ table_offsets_keys,
    te_error *__restrict__ error) {
  const int i = (int)(blockIdx.x * 256u + threadIdx.x);
  if (i >= 5000) return;
  if (te_outside(ids[i], 1000)) { te_fail(error, 0, ids[i], 1000); return; }
  table_offsets_keys[i] = ids[i];
}

extern "C" __global__ void __launch_bounds__(128) k1_table_offsets_table_order(
    const int64_t *__restrict__ table_offsets_keys,
    int64_t *__restrict__ table_offsets_counts,
    te_error *__restrict__ error) {
  if (error->check) return;
  const int q = (int)blockIdx.x;
  __shared__ __align__(16) int64_t mine[32][130];
  {
    const int t = (int)threadIdx.x;
    for (int d = 0; d < 32; ++d) {
      mine[d][t] = 0;
    }
    {
      int64_t kept[16];
      #pragma unroll
      for (int k = 0; k < 16; ++k) {
        const int t1 = k + q * 2048 + t * 16;
        int64_t t0[1];
        te_load(t0, &table_offsets_keys[t1], t1 < 5000);
        kept[k] = t0[0];
      }
      #pragma unroll
      for (int k = 0; k < 16; ++k) {
        if (k + q * 2048 + t * 16 < 5000) {
          int key_1;
          key_1 = (int)kept[k];
          mine[key_1 % 32][t] = (int)mine[key_1 % 32][t] + 1;
        }
      }
    }
  }
  __syncthreads();
  if (const int d = (int)threadIdx.x; d < 32) {
    int total;
    total = 0;
    for (int t = 0; t < 128; ++t) {
      total = total + (int)mine[d][t];
    }
    table_offsets_counts[q * 32 + d] = total;
  }
}

extern "C" __global__ void __launch_bounds__(1024) k2_table_offsets_table_order(
    int64_t *__restrict__ table_offsets_counts,
    te_error *__restrict__ error) {
  if (error->check) return;
  const int q = (int)blockIdx.x;
  __shared__ __align__(16) int64_t parts[1024];
  int64_t parts_own;
  __shared__ __align__(16) int64_t totals[32];
  int64_t totals_own;
  {
    const int t = (int)threadIdx.x;
    int total_1;
    total_1 = 0;
    for (int c = te_minimum(3, t / 32); c < te_minimum(3, t / 32 + 1); ++c) {
      total_1 = total_1 + (int)table_offsets_counts[c * 32 + t % 32];
    }
    parts_own = total_1;
  }
  {
    const int x0_1 = (int)threadIdx.x;
    parts[x0_1] = (int)parts_own;
  }
  __syncthreads();
  if (const int d = (int)threadIdx.x; d < 32) {
    int total_1;
    total_1 = 0;
    for (int c = 0; c < 32; ++c) {
      int next_1;
      next_1 = (int)parts[c * 32 + d];
      parts[c * 32 + d] = total_1;
      total_1 = total_1 + next_1;
    }
    totals_own = total_1;
  }
  if (const int x0 = (int)threadIdx.x; x0 < 32) {
    totals[x0] = (int)totals_own;
  }
  __syncthreads();
  {
    const int t = (int)threadIdx.x;
    int total_1;
    total_1 = (int)parts[t];
    for (int s = 0; s < t % 32; ++s) {
      total_1 = total_1 + (int)totals[s];
    }
    for (int c = te_minimum(3, t / 32); c < te_minimum(3, t / 32 + 1); ++c) {
      int next_2;
      next_2 = (int)table_offsets_counts[c * 32 + t % 32];
      table_offsets_counts[c * 32 + t % 32] = total_1;
      total_1 = total_1 + next_2;
    }
  }
}

extern "C" __global__ void __launch_bounds__(128) k3_table_offsets_table_order(
    const int64_t *__restrict__ table_offsets_keys,
    int64_t *__restrict__ table_offsets_sorted_keys,
    int64_t *__restrict__ table_offsets_points,
    const int64_t *__restrict__ table_offsets_counts,
    te_error *__restrict__ error) {
  if (error->check) return;
  const int q = (int)blockIdx.x;
  __shared__ __align__(16) int64_t mine[32][130];
  {
    const int t = (int)threadIdx.x;
    for (int d = 0; d < 32; ++d) {
      mine[d][t] = 0;
    }
    {
      int64_t kept[16];
      #pragma unroll
      for (int k = 0; k < 16; ++k) {
        const int t1 = k + q * 2048 + t * 16;
        int64_t t0[1];
        te_load(t0, &table_offsets_keys[t1], t1 < 5000);
        kept[k] = t0[0];
      }
      #pragma unroll
      for (int k = 0; k < 16; ++k) {
        if (k + q * 2048 + t * 16 < 5000) {
          int key_1;
          key_1 = (int)kept[k];
          mine[key_1 % 32][t] = (int)mine[key_1 % 32][t] + 1;
        }
      }
    }
  }
  __syncthreads();
  if (const int d = (int)threadIdx.x; d < 32) {
    int total;
    total = (int)table_offsets_counts[q * 32 + d];
    for (int t = 0; t < 128; ++t) {
      int next;
      next = (int)mine[d][t];
      mine[d][t] = total;
      total = total + next;
    }
  }
  __syncthreads();
  {
    const int t = (int)threadIdx.x;
    {
      int64_t kept[16];
      #pragma unroll
      for (int k = 0; k < 16; ++k) {
        const int t3 = k + q * 2048 + t * 16;
        int64_t t2[1];
        te_load(t2, &table_offsets_keys[t3], t3 < 5000);
        kept[k] = t2[0];
      }
      #pragma unroll
      for (int k = 0; k < 16; ++k) {
        if (k + q * 2048 + t * 16 < 5000) {
          int key;
          int place;
          key = (int)kept[k];
          place = (int)mine[key % 32][t];
          table_offsets_sorted_keys[place] = key;
          table_offsets_points[place] = k + q * 2048 + t * 16;
          mine[key % 32][t] = place + 1;
        }
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(128) k4_table_offsets_table_order(
    const int64_t *__restrict__ table_offsets_sorted_keys,
    int64_t *__restrict__ table_offsets_counts,
    te_error *__restrict__ error) {
  if (error->check) return;
  const int q_1 = (int)blockIdx.x;
  __shared__ __align__(16) int64_t mine_1[32][130];
  {
    const int t_1 = (int)threadIdx.x;
    for (int d_1 = 0; d_1 < 32; ++d_1) {
      mine_1[d_1][t_1] = 0;
    }
    {
      int64_t kept_1[16];
      #pragma unroll
      for (int k_1 = 0; k_1 < 16; ++k_1) {
        const int t1 = k_1 + q_1 * 2048 + t_1 * 16;
        int64_t t0[1];
        te_load(t0, &table_offsets_sorted_keys[t1], t1 < 5000);
        kept_1[k_1] = t0[0];
      }
      #pragma unroll
      for (int k_1 = 0; k_1 < 16; ++k_1) {
        if (k_1 + q_1 * 2048 + t_1 * 16 < 5000) {
          int key_3;
          key_3 = (int)kept_1[k_1];
          mine_1[key_3 / 32][t_1] = (int)mine_1[key_3 / 32][t_1] + 1;
        }
      }
    }
  }
  __syncthreads();
  if (const int d_1 = (int)threadIdx.x; d_1 < 32) {
    int total_2;
    total_2 = 0;
    for (int t_1 = 0; t_1 < 128; ++t_1) {
      total_2 = total_2 + (int)mine_1[d_1][t_1];
    }
    table_offsets_counts[q_1 * 32 + d_1] = total_2;
  }
}

extern "C" __global__ void __launch_bounds__(1024) k5_table_offsets_table_order(
    int64_t *__restrict__ table_offsets_counts,
    te_error *__restrict__ error) {
  if (error->check) return;
  const int q_1 = (int)blockIdx.x;
  __shared__ __align__(16) int64_t parts_1[1024];
  int64_t parts_1_own;
  __shared__ __align__(16) int64_t totals_1[32];
  int64_t totals_1_own;
  {
    const int t_1 = (int)threadIdx.x;
    int total_3;
    total_3 = 0;
    for (int c_1 = te_minimum(3, t_1 / 32); c_1 < te_minimum(3, t_1 / 32 + 1); ++c_1) {
      total_3 = total_3 + (int)table_offsets_counts[c_1 * 32 + t_1 % 32];
    }
    parts_1_own = total_3;
  }
  {
    const int x0_1 = (int)threadIdx.x;
    parts_1[x0_1] = (int)parts_1_own;
  }
  __syncthreads();
  if (const int d_1 = (int)threadIdx.x; d_1 < 32) {
    int total_3;
    total_3 = 0;
    for (int c_1 = 0; c_1 < 32; ++c_1) {
      int next_4;
      next_4 = (int)parts_1[c_1 * 32 + d_1];
      parts_1[c_1 * 32 + d_1] = total_3;
      total_3 = total_3 + next_4;
    }
    totals_1_own = total_3;
  }
  if (const int x0 = (int)threadIdx.x; x0 < 32) {
    totals_1[x0] = (int)totals_1_own;
  }
  __syncthreads();
  {
    const int t_1 = (int)threadIdx.x;
    int total_3;
    total_3 = (int)parts_1[t_1];
    for (int s_1 = 0; s_1 < t_1 % 32; ++s_1) {
      total_3 = total_3 + (int)totals_1[s_1];
    }
    for (int c_1 = te_minimum(3, t_1 / 32); c_1 < te_minimum(3, t_1 / 32 + 1); ++c_1) {
      int next_5;
      next_5 = (int)table_offsets_counts[c_1 * 32 + t_1 % 32];
      table_offsets_counts[c_1 * 32 + t_1 % 32] = total_3;
      total_3 = total_3 + next_5;
    }
  }
}

extern "C" __global__ void __launch_bounds__(128) k6_table_offsets_table_order(
    int64_t *__restrict__ table_order,
    int64_t *__restrict__ table_offsets_sorted_keys,
    const int64_t *__restrict__ table_offsets_points,
    const int64_t *__restrict__ table_offsets_counts,
    te_error *__restrict__ error) {
  if (error->check) return;
  const int q_1 = (int)blockIdx.x;
  __shared__ __align__(16) int64_t mine_1[32][130];
  {
    const int t_1 = (int)threadIdx.x;
    for (int d_1 = 0; d_1 < 32; ++d_1) {
      mine_1[d_1][t_1] = 0;
    }
    {
      int64_t kept_1[16];
      #pragma unroll
      for (int k_1 = 0; k_1 < 16; ++k_1) {
        const int t1 = k_1 + q_1 * 2048 + t_1 * 16;
        int64_t t0[1];
        te_load(t0, &table_offsets_sorted_keys[t1], t1 < 5000);
        kept_1[k_1] = t0[0];
      }
      #pragma unroll
      for (int k_1 = 0; k_1 < 16; ++k_1) {
        if (k_1 + q_1 * 2048 + t_1 * 16 < 5000) {
          int key_3;
          key_3 = (int)kept_1[k_1];
          mine_1[key_3 / 32][t_1] = (int)mine_1[key_3 / 32][t_1] + 1;
        }
      }
    }
  }
  __syncthreads();
  if (const int d_1 = (int)threadIdx.x; d_1 < 32) {
    int total_2;
    total_2 = (int)table_offsets_counts[q_1 * 32 + d_1];
    for (int t_1 = 0; t_1 < 128; ++t_1) {
      int next_3;
      next_3 = (int)mine_1[d_1][t_1];
      mine_1[d_1][t_1] = total_2;
      total_2 = total_2 + next_3;
    }
  }
  __syncthreads();
  {
    const int t_1 = (int)threadIdx.x;
    {
      int64_t kept_1[16];
      int64_t before[16];
      #pragma unroll
      for (int k_1 = 0; k_1 < 16; ++k_1) {
        const int t3 = k_1 + q_1 * 2048 + t_1 * 16;
        int64_t t2[1];
        te_load(t2, &table_offsets_sorted_keys[t3], t3 < 5000);
        kept_1[k_1] = t2[0];
      }
      #pragma unroll
      for (int k_1 = 0; k_1 < 16; ++k_1) {
        const int t5 = k_1 + q_1 * 2048 + t_1 * 16;
        int64_t t4[1];
        te_load(t4, &table_offsets_points[t5], t5 < 5000);
        before[k_1] = t4[0];
      }
      #pragma unroll
      for (int k_1 = 0; k_1 < 16; ++k_1) {
        if (k_1 + q_1 * 2048 + t_1 * 16 < 5000) {
          int key_2;
          int place_1;
          key_2 = (int)kept_1[k_1];
          place_1 = (int)mine_1[key_2 / 32][t_1];
          table_offsets_sorted_keys[5000 + place_1] = key_2;
          table_order[place_1] = (int)before[k_1];
          mine_1[key_2 / 32][t_1] = place_1 + 1;
        }
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(256) k7_table_offsets_table_order(
    int64_t *__restrict__ table_offsets,
    const int64_t *__restrict__ table_offsets_sorted_keys) {
  const int v = (int)(blockIdx.x * 256u + threadIdx.x);
  if (v >= 1001) return;
  int low;
  int high;
  low = 0;
  high = 5000;
  for (int step = 0; step < 13; ++step) {
    if (low < high) {
      if ((int)table_offsets_sorted_keys[(low + high) / 2 + 5000] < v) {
        low = (low + high) / 2 + 1;
      } else {
        high = (low + high) / 2;
      }
    }
  }
  table_offsets[v] = low;
}

extern "C" __global__ void __launch_bounds__(32) k8_table_bar_parts(
    const int64_t *__restrict__ ids,
    const float *__restrict__ g,
    const int64_t *__restrict__ table_offsets,
    const int64_t *__restrict__ table_order,
    float *__restrict__ table_bar_parts,
    te_error *__restrict__ error) {
  if (error->check) return;
  const int p_1_d = (int)(blockIdx.x * 32u + threadIdx.x);
  if (p_1_d / 64 * 64 + 63 < (int)table_offsets[1000] && ids[(int)table_order[p_1_d / 64 * 64]] == ids[(int)table_order[p_1_d / 64 * 64 + 63]]) {
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

extern "C" __global__ void __launch_bounds__(256) k9_table_bar(
    const float *__restrict__ g,
    float *__restrict__ table_bar,
    const int64_t *__restrict__ table_offsets,
    const int64_t *__restrict__ table_order,
    const float *__restrict__ table_bar_parts,
    te_error *__restrict__ error) {
  if (error->check) return;
  const int p_d = (int)(blockIdx.x * 256u + threadIdx.x);
  float table_bar_sum;
  table_bar_sum = 0.0f;
  for (int k_1 = (int)table_offsets[p_d / 64]; k_1 < te_minimum((int)table_offsets[p_d / 64 + 1], ((int)table_offsets[p_d / 64] + 63) / 64 * 64); ++k_1) {
    table_bar_sum = table_bar_sum + g[(int)table_order[k_1] * 64 + p_d % 64];
  }
  float table_bar_sum_1;
  table_bar_sum_1 = 0.0f;
  for (int p_1 = ((int)table_offsets[p_d / 64] + 63) / 64; p_1 < (int)table_offsets[p_d / 64 + 1] / 64; ++p_1) {
    table_bar_sum_1 = table_bar_sum_1 + table_bar_parts[p_1 * 64 + p_d % 64];
  }
  float table_bar_sum_2;
  table_bar_sum_2 = 0.0f;
  for (int k_2 = te_maximum(((int)table_offsets[p_d / 64] + 63) / 64 * 64, (int)table_offsets[p_d / 64 + 1] / 64 * 64); k_2 < (int)table_offsets[p_d / 64 + 1]; ++k_2) {
    table_bar_sum_2 = table_bar_sum_2 + g[(int)table_order[k_2] * 64 + p_d % 64];
  }
  table_bar[p_d] = table_bar_sum + table_bar_sum_1 + table_bar_sum_2;
}
