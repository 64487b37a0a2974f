// Columns in parts.
// s['y'].split('i', 16, 'peel')
// s['y'].rfactor('i_o')
// s['y'].reorder('j', 'i_o')
// s['y'].vectorize('i_o')
// s['y'].parallel('j')

extern "C" __global__ void __launch_bounds__(256) k0_y_parts(const float *__restrict__ x, float *__restrict__ y_parts) {
  const int i_o_j = (int)(blockIdx.x * 256u + threadIdx.x);
  float y_parts_sum;
  y_parts_sum = 0.0f;
  for (int i_i = 0; i_i < 16; ++i_i) {
    y_parts_sum = y_parts_sum + x[i_i * 512 + i_o_j + i_o_j / 512 * 7680];
  }
  y_parts[i_o_j] = y_parts_sum;
}

extern "C" __global__ void __launch_bounds__(256) k1_y(float *__restrict__ y, const float *__restrict__ y_parts) {
  const int j = (int)blockIdx.x;
  float y_sum;
  __shared__ __align__(16) float y_sum_lanes[256];
  float y_sum_lanes_own;
  y_sum = 0.0f;
  {
    const int i_o = (int)threadIdx.x;
    y_sum_lanes_own = 0.0f;
  }
  {
    const int i_o = (int)threadIdx.x;
    y_sum_lanes_own = y_sum_lanes_own + y_parts[i_o * 512 + j];
  }
  {
    const int x0 = (int)threadIdx.x;
    y_sum_lanes[x0] = y_sum_lanes_own;
  }
  float y_sum_lanes_all;
  __syncthreads();
  {
    const int lane = (int)(threadIdx.x % 32u);
    float y_sum_lanes_held[8];
    float y_sum_lanes_far;
    #pragma unroll
    for (int part = 0; part < 8; ++part) {
      y_sum_lanes_held[part] = y_sum_lanes[lane + part * 32];
    }
    #pragma unroll
    for (int part = 0; part < 4; ++part) {
      y_sum_lanes_held[part] = y_sum_lanes_held[part] + y_sum_lanes_held[part + 4];
    }
    #pragma unroll
    for (int part = 0; part < 2; ++part) {
      y_sum_lanes_held[part] = y_sum_lanes_held[part] + y_sum_lanes_held[part + 2];
    }
    y_sum_lanes_held[0] = y_sum_lanes_held[0] + y_sum_lanes_held[1];
    y_sum_lanes_far = te_shuffle_down(y_sum_lanes_held[0], 16);
    y_sum_lanes_held[0] = y_sum_lanes_held[0] + y_sum_lanes_far;
    y_sum_lanes_far = te_shuffle_down(y_sum_lanes_held[0], 8);
    y_sum_lanes_held[0] = y_sum_lanes_held[0] + y_sum_lanes_far;
    y_sum_lanes_far = te_shuffle_down(y_sum_lanes_held[0], 4);
    y_sum_lanes_held[0] = y_sum_lanes_held[0] + y_sum_lanes_far;
    y_sum_lanes_far = te_shuffle_down(y_sum_lanes_held[0], 2);
    y_sum_lanes_held[0] = y_sum_lanes_held[0] + y_sum_lanes_far;
    y_sum_lanes_far = te_shuffle_down(y_sum_lanes_held[0], 1);
    y_sum_lanes_held[0] = y_sum_lanes_held[0] + y_sum_lanes_far;
    y_sum_lanes_all = te_shuffle_from(y_sum_lanes_held[0], 0);
  }
  y_sum = y_sum + y_sum_lanes_all;
  if (threadIdx.x == 0) y[j] = y_sum;
}
