// Activations, rotation and what sampling needs, element by element. Part of kernels.inl.

inline F activate(Activation activation, F x) {
  if (activation == Activation::kSilu) {
    return div(x, add(set1(1), exp_lanes(sub(set1(0), x))));
  }
  // 0.5 x (1 + tanh(u)) = x / (1 + exp(-2u)), u = sqrt(2 / pi) (x + 0.044715 x^3)
  const F cube = mul(mul(x, x), x);
  const F u = mul(set1(0.797884561f), fma(set1(0.044715f), cube, x));
  return div(x, add(set1(1), exp_lanes(mul(set1(-2), u))));
}

void gate(Activation activation, const float* gates, const float* up, int n, float* out) {
  for (int i = 0; i < n; i += 16) {
    const F g = activate(activation, load_part(gates + i, n - i));
    store_part(out + i, mul(g, load_part(up + i, n - i)), n - i);
  }
}

void rope(const float* x, const float* cos_sin, int half, float scale, float* out) {
  for (int i = 0; i < half; i += 16) {
    const int n = half - i;
    const F a = load_part(x + i, n), b = load_part(x + half + i, n);
    const F c = load_part(cos_sin + i, n), s = load_part(cos_sin + half + i, n);
    store_part(out + i, mul(sub(mul(a, c), mul(b, s)), set1(scale)), n);
    store_part(out + half + i, mul(add(mul(b, c), mul(a, s)), set1(scale)), n);
  }
}

int64_t argmax(const float* x, int64_t n) {
  F largest = set1(-std::numeric_limits<float>::infinity());
  for (int64_t i = 0; i + 16 <= n; i += 16) largest = max(load(x + i), largest);  // NaN is skipped
  float value = max_lanes(largest);
  for (int64_t i = n / 16 * 16; i < n; ++i) value = x[i] > value ? x[i] : value;
  for (int64_t i = 0; i < n; ++i) {
    if (x[i] == value) return i;
  }
  return 0;
}

void exp_shifted(const float* x, float shift, float factor, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i += 16) {
    const int left = n - i < 16 ? static_cast<int>(n - i) : 16;
    const F v = mul(sub(load_part(x + i, left), set1(shift)), set1(factor));
    store_part(out + i, exp_lanes(v), left);
  }
}
