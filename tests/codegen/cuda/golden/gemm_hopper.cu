// The same by warpgroups, for sm_90a.
// s['c'].split('i', 128, 'guard')
// s['c'].split('j', 256, 'guard')
// s['c'].split('i_i', 8, 'peel')
// s['c'].split('i_i_o', 2, 'peel')
// s['c'].split('i_i_o_o', 4, 'peel')
// s['c'].split('i_i_o_o_o', 1, 'peel')
// s['c'].split('j_i', 2, 'peel')
// s['c'].split('j_i_o', 4, 'peel')
// s['c'].split('j_i_o_o', 32, 'peel')
// s['c'].split('k', 64, 'guard')
// s['c'].split('i_o', 16, 'peel')
// s['c'].reorder('i_o_o', 'j_o', 'i_o_i', 'k_o', 'k_i', 'i_i_o_o_o_i', 'i_i_o_i', 'j_i_o_o_i', 'j_i_i', 'i_i_o_o_o_o', 'j_i_o_o_o', 'i_i_o_o_i', 'i_i_i', 'j_i_o_i')
// s['c'].fuse('i_i_o_o_o_o', 'j_i_o_o_o')
// s['c'].fuse('i_i_o_o_o_o_j_i_o_o_o', 'i_i_o_o_i')
// s['c'].fuse('i_i_o_o_o_o_j_i_o_o_o_i_i_o_o_i', 'i_i_i')
// s['c'].fuse('i_i_o_o_o_o_j_i_o_o_o_i_i_o_o_i_i_i_i', 'j_i_o_i')
// s['c'].unroll('k_i')
// s['c'].unroll('i_i_o_o_o_i')
// s['c'].unroll('i_i_o_i')
// s['c'].unroll('j_i_o_o_i')
// s['c'].unroll('j_i_i')
// s['c'].vectorize('i_i_o_o_o_o_j_i_o_o_o_i_i_o_o_i_i_i_i_j_i_o_i')
// s['c'].fuse('i_o_o', 'j_o')
// s['c'].fuse('i_o_o_j_o', 'i_o_i')
// s['c'].parallel('i_o_o_j_o_i_o_i')
// s['c'].cache('a', 'k_o', (0, 1))
// s['c'].cache('b', 'k_o', (0, 1))

extern "C" __global__ void __launch_bounds__(256) k0_c(
    const te_bf16 *__restrict__ a,
    const te_bf16 *__restrict__ b,
    te_bf16 *__restrict__ c) {
  const int block = (int)blockIdx.x;
  float c_sum[1][2][32][2];
  #pragma unroll
  for (int i_i_o_i = 0; i_i_o_i < 2; ++i_i_o_i) {
    #pragma unroll
    for (int j_i_o_o_i = 0; j_i_o_o_i < 32; ++j_i_o_o_i) {
      #pragma unroll
      for (int j_i_i = 0; j_i_i < 2; ++j_i_i) {
        {
          const int thread = (int)threadIdx.x;
          c_sum[0][i_i_o_i][j_i_o_o_i][j_i_i] = 0.0f;
        }
      }
    }
  }
  te_bf16 (&a_tile)[3][1][128][64] = te_arena<te_bf16[3][1][128][64]>(0);
  te_bf16 (&b_tile)[3][4][64][64] = te_arena<te_bf16[3][4][64][64]>(49152);
  {
    const int lane = (int)threadIdx.x;
    #pragma unroll
    for (int step = 0; step < 4; ++step) {
      te_copy_async<16>(&a_tile[0][lane % 8 * 8 / 64][(lane + step * 256) / 8][lane % 8 * 8 ^ (lane + step * 256) / 8 % 8 * 8], &a[lane * 8 + step * 131072 + block / 256 * 8388608 + lane / 8 * 4032 + block % 16 * 524288]);
    }
  }
  {
    const int lane_1 = (int)threadIdx.x;
    #pragma unroll
    for (int step_1 = 0; step_1 < 8; ++step_1) {
      te_copy_async<16>(&b_tile[0][lane_1 % 32 * 8 / 64][(lane_1 + step_1 * 256) / 32][lane_1 % 32 * 8 % 64 ^ (lane_1 + step_1 * 256) / 32 % 8 * 8], &b[lane_1 * 8 + step_1 * 32768 + block / 16 * 256 + lane_1 / 32 * 3840 - block / 256 * 4096]);
    }
  }
  te_copies_commit();
  {
    const int lane = (int)threadIdx.x;
    #pragma unroll
    for (int step = 0; step < 4; ++step) {
      te_copy_async<16>(&a_tile[1][lane % 8 * 8 / 64][(lane + step * 256) / 8][lane % 8 * 8 ^ (lane + step * 256) / 8 % 8 * 8], &a[lane * 8 + step * 131072 + block / 256 * 8388608 + lane / 8 * 4032 + block % 16 * 524288 + 64]);
    }
  }
  {
    const int lane_1 = (int)threadIdx.x;
    #pragma unroll
    for (int step_1 = 0; step_1 < 8; ++step_1) {
      te_copy_async<16>(&b_tile[1][lane_1 % 32 * 8 / 64][(lane_1 + step_1 * 256) / 32][lane_1 % 32 * 8 % 64 ^ (lane_1 + step_1 * 256) / 32 % 8 * 8], &b[lane_1 * 8 + step_1 * 32768 + block / 16 * 256 + lane_1 / 32 * 3840 - block / 256 * 4096 + 262144]);
    }
  }
  te_copies_commit();
  for (int k_o = 0; k_o < 64; ++k_o) {
    te_copies_wait<1>();
    te_hand_over();
    __syncthreads();
    {
      const int thread = te_shuffle_from((int)threadIdx.x / 128 * 128, 0);
      te_group_enter(*(float (*)[128])&c_sum[0][0][0][0]);
      #pragma unroll
      for (int k_i = 0; k_i < 64; k_i += 16) {
        te_group_bf16<false, true>(*(float (*)[128])&c_sum[0][0][0][0], te_tile<16384, 1024>(&a_tile[k_o % 3][k_i / 64][thread / 4 + thread / 32 * 8][k_i ^ (thread / 4 + thread / 32 * 8) % 8 * 8]), te_tile<8192, 1024>(&b_tile[k_o % 3][thread % 4 * 2 / 64][k_i][thread % 4 * 2 ^ k_i % 8 * 8]));
      }
      te_group_commit();
    }
    te_group_wait_before();
    __syncthreads();
    if (k_o + 2 < 64) {
      {
        const int lane = (int)threadIdx.x;
        #pragma unroll
        for (int step = 0; step < 4; ++step) {
          te_copy_async<16>(&a_tile[(k_o + 2) % 3][lane % 8 * 8 / 64][(lane + step * 256) / 8][lane % 8 * 8 ^ (lane + step * 256) / 8 % 8 * 8], &a[k_o * 64 + lane * 8 + step * 131072 + block / 256 * 8388608 + lane / 8 * 4032 + block % 16 * 524288 + 128]);
        }
      }
      {
        const int lane_1 = (int)threadIdx.x;
        #pragma unroll
        for (int step_1 = 0; step_1 < 8; ++step_1) {
          te_copy_async<16>(&b_tile[(k_o + 2) % 3][lane_1 % 32 * 8 / 64][(lane_1 + step_1 * 256) / 32][lane_1 % 32 * 8 % 64 ^ (lane_1 + step_1 * 256) / 32 % 8 * 8], &b[k_o * 262144 + lane_1 * 8 + step_1 * 32768 + block / 16 * 256 + lane_1 / 32 * 3840 - block / 256 * 4096 + 524288]);
        }
      }
    }
    te_copies_commit();
  }
  te_group_wait(*(float (*)[128])&c_sum[0][0][0][0]);
  #pragma unroll
  for (int i_i_o_i = 0; i_i_o_i < 2; ++i_i_o_i) {
    #pragma unroll
    for (int j_i_o_o_i = 0; j_i_o_o_i < 32; ++j_i_o_o_i) {
      {
        const int thread = (int)threadIdx.x;
        te_bf16 t0[2];
        #pragma unroll
        for (int j_i_i = 0; j_i_i < 2; ++j_i_i) {
          t0[j_i_i] = te_to_bf16(c_sum[0][i_i_o_i][j_i_o_o_i][j_i_i]);
        }
        te_store(&c[i_i_o_i * 32768 + thread * 2 + block * 16 + j_i_o_o_i * 8 + thread / 4 * 4088 + thread / 32 * 32768 + block / 256 * 8384512 + block % 16 * 524272], t0);
      }
    }
  }
}
