// Sizes that are arguments.
// s['y'].split('j', 256, 'guard')
// s['y'].reorder('i', 'j_o', 'j_i')
// s['y'].vectorize('j_i')
// s['y'].parallel('i')

extern "C" __global__ void __launch_bounds__(256) k0_y(
    const float *__restrict__ x,
    float *__restrict__ y,
    const int64_t n,
    const int64_t m) {
  const int64_t i = (int64_t)blockIdx.x;
  float y_sum;
  __shared__ __align__(16) float y_sum_lanes[256];
  float y_sum_lanes_own;
  y_sum = 0.0f;
  {
    const int j_i = (int)threadIdx.x;
    y_sum_lanes_own = 0.0f;
  }
  for (int64_t j_o = 0; j_o < m / 256; ++j_o) {
    {
      const int j_i = (int)threadIdx.x;
      const float t0 = x[i * m + j_i + j_o * 256];
      y_sum_lanes_own = y_sum_lanes_own + t0 * t0;
    }
  }
  for (int64_t j_o = m / 256; j_o < (m + 255) / 256; ++j_o) {
    {
      const int j_i = (int)threadIdx.x;
      if (j_i + j_o * 256 < m) {
        const float t1 = x[i * m + j_i + j_o * 256];
        y_sum_lanes_own = y_sum_lanes_own + t1 * t1;
      }
    }
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
  if (threadIdx.x == 0) y[i] = y_sum;
}
