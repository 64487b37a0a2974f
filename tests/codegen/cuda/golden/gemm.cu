// Tiles through shared memory.
// s['c'].split('k', 512, 'peel')
// s['c'].rfactor('k_o')
// s['c_parts'].split('i', 128, 'guard')
// s['c_parts'].split('i_i', 4, 'peel')
// s['c_parts'].split('i_i_o', 16, 'peel')
// s['c_parts'].split('j', 128, 'guard')
// s['c_parts'].split('j_i', 4, 'peel')
// s['c_parts'].split('j_i_o', 16, 'peel')
// s['c_parts'].split('k_i', 8, 'guard')
// s['c_parts'].reorder('k_o', 'i_o', 'j_o', 'k_i_o', 'k_i_i', 'i_i_o_o', 'i_i_i', 'j_i_o_o', 'j_i_i', 'i_i_o_i', 'j_i_o_i')
// s['c_parts'].fuse('i_i_o_i', 'j_i_o_i')
// s['c_parts'].unroll('k_i_i')
// s['c_parts'].unroll('i_i_o_o')
// s['c_parts'].unroll('i_i_i')
// s['c_parts'].unroll('j_i_o_o')
// s['c_parts'].unroll('j_i_i')
// s['c_parts'].vectorize('i_i_o_i_j_i_o_i')
// s['c_parts'].fuse('k_o', 'i_o')
// s['c_parts'].fuse('k_o_i_o', 'j_o')
// s['c_parts'].parallel('k_o_i_o_j_o')
// s['c_parts'].cache('a', 'k_i_o', (1, 0))
// s['c_parts'].cache('b', 'k_i_o', (0, 1))

extern "C" __global__ void __launch_bounds__(256) k0_c_parts(
    const float *__restrict__ a,
    const float *__restrict__ b,
    float *__restrict__ c_parts) {
  const int block = (int)blockIdx.x;
  float c_parts_sum[2][4][2][4];
  #pragma unroll
  for (int i_i_o_o = 0; i_i_o_o < 2; ++i_i_o_o) {
    #pragma unroll
    for (int i_i_i = 0; i_i_i < 4; ++i_i_i) {
      #pragma unroll
      for (int j_i_o_o = 0; j_i_o_o < 2; ++j_i_o_o) {
        #pragma unroll
        for (int j_i_i = 0; j_i_i < 4; ++j_i_i) {
          {
            const int thread = (int)threadIdx.x;
            c_parts_sum[i_i_o_o][i_i_i][j_i_o_o][j_i_i] = 0.0f;
          }
        }
      }
    }
  }
  float a_next[1][4];
  __shared__ __align__(16) float b_tile[3][8][132];
  {
    const int lane = (int)threadIdx.x;
    float t0[4];
    te_load(t0, &a[lane * 4 + block / 8 * 131072 + lane / 2 * 1016 - block / 64 * 1048064]);
    #pragma unroll
    for (int part = 0; part < 4; ++part) {
      a_next[0][part] = t0[part];
    }
  }
  {
    const int lane_1 = (int)threadIdx.x;
    te_copy_async<16>(&b_tile[0][lane_1 / 32][lane_1 % 32 * 4], &b[lane_1 * 4 + block / 64 * 524288 + lane_1 / 32 * 896 + block % 8 * 128]);
  }
  te_copies_commit();
  {
    const int lane_1 = (int)threadIdx.x;
    te_copy_async<16>(&b_tile[1][lane_1 / 32][lane_1 % 32 * 4], &b[lane_1 * 4 + block / 64 * 524288 + lane_1 / 32 * 896 + block % 8 * 128 + 8192]);
  }
  te_copies_commit();
  for (int k_i_o = 0; k_i_o < 64; ++k_i_o) {
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
    if (k_i_o + 1 < 64) {
      {
        const int lane = (int)threadIdx.x;
        float t1[4];
        te_load(t1, &a[k_i_o * 8 + lane * 4 + block / 8 * 131072 + lane / 2 * 1016 - block / 64 * 1048064 + 8]);
        #pragma unroll
        for (int part = 0; part < 4; ++part) {
          a_next[0][part] = t1[part];
        }
      }
    }
    if (k_i_o + 2 < 64) {
      {
        const int lane_1 = (int)threadIdx.x;
        te_copy_async<16>(&b_tile[(k_i_o + 2) % 3][lane_1 / 32][lane_1 % 32 * 4], &b[k_i_o * 8192 + lane_1 * 4 + block / 64 * 524288 + lane_1 / 32 * 896 + block % 8 * 128 + 16384]);
      }
    }
    te_copies_commit();
    te_copies_wait<2>();
    __syncthreads();
    #pragma unroll
    for (int k_i_i = 0; k_i_i < 8; ++k_i_i) {
      #pragma unroll
      for (int i_i_o_o = 0; i_i_o_o < 2; ++i_i_o_o) {
        #pragma unroll
        for (int i_i_i = 0; i_i_i < 4; ++i_i_i) {
          #pragma unroll
          for (int j_i_o_o = 0; j_i_o_o < 2; ++j_i_o_o) {
            #pragma unroll
            for (int j_i_i = 0; j_i_i < 4; ++j_i_i) {
              {
                const int thread = (int)threadIdx.x;
                c_parts_sum[i_i_o_o][i_i_i][j_i_o_o][j_i_i] = c_parts_sum[i_i_o_o][i_i_i][j_i_o_o][j_i_i] + a_tile[k_i_i][i_i_i + i_i_o_o * 64 + thread / 16 * 4] * b_tile[k_i_o % 3][k_i_i][j_i_i + j_i_o_o * 64 + thread % 16 * 4];
              }
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
      #pragma unroll
      for (int j_i_o_o = 0; j_i_o_o < 2; ++j_i_o_o) {
        #pragma unroll
        for (int j_i_i = 0; j_i_i < 4; ++j_i_i) {
          {
            const int thread = (int)threadIdx.x;
            c_parts[i_i_i * 1024 + thread * 4 + i_i_o_o * 65536 + j_i_i + j_i_o_o * 64 + block * 128 + thread / 16 * 4032 + block / 8 * 130048] = c_parts_sum[i_i_o_o][i_i_i][j_i_o_o][j_i_i];
          }
        }
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(256) k1_c(float *__restrict__ c, const float *__restrict__ c_parts) {
  const int i_j = (int)(blockIdx.x * 256u + threadIdx.x);
  float c_sum;
  c_sum = 0.0f;
  for (int k_o = 0; k_o < 2; ++k_o) {
    c_sum = c_sum + c_parts[i_j + k_o * 1048576];
  }
  c[i_j] = c_sum;
}
