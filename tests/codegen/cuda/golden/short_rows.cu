// A warp per row.
// s['scale'].compute_at('softmax', 'i0')
// s['top'].compute_at('softmax', 'i0')
// s['top'].split('i0_1', 32, 'peel')
// s['top'].reorder('i0', 'i0_1_o', 'i0_1_i')
// s['top'].bind('i0_1_i', 'warp')
// s['scale'].split('i0_1', 32, 'peel')
// s['scale'].reorder('i0', 'i0_1_o', 'i0_1_i')
// s['scale'].bind('i0_1_i', 'warp')
// s['softmax'].split('i1', 32, 'guard')
// s['softmax'].reorder('i0', 'i1_o', 'i1_i')
// s['softmax'].bind('i1_i', 'warp')
// s['softmax'].parallel('i0')

extern "C" __global__ void __launch_bounds__(256) k0_softmax(const float *__restrict__ x, float *__restrict__ softmax) {
  const int i0 = (int)(blockIdx.x * 8u + threadIdx.y);
  float top_1;
  float top_max;
  float top_max_lanes;
  top_max = -TE_INF_F32;
  {
    const int i0_1_i = (int)threadIdx.x;
    top_max_lanes = -TE_INF_F32;
  }
  for (int i0_1_o = 0; i0_1_o < 6; ++i0_1_o) {
    {
      const int i0_1_i = (int)threadIdx.x;
      top_max_lanes = te_maximum(top_max_lanes, x[i0 * 200 + i0_1_i + i0_1_o * 32]);
    }
  }
  {
    const int i0_1_i = (int)threadIdx.x;
    if (i0_1_i < 8) {
      top_max_lanes = te_maximum(top_max_lanes, x[i0 * 200 + i0_1_i + 192]);
    }
  }
  float top_max_lanes_all;
  {
    const int lane = (int)threadIdx.x;
    float top_max_lanes_held;
    float top_max_lanes_far;
    top_max_lanes_held = top_max_lanes;
    top_max_lanes_far = te_shuffle_down(top_max_lanes_held, 16);
    top_max_lanes_held = te_maximum(top_max_lanes_held, top_max_lanes_far);
    top_max_lanes_far = te_shuffle_down(top_max_lanes_held, 8);
    top_max_lanes_held = te_maximum(top_max_lanes_held, top_max_lanes_far);
    top_max_lanes_far = te_shuffle_down(top_max_lanes_held, 4);
    top_max_lanes_held = te_maximum(top_max_lanes_held, top_max_lanes_far);
    top_max_lanes_far = te_shuffle_down(top_max_lanes_held, 2);
    top_max_lanes_held = te_maximum(top_max_lanes_held, top_max_lanes_far);
    top_max_lanes_far = te_shuffle_down(top_max_lanes_held, 1);
    top_max_lanes_held = te_maximum(top_max_lanes_held, top_max_lanes_far);
    top_max_lanes_all = te_shuffle_from(top_max_lanes_held, 0);
  }
  top_max = te_maximum(top_max, top_max_lanes_all);
  const float t0 = top_max;
  top_1 = fabsf(t0) == TE_INF_F32 ? 0.0f : t0;
  float scale_1;
  float scale_sum;
  float scale_sum_lanes;
  scale_sum = 0.0f;
  {
    const int i0_1_i = (int)threadIdx.x;
    scale_sum_lanes = 0.0f;
  }
  for (int i0_1_o = 0; i0_1_o < 6; ++i0_1_o) {
    {
      const int i0_1_i = (int)threadIdx.x;
      scale_sum_lanes = scale_sum_lanes + expf(x[i0 * 200 + i0_1_i + i0_1_o * 32] - top_1);
    }
  }
  {
    const int i0_1_i = (int)threadIdx.x;
    if (i0_1_i < 8) {
      scale_sum_lanes = scale_sum_lanes + expf(x[i0 * 200 + i0_1_i + 192] - top_1);
    }
  }
  float scale_sum_lanes_all;
  {
    const int lane = (int)threadIdx.x;
    float scale_sum_lanes_held;
    float scale_sum_lanes_far;
    scale_sum_lanes_held = scale_sum_lanes;
    scale_sum_lanes_far = te_shuffle_down(scale_sum_lanes_held, 16);
    scale_sum_lanes_held = scale_sum_lanes_held + scale_sum_lanes_far;
    scale_sum_lanes_far = te_shuffle_down(scale_sum_lanes_held, 8);
    scale_sum_lanes_held = scale_sum_lanes_held + scale_sum_lanes_far;
    scale_sum_lanes_far = te_shuffle_down(scale_sum_lanes_held, 4);
    scale_sum_lanes_held = scale_sum_lanes_held + scale_sum_lanes_far;
    scale_sum_lanes_far = te_shuffle_down(scale_sum_lanes_held, 2);
    scale_sum_lanes_held = scale_sum_lanes_held + scale_sum_lanes_far;
    scale_sum_lanes_far = te_shuffle_down(scale_sum_lanes_held, 1);
    scale_sum_lanes_held = scale_sum_lanes_held + scale_sum_lanes_far;
    scale_sum_lanes_all = te_shuffle_from(scale_sum_lanes_held, 0);
  }
  scale_sum = scale_sum + scale_sum_lanes_all;
  scale_1 = 1.0f / scale_sum;
  for (int i1_o = 0; i1_o < 6; ++i1_o) {
    {
      const int i1_i = (int)threadIdx.x;
      softmax[i0 * 200 + i1_i + i1_o * 32] = expf(x[i0 * 200 + i1_i + i1_o * 32] - top_1) * scale_1;
    }
  }
  {
    const int i1_i = (int)threadIdx.x;
    if (i1_i + 192 < 200) {
      softmax[i0 * 200 + i1_i + 192] = expf(x[i0 * 200 + i1_i + 192] - top_1) * scale_1;
    }
  }
}
