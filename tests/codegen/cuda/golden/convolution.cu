// Both gradients of a convolution of stride 2.
// s['x_bar'].split('n', 8, 'peel')
// s['x_bar'].unroll('n_i')
// s['x_bar'].reorder('n_o', 'c', 'p', 'q', 'k', 'y', 'z', 'n_i')
// s['x_bar'].fuse('n_o', 'c')
// s['x_bar'].fuse('n_o_c', 'p')
// s['x_bar'].fuse('n_o_c_p', 'q')
// s['x_bar'].parallel('n_o_c_p_q')
// s['w_bar'].reorder('k', 'c', 'r', 's', 'n', 'y', 'z')
// s['w_bar'].fuse('k', 'c')
// s['w_bar'].fuse('k_c', 'r')
// s['w_bar'].fuse('k_c_r', 's')
// s['w_bar'].parallel('k_c_r_s')

extern "C" __global__ void __launch_bounds__(256) k0_x_bar(
    const float *__restrict__ w,
    const float *__restrict__ g,
    float *__restrict__ x_bar) {
  const int point = (int)(blockIdx.x * 256u + threadIdx.x);
  if (point >= 34848) return;
  float x_bar_sum[8];
  #pragma unroll
  for (int n_i = 0; n_i < 8; ++n_i) {
    x_bar_sum[n_i] = 0.0f;
  }
  for (int k = 0; k < 64; ++k) {
    for (int y = te_maximum(te_floordiv(point / 33 - point / 1089 + 1, 2) - point / 1089 * 16 - 1, 0); y < te_minimum(te_floordiv(point / 33 - point / 1089, 2) - point / 1089 * 16 + 1, 16); ++y) {
      for (int z = te_maximum(te_floordiv(point - point / 33 + 1, 2) - point / 33 * 16 - 1, 0); z < te_minimum(te_floordiv(point - point / 33, 2) - point / 33 * 16 + 1, 16); ++z) {
        #pragma unroll
        for (int n_i = 0; n_i < 8; ++n_i) {
          x_bar_sum[n_i] = x_bar_sum[n_i] + g[((n_i * 64 + k) * 16 + y) * 16 + z] * w[k * 288 + point - y * 6 - z * 2 - point / 33 * 30 - point / 1089 * 90];
        }
      }
    }
  }
  #pragma unroll
  for (int n_i = 0; n_i < 8; ++n_i) {
    x_bar[n_i * 34848 + point] = x_bar_sum[n_i];
  }
}

extern "C" __global__ void __launch_bounds__(256) k1_w_bar(
    const float *__restrict__ x,
    const float *__restrict__ g,
    float *__restrict__ w_bar) {
  const int k_c_r_s = (int)(blockIdx.x * 256u + threadIdx.x);
  float w_bar_sum;
  w_bar_sum = 0.0f;
  for (int n = 0; n < 8; ++n) {
    for (int y = 0; y < 16; ++y) {
      for (int z = 0; z < 16; ++z) {
        w_bar_sum = w_bar_sum + g[n * 16384 + y * 16 + z + k_c_r_s / 288 * 256] * x[k_c_r_s + n * 34848 + y * 66 + z * 2 + k_c_r_s / 3 * 30 + k_c_r_s / 9 * 990 - k_c_r_s / 288 * 34848];
      }
    }
  }
  w_bar[k_c_r_s] = w_bar_sum;
}
