// Columns in parts.
// s['y'].split('i', 64, 'peel')
// s['y'].rfactor('i_o')
// s['y_parts'].reorder('i_o', 'j', 'i_i')
// s['y_parts'].fuse('i_o', 'j')
// s['y_parts'].parallel('i_o_j')
// s['y'].reorder('j', 'i_o')
// s['y'].parallel('j')

extern "C" __global__ void __launch_bounds__(256) k0_y_parts(const float *__restrict__ x, float *__restrict__ y_parts) {
  const int i_o_j = (int)(blockIdx.x * 256u + threadIdx.x);
  float y_parts_sum;
  y_parts_sum = 0.0f;
  for (int i_i = 0; i_i < 64; ++i_i) {
    y_parts_sum = y_parts_sum + x[i_i * 512 + i_o_j + i_o_j / 512 * 32256];
  }
  y_parts[i_o_j] = y_parts_sum;
}

extern "C" __global__ void __launch_bounds__(256) k1_y(float *__restrict__ y, const float *__restrict__ y_parts) {
  const int j = (int)(blockIdx.x * 256u + threadIdx.x);
  float y_sum;
  y_sum = 0.0f;
  for (int i_o = 0; i_o < 64; ++i_o) {
    y_sum = y_sum + y_parts[i_o * 512 + j];
  }
  y[j] = y_sum;
}
