// Tensor cores where the schedule chooses them.
// s['c'].split('i', 128, 'guard')
// s['c'].split('j', 64, 'guard')
// s['c'].split('i_i', 8, 'peel')
// s['c'].split('i_i_o', 2, 'peel')
// s['c'].split('i_i_o_o', 2, 'peel')
// s['c'].split('j_i', 2, 'peel')
// s['c'].split('j_i_o', 4, 'peel')
// s['c'].split('j_i_o_o', 4, 'peel')
// s['c'].split('k', 32, 'guard')
// s['c'].reorder('i_o', 'j_o', 'k_o', 'k_i', 'i_i_o_o_i', 'i_i_o_i', 'j_i_o_o_i', 'j_i_i', 'i_i_o_o_o', 'j_i_o_o_o', 'i_i_i', 'j_i_o_i')
// s['c'].fuse('i_i_o_o_o', 'j_i_o_o_o')
// s['c'].fuse('i_i_o_o_o_j_i_o_o_o', 'i_i_i')
// s['c'].fuse('i_i_o_o_o_j_i_o_o_o_i_i_i', 'j_i_o_i')
// s['c'].unroll('k_i')
// s['c'].unroll('i_i_o_o_i')
// s['c'].unroll('i_i_o_i')
// s['c'].unroll('j_i_o_o_i')
// s['c'].unroll('j_i_i')
// s['c'].vectorize('i_i_o_o_o_j_i_o_o_o_i_i_i_j_i_o_i')
// s['c'].fuse('i_o', 'j_o')
// s['c'].parallel('i_o_j_o')
// s['c'].cache('a', 'k_o', (0, 1))
// s['c'].cache('b', 'k_o', (0, 1))

extern "C" __global__ void __launch_bounds__(256) k0_c(
    const te_bf16 *__restrict__ a,
    const te_bf16 *__restrict__ b,
    te_bf16 *__restrict__ c) {
  const int i_o_j_o = (int)blockIdx.x;
  float c_sum[2][2][4][2];
  #pragma unroll
  for (int i_i_o_o_i = 0; i_i_o_o_i < 2; ++i_i_o_o_i) {
    #pragma unroll
    for (int i_i_o_i = 0; i_i_o_i < 2; ++i_i_o_i) {
      #pragma unroll
      for (int j_i_o_o_i = 0; j_i_o_o_i < 4; ++j_i_o_o_i) {
        #pragma unroll
        for (int j_i_i = 0; j_i_i < 2; ++j_i_i) {
          {
            const int thread = (int)threadIdx.x;
            c_sum[i_i_o_o_i][i_i_o_i][j_i_o_o_i][j_i_i] = 0.0f;
          }
        }
      }
    }
  }
  __shared__ __align__(16) te_bf16 a_tile[3][128][40];
  __shared__ __align__(16) te_bf16 b_tile[3][32][72];
  {
    const int lane = (int)threadIdx.x;
    #pragma unroll
    for (int step = 0; step < 2; ++step) {
      const int t1 = lane / 8 * 8 - lane / 32 * 32;
      te_copy_async<16>(&a_tile[0][step * 64 + lane / 32 * 8 + lane % 8][t1], &a[lane + step * 65536 + i_o_j_o / 16 * 131072 + lane / 32 * 8160 + lane % 8 * 1023]);
    }
  }
  {
    const int lane_1 = (int)threadIdx.x;
    te_copy_async<16>(&b_tile[0][lane_1 / 8][lane_1 % 8 * 8], &b[lane_1 * 8 + lane_1 / 8 * 960 + i_o_j_o % 16 * 64]);
  }
  te_copies_commit();
  {
    const int lane = (int)threadIdx.x;
    #pragma unroll
    for (int step = 0; step < 2; ++step) {
      const int t2 = lane / 8 * 8 - lane / 32 * 32;
      te_copy_async<16>(&a_tile[1][step * 64 + lane / 32 * 8 + lane % 8][t2], &a[lane + step * 65536 + i_o_j_o / 16 * 131072 + lane / 32 * 8160 + lane % 8 * 1023 + 32]);
    }
  }
  {
    const int lane_1 = (int)threadIdx.x;
    te_copy_async<16>(&b_tile[1][lane_1 / 8][lane_1 % 8 * 8], &b[lane_1 * 8 + lane_1 / 8 * 960 + i_o_j_o % 16 * 64 + 32768]);
  }
  te_copies_commit();
  for (int k_o = 0; k_o < 32; ++k_o) {
    te_copies_wait<1>();
    __syncthreads();
    if (k_o + 2 < 32) {
      {
        const int lane = (int)threadIdx.x;
        #pragma unroll
        for (int step = 0; step < 2; ++step) {
          te_copy_async<16>(&a_tile[(k_o + 2) % 3][step * 64 + lane / 32 * 8 + lane % 8][lane / 8 * 8 - lane / 32 * 32], &a[k_o * 32 + lane + step * 65536 + i_o_j_o / 16 * 131072 + lane / 32 * 8160 + lane % 8 * 1023 + 64]);
        }
      }
      {
        const int lane_1 = (int)threadIdx.x;
        te_copy_async<16>(&b_tile[(k_o + 2) % 3][lane_1 / 8][lane_1 % 8 * 8], &b[k_o * 32768 + lane_1 * 8 + lane_1 / 8 * 960 + i_o_j_o % 16 * 64 + 65536]);
      }
    }
    te_copies_commit();
    {
      const int thread = (int)threadIdx.x;
      #pragma unroll
      for (int k_i = 0; k_i < 32; k_i += 16) {
        uint32_t a_tile_fragment_3[2][4];
        uint32_t b_tile_fragment_3[4][2];
        #pragma unroll
        for (int i_i_o_o_i = 0; i_i_o_o_i < 2; ++i_i_o_o_i) {
          te_matrices<false>(a_tile_fragment_3[i_i_o_o_i], &a_tile[k_o % 3][i_i_o_o_i * 16 + thread / 64 * 32 + thread % 16][k_i + thread / 16 * 8 - thread / 32 * 16]);
        }
        #pragma unroll
        for (int j_i_o_o_i = 0; j_i_o_o_i < 4; j_i_o_o_i += 2) {
          te_matrices<true>(b_tile_fragment_3[j_i_o_o_i], b_tile_fragment_3[j_i_o_o_i + 1], &b_tile[k_o % 3][k_i + thread % 16][j_i_o_o_i * 8 + thread / 16 * 8 + thread / 32 * 16 - thread / 64 * 64]);
        }
        #pragma unroll
        for (int i_i_o_o_i = 0; i_i_o_o_i < 2; ++i_i_o_o_i) {
          #pragma unroll
          for (int j_i_o_o_i = 0; j_i_o_o_i < 4; ++j_i_o_o_i) {
            te_mma_bf16(c_sum[i_i_o_o_i][0][j_i_o_o_i][0], c_sum[i_i_o_o_i][0][j_i_o_o_i][1], c_sum[i_i_o_o_i][1][j_i_o_o_i][0], c_sum[i_i_o_o_i][1][j_i_o_o_i][1], a_tile_fragment_3[i_i_o_o_i], b_tile_fragment_3[j_i_o_o_i]);
          }
        }
      }
    }
  }
  #pragma unroll
  for (int i_i_o_o_i = 0; i_i_o_o_i < 2; ++i_i_o_o_i) {
    #pragma unroll
    for (int i_i_o_i = 0; i_i_o_i < 2; ++i_i_o_i) {
      #pragma unroll
      for (int j_i_o_o_i = 0; j_i_o_o_i < 4; ++j_i_o_o_i) {
        {
          const int thread = (int)threadIdx.x;
          te_bf16 t3[2];
          #pragma unroll
          for (int j_i_i = 0; j_i_i < 2; ++j_i_i) {
            t3[j_i_i] = te_to_bf16(c_sum[i_i_o_o_i][i_i_o_i][j_i_o_o_i][j_i_i]);
          }
          te_store(&c[i_i_o_i * 8192 + i_i_o_o_i * 16384 + thread * 2 + i_o_j_o * 64 + j_i_o_o_i * 8 + thread / 4 * 1016 + thread / 64 * 32704 + i_o_j_o / 16 * 130048 - thread / 32 * 8160], t3);
        }
      }
    }
  }
}
