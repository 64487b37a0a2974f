// A block per row, and its gradient.
// s['softmax'].compute_at('x_bar', 'i0')
// s['scale_bar_1'].compute_at('x_bar', 'i0')
// s['scale_sum'].compute_at('x_bar', 'i0')
// s['top'].compute_at('x_bar', 'i0')
// s['top'].split('i0_1', 4, 'peel')
// s['top'].split('i0_1_o', 256, 'peel')
// s['top'].reorder('i0', 'i0_1_o_o', 'i0_1_i', 'i0_1_o_i')
// s['top'].unroll('i0_1_i')
// s['top'].vectorize('i0_1_o_i')
// s['scale_sum'].split('i0_1', 4, 'peel')
// s['scale_sum'].split('i0_1_o', 256, 'peel')
// s['scale_sum'].reorder('i0', 'i0_1_o_o', 'i0_1_i', 'i0_1_o_i')
// s['scale_sum'].unroll('i0_1_i')
// s['scale_sum'].vectorize('i0_1_o_i')
// s['softmax'].split('i1', 4, 'peel')
// s['softmax'].split('i1_o', 256, 'guard')
// s['softmax'].reorder('i0', 'i1_o_o', 'i1_i', 'i1_o_i')
// s['softmax'].unroll('i1_i')
// s['softmax'].vectorize('i1_o_i')
// s['scale_bar_1'].split('i1', 4, 'peel')
// s['scale_bar_1'].split('i1_o', 256, 'peel')
// s['scale_bar_1'].reorder('i0', 'i1_o_o', 'i1_i', 'i1_o_i')
// s['scale_bar_1'].unroll('i1_i')
// s['scale_bar_1'].vectorize('i1_o_i')
// s['x_bar'].split('i1', 4, 'peel')
// s['x_bar'].split('i1_o', 256, 'guard')
// s['x_bar'].reorder('i0', 'i1_o_o', 'i1_i', 'i1_o_i')
// s['x_bar'].unroll('i1_i')
// s['x_bar'].vectorize('i1_o_i')
// s['x_bar'].parallel('i0')

extern "C" __global__ void __launch_bounds__(256) k0_x_bar(
    const float *__restrict__ x,
    const float *__restrict__ g,
    float *__restrict__ softmax,
    float *__restrict__ x_bar) {
  const int i0 = (int)blockIdx.x;
  float g_row[4];
  float x_row[4];
  float top_1;
  float top_max;
  __shared__ __align__(16) float top_max_lanes[256];
  float top_max_lanes_own;
  top_max = -TE_INF_F32;
  {
    const int i0_1_o_i = (int)threadIdx.x;
    top_max_lanes_own = -TE_INF_F32;
  }
  {
    const int i0_1_o_i = (int)threadIdx.x;
    if (i0_1_o_i < 250) {
      float t0[4];
      te_load(t0, &x[i0 * 1000 + i0_1_o_i * 4]);
      #pragma unroll
      for (int i0_1_i = 0; i0_1_i < 4; ++i0_1_i) {
        x_row[i0_1_i] = t0[i0_1_i];
        top_max_lanes_own = te_maximum(top_max_lanes_own, t0[i0_1_i]);
      }
    }
  }
  {
    const int x0 = (int)threadIdx.x;
    top_max_lanes[x0] = top_max_lanes_own;
  }
  float top_max_lanes_all;
  __syncthreads();
  {
    const int lane = (int)(threadIdx.x % 32u);
    float top_max_lanes_held[8];
    float top_max_lanes_far;
    #pragma unroll
    for (int part = 0; part < 8; ++part) {
      top_max_lanes_held[part] = top_max_lanes[lane + part * 32];
    }
    #pragma unroll
    for (int part = 0; part < 4; ++part) {
      top_max_lanes_held[part] = te_maximum(top_max_lanes_held[part], top_max_lanes_held[part + 4]);
    }
    #pragma unroll
    for (int part = 0; part < 2; ++part) {
      top_max_lanes_held[part] = te_maximum(top_max_lanes_held[part], top_max_lanes_held[part + 2]);
    }
    top_max_lanes_held[0] = te_maximum(top_max_lanes_held[0], top_max_lanes_held[1]);
    top_max_lanes_far = te_shuffle_down(top_max_lanes_held[0], 16);
    top_max_lanes_held[0] = te_maximum(top_max_lanes_held[0], top_max_lanes_far);
    top_max_lanes_far = te_shuffle_down(top_max_lanes_held[0], 8);
    top_max_lanes_held[0] = te_maximum(top_max_lanes_held[0], top_max_lanes_far);
    top_max_lanes_far = te_shuffle_down(top_max_lanes_held[0], 4);
    top_max_lanes_held[0] = te_maximum(top_max_lanes_held[0], top_max_lanes_far);
    top_max_lanes_far = te_shuffle_down(top_max_lanes_held[0], 2);
    top_max_lanes_held[0] = te_maximum(top_max_lanes_held[0], top_max_lanes_far);
    top_max_lanes_far = te_shuffle_down(top_max_lanes_held[0], 1);
    top_max_lanes_held[0] = te_maximum(top_max_lanes_held[0], top_max_lanes_far);
    top_max_lanes_all = te_shuffle_from(top_max_lanes_held[0], 0);
  }
  top_max = te_maximum(top_max, top_max_lanes_all);
  const float t1 = top_max;
  top_1 = fabsf(t1) == TE_INF_F32 ? 0.0f : t1;
  float scale_sum_1;
  float scale_sum_sum;
  __shared__ __align__(16) float scale_sum_sum_lanes[256];
  float scale_sum_sum_lanes_own;
  scale_sum_sum = 0.0f;
  {
    const int i0_1_o_i = (int)threadIdx.x;
    scale_sum_sum_lanes_own = 0.0f;
  }
  #pragma unroll
  for (int i0_1_i = 0; i0_1_i < 4; ++i0_1_i) {
    {
      const int i0_1_o_i = (int)threadIdx.x;
      if (i0_1_o_i < 250) {
        scale_sum_sum_lanes_own = scale_sum_sum_lanes_own + expf(x_row[i0_1_i] - top_1);
      }
    }
  }
  {
    const int x0_1 = (int)threadIdx.x;
    scale_sum_sum_lanes[x0_1] = scale_sum_sum_lanes_own;
  }
  float scale_sum_sum_lanes_all;
  __syncthreads();
  {
    const int lane = (int)(threadIdx.x % 32u);
    float scale_sum_sum_lanes_held[8];
    float scale_sum_sum_lanes_far;
    #pragma unroll
    for (int part = 0; part < 8; ++part) {
      scale_sum_sum_lanes_held[part] = scale_sum_sum_lanes[lane + part * 32];
    }
    #pragma unroll
    for (int part = 0; part < 4; ++part) {
      scale_sum_sum_lanes_held[part] = scale_sum_sum_lanes_held[part] + scale_sum_sum_lanes_held[part + 4];
    }
    #pragma unroll
    for (int part = 0; part < 2; ++part) {
      scale_sum_sum_lanes_held[part] = scale_sum_sum_lanes_held[part] + scale_sum_sum_lanes_held[part + 2];
    }
    scale_sum_sum_lanes_held[0] = scale_sum_sum_lanes_held[0] + scale_sum_sum_lanes_held[1];
    scale_sum_sum_lanes_far = te_shuffle_down(scale_sum_sum_lanes_held[0], 16);
    scale_sum_sum_lanes_held[0] = scale_sum_sum_lanes_held[0] + scale_sum_sum_lanes_far;
    scale_sum_sum_lanes_far = te_shuffle_down(scale_sum_sum_lanes_held[0], 8);
    scale_sum_sum_lanes_held[0] = scale_sum_sum_lanes_held[0] + scale_sum_sum_lanes_far;
    scale_sum_sum_lanes_far = te_shuffle_down(scale_sum_sum_lanes_held[0], 4);
    scale_sum_sum_lanes_held[0] = scale_sum_sum_lanes_held[0] + scale_sum_sum_lanes_far;
    scale_sum_sum_lanes_far = te_shuffle_down(scale_sum_sum_lanes_held[0], 2);
    scale_sum_sum_lanes_held[0] = scale_sum_sum_lanes_held[0] + scale_sum_sum_lanes_far;
    scale_sum_sum_lanes_far = te_shuffle_down(scale_sum_sum_lanes_held[0], 1);
    scale_sum_sum_lanes_held[0] = scale_sum_sum_lanes_held[0] + scale_sum_sum_lanes_far;
    scale_sum_sum_lanes_all = te_shuffle_from(scale_sum_sum_lanes_held[0], 0);
  }
  scale_sum_sum = scale_sum_sum + scale_sum_sum_lanes_all;
  scale_sum_1 = scale_sum_sum;
  {
    const int i1_o_i = (int)threadIdx.x;
    if (i1_o_i < 250) {
      float t2[4];
      #pragma unroll
      for (int i1_i = 0; i1_i < 4; ++i1_i) {
        t2[i1_i] = expf(x_row[i1_i] - top_1) * (1.0f / scale_sum_1);
      }
      te_store(&softmax[i0 * 1000 + i1_o_i * 4], t2);
    }
  }
  float scale_bar_1_1;
  float scale_bar_1_sum;
  __shared__ __align__(16) float scale_bar_1_sum_lanes[256];
  float scale_bar_1_sum_lanes_own;
  scale_bar_1_sum = 0.0f;
  {
    const int i1_o_i = (int)threadIdx.x;
    scale_bar_1_sum_lanes_own = 0.0f;
  }
  {
    const int i1_o_i = (int)threadIdx.x;
    if (i1_o_i < 250) {
      float t3[4];
      te_load(t3, &g[i0 * 1000 + i1_o_i * 4]);
      #pragma unroll
      for (int i1_i = 0; i1_i < 4; ++i1_i) {
        g_row[i1_i] = t3[i1_i];
        scale_bar_1_sum_lanes_own = scale_bar_1_sum_lanes_own + t3[i1_i] * expf(x_row[i1_i] - top_1);
      }
    }
  }
  {
    const int x0_2 = (int)threadIdx.x;
    scale_bar_1_sum_lanes[x0_2] = scale_bar_1_sum_lanes_own;
  }
  float scale_bar_1_sum_lanes_all;
  __syncthreads();
  {
    const int lane = (int)(threadIdx.x % 32u);
    float scale_bar_1_sum_lanes_held[8];
    float scale_bar_1_sum_lanes_far;
    #pragma unroll
    for (int part = 0; part < 8; ++part) {
      scale_bar_1_sum_lanes_held[part] = scale_bar_1_sum_lanes[lane + part * 32];
    }
    #pragma unroll
    for (int part = 0; part < 4; ++part) {
      scale_bar_1_sum_lanes_held[part] = scale_bar_1_sum_lanes_held[part] + scale_bar_1_sum_lanes_held[part + 4];
    }
    #pragma unroll
    for (int part = 0; part < 2; ++part) {
      scale_bar_1_sum_lanes_held[part] = scale_bar_1_sum_lanes_held[part] + scale_bar_1_sum_lanes_held[part + 2];
    }
    scale_bar_1_sum_lanes_held[0] = scale_bar_1_sum_lanes_held[0] + scale_bar_1_sum_lanes_held[1];
    scale_bar_1_sum_lanes_far = te_shuffle_down(scale_bar_1_sum_lanes_held[0], 16);
    scale_bar_1_sum_lanes_held[0] = scale_bar_1_sum_lanes_held[0] + scale_bar_1_sum_lanes_far;
    scale_bar_1_sum_lanes_far = te_shuffle_down(scale_bar_1_sum_lanes_held[0], 8);
    scale_bar_1_sum_lanes_held[0] = scale_bar_1_sum_lanes_held[0] + scale_bar_1_sum_lanes_far;
    scale_bar_1_sum_lanes_far = te_shuffle_down(scale_bar_1_sum_lanes_held[0], 4);
    scale_bar_1_sum_lanes_held[0] = scale_bar_1_sum_lanes_held[0] + scale_bar_1_sum_lanes_far;
    scale_bar_1_sum_lanes_far = te_shuffle_down(scale_bar_1_sum_lanes_held[0], 2);
    scale_bar_1_sum_lanes_held[0] = scale_bar_1_sum_lanes_held[0] + scale_bar_1_sum_lanes_far;
    scale_bar_1_sum_lanes_far = te_shuffle_down(scale_bar_1_sum_lanes_held[0], 1);
    scale_bar_1_sum_lanes_held[0] = scale_bar_1_sum_lanes_held[0] + scale_bar_1_sum_lanes_far;
    scale_bar_1_sum_lanes_all = te_shuffle_from(scale_bar_1_sum_lanes_held[0], 0);
  }
  scale_bar_1_sum = scale_bar_1_sum + scale_bar_1_sum_lanes_all;
  const float t4 = scale_sum_1;
  scale_bar_1_1 = -(scale_bar_1_sum / t4 * (1.0f / t4));
  {
    const int i1_o_i = (int)threadIdx.x;
    if (i1_o_i < 250) {
      float t5[4];
      #pragma unroll
      for (int i1_i = 0; i1_i < 4; ++i1_i) {
        const float t6 = expf(x_row[i1_i] - top_1);
        t5[i1_i] = g_row[i1_i] * (1.0f / scale_sum_1) * t6 + scale_bar_1_1 * t6;
      }
      te_store(&x_bar[i0 * 1000 + i1_o_i * 4], t5);
    }
  }
}
