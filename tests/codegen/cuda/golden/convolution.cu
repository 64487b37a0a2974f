// Both gradients of a convolution of stride 2.
// s['w_bar'].split('n', 1, 'peel')
// s['w_bar'].rfactor('n_o')
// s['w_bar_parts'].stage('x', (0, 2, 3, 1))
// s['w_bar_parts'].split('k', 4, 'peel')
// s['w_bar_parts'].split('c', 2, 'peel')
// s['w_bar_parts'].split('z', 8, 'guard')
// s['w_bar_parts'].reorder('n_o', 'r', 's', 'n_i', 'y', 'z_o', 'z_i', 'k_i', 'c_i', 'k_o', 'c_o')
// s['w_bar_parts'].fuse('k_o', 'c_o')
// s['w_bar_parts'].unroll('z_i')
// s['w_bar_parts'].unroll('k_i')
// s['w_bar_parts'].unroll('c_i')
// s['w_bar_parts'].vectorize('k_o_c_o')
// s['w_bar_parts'].fuse('n_o', 'r')
// s['w_bar_parts'].fuse('n_o_r', 's')
// s['w_bar_parts'].parallel('n_o_r_s')
// s['w_bar_parts'].cache('g', 'z_o', (0, 2, 3, 1))
// s['w_bar_parts'].cache('x_staged', 'z_o', (0, 1, 2, 3))

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

extern "C" __global__ void __launch_bounds__(256) k1_x_staged(
    const float *__restrict__ x,
    float *__restrict__ x_staged) {
  const int block = (int)blockIdx.x;
  __shared__ __align__(16) float x_of[32][36];
  {
    const int thread = (int)threadIdx.x;
    #pragma unroll
    for (int x_1_r = 0; x_1_r < 4; ++x_1_r) {
      if (thread % 32 < te_minimum(32, 33 - block % 2 * 32)) {
        x_of[x_1_r * 8 + thread / 32][thread % 32] = x[block * 32 + x_1_r * 8712 + thread + block / 66 * 33759 + thread / 32 * 1057 - block / 2 * 31];
      }
    }
  }
  __syncthreads();
  {
    const int thread_1 = (int)threadIdx.x;
    #pragma unroll
    for (int a3_i_r = 0; a3_i_r < 4; ++a3_i_r) {
      if (a3_i_r * 8 + thread_1 / 32 + block % 2 * 32 < 33) {
        x_staged[block * 528 + a3_i_r * 256 + thread_1 + block % 2 * 496] = x_of[thread_1 % 32][a3_i_r * 8 + thread_1 / 32];
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(256) k2_w_bar_parts(
    const float *__restrict__ g,
    const float *__restrict__ x_staged,
    float *__restrict__ w_bar_parts) {
  const int n_o_r_s = (int)blockIdx.x;
  float w_bar_parts_sum[4][2];
  #pragma unroll
  for (int k_i = 0; k_i < 4; ++k_i) {
    #pragma unroll
    for (int c_i = 0; c_i < 2; ++c_i) {
      {
        const int k_o_c_o = (int)threadIdx.x;
        w_bar_parts_sum[k_i][c_i] = 0.0f;
      }
    }
  }
  for (int y = 0; y < 16; ++y) {
    float g_next[1][4];
    __shared__ __align__(16) float x_staged_tile[2][1][1][15][36];
    {
      const int lane = (int)threadIdx.x;
      if (lane < 128) {
        float t0[4];
        te_load(t0, &g[lane * 4 + y * 16 + lane / 2 * 248 + n_o_r_s / 9 * 16384]);
        #pragma unroll
        for (int part = 0; part < 4; ++part) {
          g_next[0][part] = t0[part];
        }
      }
    }
    __syncthreads();
    {
      const int lane_1 = (int)threadIdx.x;
      if (lane_1 < 120) {
        te_copy_async<16>(&x_staged_tile[0][lane_1 / 8 / 15][lane_1 / 8 / 15 % 1][lane_1 / 8 % 15][lane_1 % 8 * 4], &x_staged[lane_1 * 4 + n_o_r_s * 32 + y * 2112 + lane_1 / 120 * 34368 + n_o_r_s / 3 * 960 + n_o_r_s / 9 * 31680]);
      }
    }
    te_copies_commit();
    for (int z_o = 0; z_o < 2; ++z_o) {
      __shared__ __align__(16) float g_tile[1][1][8][68];
      te_copies_wait_all();
      __syncthreads();
      {
        const int lane = (int)threadIdx.x;
        if (lane < 128) {
          #pragma unroll
          for (int part = 0; part < 4; ++part) {
            g_tile[lane / 2 / 64][lane / 2 % 1][part + lane % 2 * 4][lane / 2 % 64] = g_next[0][part];
          }
        }
      }
      if (z_o + 1 < 2) {
        {
          const int lane = (int)threadIdx.x;
          if (lane < 128) {
            float t1[4];
            te_load(t1, &g[lane * 4 + y * 16 + z_o * 8 + lane / 2 * 248 + n_o_r_s / 9 * 16384 + 8]);
            #pragma unroll
            for (int part = 0; part < 4; ++part) {
              g_next[0][part] = t1[part];
            }
          }
        }
      }
      if (z_o + 1 < 2) {
        {
          const int lane_1 = (int)threadIdx.x;
          if (lane_1 < 120) {
            te_copy_async<16>(&x_staged_tile[(z_o + 1) % 2][lane_1 / 8 / 15][lane_1 / 8 / 15 % 1][lane_1 / 8 % 15][lane_1 % 8 * 4], &x_staged[lane_1 * 4 + n_o_r_s * 32 + y * 2112 + z_o * 512 + lane_1 / 120 * 34368 + n_o_r_s / 3 * 960 + n_o_r_s / 9 * 31680 + 512]);
          }
        }
      }
      te_copies_commit();
      te_copies_wait<1>();
      __syncthreads();
      #pragma unroll
      for (int z_i = 0; z_i < 8; ++z_i) {
        #pragma unroll
        for (int k_i = 0; k_i < 4; ++k_i) {
          #pragma unroll
          for (int c_i = 0; c_i < 2; ++c_i) {
            {
              const int k_o_c_o = (int)threadIdx.x;
              w_bar_parts_sum[k_i][c_i] = w_bar_parts_sum[k_i][c_i] + g_tile[0][0][z_i][k_i + k_o_c_o / 16 * 4] * x_staged_tile[z_o][0][0][z_i * 2][c_i + k_o_c_o % 16 * 2];
            }
          }
        }
      }
    }
  }
  #pragma unroll
  for (int k_i = 0; k_i < 4; ++k_i) {
    #pragma unroll
    for (int c_i = 0; c_i < 2; ++c_i) {
      {
        const int k_o_c_o = (int)threadIdx.x;
        w_bar_parts[c_i * 9 + k_i * 288 + k_o_c_o * 18 + n_o_r_s + k_o_c_o / 16 * 864 + n_o_r_s / 9 * 18423] = w_bar_parts_sum[k_i][c_i];
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(256) k3_w_bar(
    float *__restrict__ w_bar,
    const float *__restrict__ w_bar_parts) {
  const int k_c_r_s = (int)(blockIdx.x * 256u + threadIdx.x);
  float w_bar_sum;
  w_bar_sum = 0.0f;
  for (int n_o = 0; n_o < 8; ++n_o) {
    w_bar_sum = w_bar_sum + w_bar_parts[k_c_r_s + n_o * 18432];
  }
  w_bar[k_c_r_s] = w_bar_sum;
}
