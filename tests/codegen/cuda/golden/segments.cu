// The gradient of a table by rows that data names.
// s['table_bar'].part('k', 64)

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

extern "C" __global__ void __launch_bounds__(32) k2_table_offsets_table_order(
    const int64_t *__restrict__ table_offsets_keys,
    int64_t *__restrict__ table_offsets_counts,
    te_error *__restrict__ error) {
  if (error->check) return;
  const int q = (int)(blockIdx.x * 32u + threadIdx.x);
  if (q >= 78) return;
  for (int d = 0; d < 32; ++d) {
    table_offsets_counts[q * 32 + d] = 0;
  }
  for (int p = te_minimum(5000, q * 65); p < te_minimum(5000, q * 65 + 65); ++p) {
    int key;
    key = (int)table_offsets_keys[p] < 0 ? 1000 : (int)table_offsets_keys[p];
    table_offsets_counts[q * 32 + key % 32] = (int)table_offsets_counts[q * 32 + key % 32] + 1;
  }
}

extern "C" __global__ void __launch_bounds__(32) k3_table_offsets_table_order(
    const int64_t *__restrict__ table_offsets_counts,
    int64_t *__restrict__ table_offsets_sums,
    te_error *__restrict__ error) {
  if (error->check) return;
  const int q = (int)(blockIdx.x * 32u + threadIdx.x);
  int total;
  total = 0;
  for (int c = q / 32 * 9; c < te_minimum(78, q / 32 * 9 + 9); ++c) {
    total = total + (int)table_offsets_counts[c * 32 + q % 32];
  }
  table_offsets_sums[q] = total;
}

extern "C" __global__ void __launch_bounds__(256) k4_table_offsets_table_order(
    const int64_t *__restrict__ table_offsets_sums,
    int64_t *__restrict__ table_offsets_begins,
    int64_t *__restrict__ table_offsets_totals,
    te_error *__restrict__ error) {
  if (error->check) return;
  const int q = (int)(blockIdx.x * 256u + threadIdx.x);
  if (q >= 32) return;
  int total_1;
  total_1 = 0;
  for (int c = 0; c < 9; ++c) {
    table_offsets_begins[c * 32 + q] = total_1;
    total_1 = total_1 + (int)table_offsets_sums[c * 32 + q];
  }
  table_offsets_totals[q] = total_1;
}

extern "C" __global__ void __launch_bounds__(32) k5_table_offsets_table_order(
    const int64_t *__restrict__ table_offsets_counts,
    int64_t *__restrict__ table_offsets_places,
    const int64_t *__restrict__ table_offsets_begins,
    const int64_t *__restrict__ table_offsets_totals,
    te_error *__restrict__ error) {
  if (error->check) return;
  const int q = (int)(blockIdx.x * 32u + threadIdx.x);
  int total_2;
  total_2 = (int)table_offsets_begins[q];
  for (int d = 0; d < q % 32; ++d) {
    total_2 = total_2 + (int)table_offsets_totals[d];
  }
  for (int c = q / 32 * 9; c < te_minimum(78, q / 32 * 9 + 9); ++c) {
    table_offsets_places[c * 32 + q % 32] = total_2;
    total_2 = total_2 + (int)table_offsets_counts[c * 32 + q % 32];
  }
}

extern "C" __global__ void __launch_bounds__(32) k6_table_offsets_table_order(
    const int64_t *__restrict__ table_offsets_keys,
    int64_t *__restrict__ table_offsets_sorted_keys,
    int64_t *__restrict__ table_offsets_points,
    int64_t *__restrict__ table_offsets_places,
    te_error *__restrict__ error) {
  if (error->check) return;
  const int q = (int)(blockIdx.x * 32u + threadIdx.x);
  if (q >= 78) return;
  for (int p = te_minimum(5000, q * 65); p < te_minimum(5000, q * 65 + 65); ++p) {
    int key;
    int place;
    key = (int)table_offsets_keys[p] < 0 ? 1000 : (int)table_offsets_keys[p];
    place = (int)table_offsets_places[q * 32 + key % 32];
    table_offsets_sorted_keys[place] = key;
    table_offsets_points[place] = p;
    table_offsets_places[q * 32 + key % 32] = place + 1;
  }
}

extern "C" __global__ void __launch_bounds__(32) k7_table_offsets_table_order(
    const int64_t *__restrict__ table_offsets_sorted_keys,
    int64_t *__restrict__ table_offsets_counts,
    te_error *__restrict__ error) {
  if (error->check) return;
  const int q_1 = (int)(blockIdx.x * 32u + threadIdx.x);
  if (q_1 >= 78) return;
  for (int d_1 = 0; d_1 < 32; ++d_1) {
    table_offsets_counts[q_1 * 32 + d_1] = 0;
  }
  for (int p_1 = te_minimum(5000, q_1 * 65); p_1 < te_minimum(5000, q_1 * 65 + 65); ++p_1) {
    int key_1;
    key_1 = (int)table_offsets_sorted_keys[p_1];
    table_offsets_counts[q_1 * 32 + key_1 / 32] = (int)table_offsets_counts[q_1 * 32 + key_1 / 32] + 1;
  }
}

extern "C" __global__ void __launch_bounds__(32) k8_table_offsets_table_order(
    const int64_t *__restrict__ table_offsets_counts,
    int64_t *__restrict__ table_offsets_sums,
    te_error *__restrict__ error) {
  if (error->check) return;
  const int q_1 = (int)(blockIdx.x * 32u + threadIdx.x);
  int total_3;
  total_3 = 0;
  for (int c_1 = q_1 / 32 * 9; c_1 < te_minimum(78, q_1 / 32 * 9 + 9); ++c_1) {
    total_3 = total_3 + (int)table_offsets_counts[c_1 * 32 + q_1 % 32];
  }
  table_offsets_sums[q_1] = total_3;
}

extern "C" __global__ void __launch_bounds__(256) k9_table_offsets_table_order(
    const int64_t *__restrict__ table_offsets_sums,
    int64_t *__restrict__ table_offsets_begins,
    int64_t *__restrict__ table_offsets_totals,
    te_error *__restrict__ error) {
  if (error->check) return;
  const int q_1 = (int)(blockIdx.x * 256u + threadIdx.x);
  if (q_1 >= 32) return;
  int total_4;
  total_4 = 0;
  for (int c_1 = 0; c_1 < 9; ++c_1) {
    table_offsets_begins[c_1 * 32 + q_1] = total_4;
    total_4 = total_4 + (int)table_offsets_sums[c_1 * 32 + q_1];
  }
  table_offsets_totals[q_1] = total_4;
}

extern "C" __global__ void __launch_bounds__(32) k10_table_offsets_table_order(
    const int64_t *__restrict__ table_offsets_counts,
    int64_t *__restrict__ table_offsets_places,
    const int64_t *__restrict__ table_offsets_begins,
    const int64_t *__restrict__ table_offsets_totals,
    te_error *__restrict__ error) {
  if (error->check) return;
  const int q_1 = (int)(blockIdx.x * 32u + threadIdx.x);
  int total_5;
  total_5 = (int)table_offsets_begins[q_1];
  for (int d_1 = 0; d_1 < q_1 % 32; ++d_1) {
    total_5 = total_5 + (int)table_offsets_totals[d_1];
  }
  for (int c_1 = q_1 / 32 * 9; c_1 < te_minimum(78, q_1 / 32 * 9 + 9); ++c_1) {
    table_offsets_places[c_1 * 32 + q_1 % 32] = total_5;
    total_5 = total_5 + (int)table_offsets_counts[c_1 * 32 + q_1 % 32];
  }
}

extern "C" __global__ void __launch_bounds__(32) k11_table_offsets_table_order(
    int64_t *__restrict__ table_order,
    int64_t *__restrict__ table_offsets_sorted_keys,
    const int64_t *__restrict__ table_offsets_points,
    int64_t *__restrict__ table_offsets_places,
    te_error *__restrict__ error) {
  if (error->check) return;
  const int q_1 = (int)(blockIdx.x * 32u + threadIdx.x);
  if (q_1 >= 78) return;
  for (int p_1 = te_minimum(5000, q_1 * 65); p_1 < te_minimum(5000, q_1 * 65 + 65); ++p_1) {
    int key_1;
    int place_1;
    key_1 = (int)table_offsets_sorted_keys[p_1];
    place_1 = (int)table_offsets_places[q_1 * 32 + key_1 / 32];
    table_offsets_sorted_keys[5000 + place_1] = key_1;
    table_order[place_1] = (int)table_offsets_points[p_1];
    table_offsets_places[q_1 * 32 + key_1 / 32] = place_1 + 1;
  }
}

extern "C" __global__ void __launch_bounds__(256) k12_table_offsets_table_order(
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

extern "C" __global__ void __launch_bounds__(32) k13_table_bar_parts(
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

extern "C" __global__ void __launch_bounds__(256) k14_table_bar(
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
