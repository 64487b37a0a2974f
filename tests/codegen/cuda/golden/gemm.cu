// Tiles through shared memory.
// s['c'].split('i', 128, 'guard')
// s['c'].split('i_i', 4, 'peel')
// s['c'].split('i_i_o', 16, 'peel')
// s['c'].split('j', 64, 'guard')
// s['c'].split('j_i', 4, 'peel')
// s['c'].split('k', 8, 'guard')
// s['c'].reorder('i_o', 'j_o', 'k_o', 'k_i', 'i_i_o_o', 'i_i_i', 'j_i_i', 'i_i_o_i', 'j_i_o')
// s['c'].fuse('i_i_o_i', 'j_i_o')
// s['c'].unroll('k_i')
// s['c'].unroll('i_i_o_o')
// s['c'].unroll('i_i_i')
// s['c'].unroll('j_i_i')
// s['c'].vectorize('i_i_o_i_j_i_o')
// s['c'].fuse('i_o', 'j_o')
// s['c'].parallel('i_o_j_o')
// s['c'].cache('a', 'k_o', (1, 0))
// s['c'].cache('b', 'k_o', (0, 1))

extern "C" __global__ void __launch_bounds__(256) k0_c(
    const float *__restrict__ a,
    const float *__restrict__ b,
    float *__restrict__ c) {
  const int i_o_j_o = (int)blockIdx.x;
  float c_sum[2][4][4];
  #pragma unroll
  for (int i_i_o_o = 0; i_i_o_o < 2; ++i_i_o_o) {
    #pragma unroll
    for (int i_i_i = 0; i_i_i < 4; ++i_i_i) {
      #pragma unroll
      for (int j_i_i = 0; j_i_i < 4; ++j_i_i) {
        {
          const int thread = (int)threadIdx.x;
          c_sum[i_i_o_o][i_i_i][j_i_i] = 0.0f;
        }
      }
    }
  }
  float a_next[1][4];
  __shared__ __align__(16) float b_tile[3][8][68];
  {
    const int lane = (int)threadIdx.x;
    float t0[4];
    te_load(t0, &a[lane * 4 + i_o_j_o / 16 * 131072 + lane / 2 * 1016]);
    #pragma unroll
    for (int part = 0; part < 4; ++part) {
      a_next[0][part] = t0[part];
    }
  }
  {
    const int lane_1 = (int)threadIdx.x;
    if (lane_1 < 128) {
      te_copy_async<16>(&b_tile[0][lane_1 / 16][lane_1 % 16 * 4], &b[lane_1 * 4 + lane_1 / 16 * 960 + i_o_j_o % 16 * 64]);
    }
  }
  te_copies_commit();
  {
    const int lane_1 = (int)threadIdx.x;
    if (lane_1 < 128) {
      te_copy_async<16>(&b_tile[1][lane_1 / 16][lane_1 % 16 * 4], &b[lane_1 * 4 + lane_1 / 16 * 960 + i_o_j_o % 16 * 64 + 8192]);
    }
  }
  te_copies_commit();
  for (int k_o = 0; k_o < 128; ++k_o) {
    __shared__ __align__(16) float a_tile[8][132];
    te_copies_wait<1>();
    __syncthreads();
    {
      const int lane = (int)threadIdx.x;
      #pragma unroll
      for (int part = 0; part < 4; ++part) {
        a_tile[part + lane % 2 * 4][lane / 2] = a_next[0][part];
      }
    }
    if (k_o + 1 < 128) {
      {
        const int lane = (int)threadIdx.x;
        float t1[4];
        te_load(t1, &a[k_o * 8 + lane * 4 + i_o_j_o / 16 * 131072 + lane / 2 * 1016 + 8]);
        #pragma unroll
        for (int part = 0; part < 4; ++part) {
          a_next[0][part] = t1[part];
        }
      }
    }
    if (k_o + 2 < 128) {
      {
        const int lane_1 = (int)threadIdx.x;
        if (lane_1 < 128) {
          te_copy_async<16>(&b_tile[(k_o + 2) % 3][lane_1 / 16][lane_1 % 16 * 4], &b[k_o * 8192 + lane_1 * 4 + lane_1 / 16 * 960 + i_o_j_o % 16 * 64 + 16384]);
        }
      }
    }
    te_copies_commit();
    te_copies_wait<2>();
    __syncthreads();
    #pragma unroll
    for (int k_i = 0; k_i < 8; ++k_i) {
      #pragma unroll
      for (int i_i_o_o = 0; i_i_o_o < 2; ++i_i_o_o) {
        #pragma unroll
        for (int i_i_i = 0; i_i_i < 4; ++i_i_i) {
          #pragma unroll
          for (int j_i_i = 0; j_i_i < 4; ++j_i_i) {
            {
              const int thread = (int)threadIdx.x;
              c_sum[i_i_o_o][i_i_i][j_i_i] = c_sum[i_i_o_o][i_i_i][j_i_i] + a_tile[k_i][i_i_i + i_i_o_o * 64 + thread / 16 * 4] * b_tile[k_o % 3][k_i][j_i_i + thread % 16 * 4];
            }
          }
        }
      }
    }
  }
  #pragma unroll
  for (int i_i_o_o = 0; i_i_o_o < 2; ++i_i_o_o) {
    #pragma unroll
    for (int i_i_i = 0; i_i_i < 4; ++i_i_i) {
      {
        const int thread = (int)threadIdx.x;
        float t2[4];
        #pragma unroll
        for (int j_i_i = 0; j_i_i < 4; ++j_i_i) {
          t2[j_i_i] = c_sum[i_i_o_o][i_i_i][j_i_i];
        }
        te_store(&c[i_i_i * 1024 + thread * 4 + i_i_o_o * 65536 + i_o_j_o * 64 + thread / 16 * 4032 + i_o_j_o / 16 * 130048], t2);
      }
    }
  }
}
