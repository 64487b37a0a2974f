// Both gradients of a convolution of stride 2.
// s['w_bar'].rfactor('y')
// s['x_bar'].stage('w', (0, 2, 3, 1))
// s['x_bar'].split('q', 2, 'guard')
// s['x_bar'].split('p', 2, 'guard')
// s['x_bar'].split('c', 2, 'peel')
// s['x_bar'].split('q_o', 32, 'guard')
// s['x_bar'].split('q_o_i', 2, 'peel')
// s['x_bar'].split('k', 32, 'guard')
// s['x_bar'].reorder('q_i', 'p_i', 'n', 'p_o', 'q_o_o', 'y', 'z', 'k_o', 'k_i', 'c_i', 'q_o_i_i', 'c_o', 'q_o_i_o')
// s['x_bar'].fuse('c_o', 'q_o_i_o')
// s['x_bar'].unroll('k_i')
// s['x_bar'].unroll('c_i')
// s['x_bar'].unroll('q_o_i_i')
// s['x_bar'].vectorize('c_o_q_o_i_o')
// s['x_bar'].fuse('q_i', 'p_i')
// s['x_bar'].fuse('q_i_p_i', 'n')
// s['x_bar'].fuse('q_i_p_i_n', 'p_o')
// s['x_bar'].fuse('q_i_p_i_n_p_o', 'q_o_o')
// s['x_bar'].parallel('q_i_p_i_n_p_o_q_o_o')
// s['x_bar'].cache('g', 'k_o', (0, 1, 2, 3))
// s['x_bar'].cache('w_staged', 'k_o', (0, 1, 2, 3))
// s['w_bar_parts'].reorder('y', 'k', 'c', 'r', 's', 'n', 'z')
// s['w_bar_parts'].fuse('c', 'r')
// s['w_bar_parts'].fuse('c_r', 's')
// s['w_bar_parts'].split('k', 4, 'peel')
// s['w_bar_parts'].split('c_r_s', 64, 'guard')
// s['w_bar_parts'].split('c_r_s_i', 4, 'peel')
// s['w_bar_parts'].split('z', 8, 'guard')
// s['w_bar_parts'].reorder('y', 'c_r_s_o', 'n', 'z_o', 'z_i', 'k_i', 'c_r_s_i_i', 'k_o', 'c_r_s_i_o')
// s['w_bar_parts'].fuse('k_o', 'c_r_s_i_o')
// s['w_bar_parts'].unroll('z_i')
// s['w_bar_parts'].unroll('k_i')
// s['w_bar_parts'].unroll('c_r_s_i_i')
// s['w_bar_parts'].vectorize('k_o_c_r_s_i_o')
// s['w_bar_parts'].fuse('y', 'c_r_s_o')
// s['w_bar_parts'].parallel('y_c_r_s_o')
// s['w_bar_parts'].cache('g', 'z_o', (0, 2, 3, 1), True)
// s['w_bar_parts'].cache('x', 'z_o', (0, 1, 2, 3), True)

extern "C" __global__ void __launch_bounds__(256) k0_w_staged(
    const float *__restrict__ w,
    float *__restrict__ w_staged) {
  const int point = (int)(blockIdx.x * 256u + threadIdx.x);
  w_staged[point] = w[point * 9 + point / 288 * 279 - point / 32 * 287];
}

extern "C" __global__ void __launch_bounds__(256) k1_x_bar(
    const float *__restrict__ g,
    float *__restrict__ x_bar,
    const float *__restrict__ w_staged) {
  const int block = (int)blockIdx.x;
  if (block / 136 + block % 17 * 2 - block / 272 * 2 < 33) {
    float x_bar_sum[2][2];
    #pragma unroll
    for (int c_i = 0; c_i < 2; ++c_i) {
      #pragma unroll
      for (int q_o_i_i = 0; q_o_i_i < 2; ++q_o_i_i) {
        {
          const int thread = (int)threadIdx.x;
          if (q_o_i_i * 2 + block / 272 + thread % 16 * 4 < 33) {
            if (q_o_i_i + thread % 16 * 2 < 17) {
              x_bar_sum[c_i][q_o_i_i] = 0.0f;
            }
          }
        }
      }
    }
    for (int y = te_maximum((block + 136) / 272 + block % 17 - block / 272 - 1, 0); y < te_minimum(block % 17 + 1, 16); ++y) {
      for (int z = 0; z < 2 - (block + 272) / 544; ++z) {
        __shared__ __align__(16) float g_tile[2][1][32][1][36];
        __shared__ __align__(16) float w_staged_panel_tile[2][32][36];
        te_copies_wait_all();
        __syncthreads();
        {
          const int lane = (int)threadIdx.x;
          #pragma unroll
          for (int step = 0; step < 4; ++step) {
            const int t19 = z + (block + 272) / 544 + lane % 32 - 1;
            te_copy_async<4>(&g_tile[0][0][step * 8 + lane / 32][(lane + step * 256) / 32 % 1][lane % 32], &g[lane + step * 2048 + y * 16 + z + lane / 32 * 224 + block / 17 * 16384 + (block + 272) / 544 - block / 136 * 131072 - 1], block / 17 - block / 136 * 8 >= 0 && block / 17 - block / 136 * 8 < 8 && t19 >= 0 && t19 < 16 ? 4 : 0);
          }
        }
        {
          const int lane_1 = (int)threadIdx.x;
          const int t20 = block / 136 + block % 17 * 2 - y * 2 - block / 272 * 2;
          const int t21 = block / 272 - z * 2 - (block + 272) / 544 * 2 + 2;
          te_copy_async<16>(&w_staged_panel_tile[0][lane_1 / 8][lane_1 % 8 * 4], &w_staged[lane_1 * 4 + lane_1 / 8 * 256 + block / 136 * 96 + block % 17 * 192 - y * 192 - z * 64 - block / 272 * 160 - (block + 272) / 544 * 64 + 64], t20 >= 0 && t20 < 3 && t21 >= 0 && t21 < 3 ? 16 : 0);
        }
        te_copies_commit();
        for (int k_o = 0; k_o < 2; ++k_o) {
          te_copies_wait_all();
          __syncthreads();
          if (k_o + 1 < 2) {
            {
              const int lane = (int)threadIdx.x;
              #pragma unroll
              for (int step = 0; step < 4; ++step) {
                const int t22 = k_o * 32 + step * 8 + lane / 32 + 32;
                const int t23 = z + (block + 272) / 544 + lane % 32 - 1;
                te_copy_async<4>(&g_tile[(k_o + 1) % 2][0][step * 8 + lane / 32][(lane + step * 256) / 32 % 1][lane % 32], &g[k_o * 8192 + lane + step * 2048 + y * 16 + z + lane / 32 * 224 + block / 17 * 16384 + (block + 272) / 544 - block / 136 * 131072 + 8191], block / 17 - block / 136 * 8 >= 0 && block / 17 - block / 136 * 8 < 8 && t22 < 64 && t23 >= 0 && t23 < 16 ? 4 : 0);
              }
            }
            {
              const int lane_1 = (int)threadIdx.x;
              const int t24 = block / 136 + block % 17 * 2 - y * 2 - block / 272 * 2;
              const int t25 = block / 272 - z * 2 - (block + 272) / 544 * 2 + 2;
              te_copy_async<16>(&w_staged_panel_tile[(k_o + 1) % 2][lane_1 / 8][lane_1 % 8 * 4], &w_staged[k_o * 9216 + lane_1 * 4 + lane_1 / 8 * 256 + block / 136 * 96 + block % 17 * 192 - y * 192 - z * 64 - block / 272 * 160 - (block + 272) / 544 * 64 + 9280], t24 >= 0 && t24 < 3 && t25 >= 0 && t25 < 3 ? 16 : 0);
            }
          }
          te_copies_commit();
          #pragma unroll
          for (int k_i = 0; k_i < 32; ++k_i) {
            #pragma unroll
            for (int c_i = 0; c_i < 2; ++c_i) {
              #pragma unroll
              for (int q_o_i_i = 0; q_o_i_i < 2; ++q_o_i_i) {
                {
                  const int thread = (int)threadIdx.x;
                  const float t26 = x_bar_sum[c_i][q_o_i_i] + g_tile[k_o][0][k_i][0][q_o_i_i + thread % 16 * 2] * w_staged_panel_tile[k_o][k_i][c_i + thread / 16 * 2];
                  const int t27 = q_o_i_i + z + (block + 272) / 544 + thread % 16 * 2 - 1;
                  x_bar_sum[c_i][q_o_i_i] = t27 >= 0 && t27 < 16 ? t26 : x_bar_sum[c_i][q_o_i_i];
                }
              }
            }
          }
        }
      }
    }
    #pragma unroll
    for (int c_i = 0; c_i < 2; ++c_i) {
      #pragma unroll
      for (int q_o_i_i = 0; q_o_i_i < 2; ++q_o_i_i) {
        {
          const int thread = (int)threadIdx.x;
          if (q_o_i_i * 2 + block / 272 + thread % 16 * 4 < 33) {
            if (q_o_i_i + thread % 16 * 2 < 17) {
              x_bar[c_i * 1089 + thread * 4 + block * 66 + q_o_i_i * 2 + thread / 16 * 2114 + block / 17 * 33726 - block / 136 * 278751 - block / 272 * 65] = x_bar_sum[c_i][q_o_i_i];
            }
          }
        }
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(256) k2_w_bar_parts(
    const float *__restrict__ x,
    const float *__restrict__ g,
    float *__restrict__ w_bar_parts) {
  const int block = (int)blockIdx.x;
  float w_bar_parts_sum[4][4];
  #pragma unroll
  for (int k_i = 0; k_i < 4; ++k_i) {
    #pragma unroll
    for (int c_r_s_i_i = 0; c_r_s_i_i < 4; ++c_r_s_i_i) {
      {
        const int thread = (int)threadIdx.x;
        if (c_r_s_i_i + thread % 16 * 4 + block % 5 * 64 < 288) {
          w_bar_parts_sum[k_i][c_r_s_i_i] = 0.0f;
        }
      }
    }
  }
  for (int n = 0; n < 8; ++n) {
    float g_next_1[1][4];
    __shared__ __align__(16) float x_panel_tile[2][8][68];
    {
      const int lane_2 = (int)threadIdx.x;
      if (lane_2 < 128) {
        float t0[4];
        te_load(t0, &g[lane_2 * 4 + n * 16384 + lane_2 / 2 * 248 + block / 5 * 16], n + lane_2 / 128 < 8);
        #pragma unroll
        for (int part_2 = 0; part_2 < 4; ++part_2) {
          g_next_1[0][part_2] = t0[part_2];
        }
      }
    }
    __syncthreads();
    {
      const int lane_3 = (int)threadIdx.x;
      #pragma unroll
      for (int step_3 = 0; step_3 < 2; ++step_3) {
        const int t6 = te_floordiv(lane_3 + block - lane_3 / 64 - block / 5 * 2, 3);
        const int t7 = te_floordiv(t6 - block / 5, 3);
        const int t8 = t7 + block % 5 * 7 - lane_3 / 64 * 7;
        const int t9 = t6 + block / 5 - t7 * 3;
        const int t10 = lane_3 + step_3 * 8 + block + lane_3 / 64 - t6 * 3 - block / 5 * 2;
        te_copy_async<4>(&x_panel_tile[0][(lane_3 + step_3 * 256) / 64][lane_3 % 64], &x[lane_3 + n * 34848 + step_3 * 8 + block * 7624 + te_floordiv(lane_3 + block - lane_3 / 64 - block / 5 * 2, 3) * 30 + te_floordiv(te_floordiv(lane_3 + block - lane_3 / 64 - block / 5 * 2, 3) - block / 5, 3) * 990 - lane_3 / 64 * 7622 - block / 5 * 38084], t8 >= 0 && t8 < 32 && t9 >= 0 && t9 < 33 && t10 >= 0 && t10 < 33 ? 4 : 0);
      }
    }
    te_copies_commit();
    for (int z_o = 0; z_o < 2; ++z_o) {
      __shared__ __align__(16) float g_tile_1[1][1][8][68];
      te_copies_wait_all();
      __syncthreads();
      {
        const int lane_2 = (int)threadIdx.x;
        if (lane_2 < 128) {
          #pragma unroll
          for (int part_2 = 0; part_2 < 4; ++part_2) {
            g_tile_1[lane_2 / 2 / 64][lane_2 / 2 % 1][part_2 + lane_2 % 2 * 4][lane_2 / 2 % 64] = g_next_1[0][part_2];
          }
        }
      }
      if (z_o + 1 < 2) {
        {
          const int lane_2 = (int)threadIdx.x;
          if (lane_2 < 128) {
            const int t12 = z_o * 8 + lane_2 % 2 * 4 + 8;
            float t11[4];
            te_load(t11, &g[lane_2 * 4 + n * 16384 + z_o * 8 + lane_2 / 2 * 248 + block / 5 * 16 + 8], n + lane_2 / 128 < 8 && t12 < 16);
            #pragma unroll
            for (int part_2 = 0; part_2 < 4; ++part_2) {
              g_next_1[0][part_2] = t11[part_2];
            }
          }
        }
      }
      if (z_o + 1 < 2) {
        {
          const int lane_3 = (int)threadIdx.x;
          #pragma unroll
          for (int step_3 = 0; step_3 < 2; ++step_3) {
            const int t13 = te_floordiv(lane_3 + block - lane_3 / 64 - block / 5 * 2, 3);
            const int t14 = te_floordiv(t13 - block / 5, 3);
            const int t15 = t14 + block % 5 * 7 - lane_3 / 64 * 7;
            const int t16 = t13 + block / 5 - t14 * 3;
            const int t17 = lane_3 + step_3 * 8 + block + z_o * 16 + lane_3 / 64 - t13 * 3 - block / 5 * 2 + 16;
            te_copy_async<4>(&x_panel_tile[(z_o + 1) % 2][(lane_3 + step_3 * 256) / 64][lane_3 % 64], &x[lane_3 + n * 34848 + step_3 * 8 + block * 7624 + z_o * 16 + te_floordiv(lane_3 + block - lane_3 / 64 - block / 5 * 2, 3) * 30 + te_floordiv(te_floordiv(lane_3 + block - lane_3 / 64 - block / 5 * 2, 3) - block / 5, 3) * 990 - lane_3 / 64 * 7622 - block / 5 * 38084 + 16], t15 >= 0 && t15 < 32 && t16 >= 0 && t16 < 33 && t17 >= 0 && t17 < 33 ? 4 : 0);
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
          for (int c_r_s_i_i = 0; c_r_s_i_i < 4; ++c_r_s_i_i) {
            {
              const int thread = (int)threadIdx.x;
              w_bar_parts_sum[k_i][c_r_s_i_i] = w_bar_parts_sum[k_i][c_r_s_i_i] + g_tile_1[0][0][z_i][k_i + thread / 16 * 4] * x_panel_tile[z_o][z_i][c_r_s_i_i + thread % 16 * 4];
            }
          }
        }
      }
    }
  }
  #pragma unroll
  for (int k_i = 0; k_i < 4; ++k_i) {
    #pragma unroll
    for (int c_r_s_i_i = 0; c_r_s_i_i < 4; ++c_r_s_i_i) {
      {
        const int thread = (int)threadIdx.x;
        if (c_r_s_i_i + thread % 16 * 4 + block % 5 * 64 < 288) {
          w_bar_parts[c_r_s_i_i + k_i * 288 + thread * 4 + block * 64 + thread / 16 * 1088 + block / 5 * 18112] = w_bar_parts_sum[k_i][c_r_s_i_i];
        }
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
  for (int y = 0; y < 16; ++y) {
    w_bar_sum = w_bar_sum + w_bar_parts[k_c_r_s + y * 18432];
  }
  w_bar[k_c_r_s] = w_bar_sum;
}
