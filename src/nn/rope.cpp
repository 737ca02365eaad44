#include "nn/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace cohort::nn {
namespace {

constexpr double kTau = 2 * std::numbers::pi;

double llama3_frequency(const RopeSettings& s, double frequency) {
  const double wavelength = kTau / frequency;
  if (wavelength > s.original_context / s.low_freq_factor) return frequency / s.factor;
  if (wavelength < s.original_context / s.high_freq_factor) return frequency;
  const double smooth = (s.original_context / wavelength - s.low_freq_factor) /
                        (s.high_freq_factor - s.low_freq_factor);
  return (1 - smooth) * frequency / s.factor + smooth * frequency;
}

/// Which share of pair `i` keeps its own frequency, 1 for fast pairs, 0 for slow ones.
double yarn_kept(const RopeSettings& s, int dims, int i) {
  const auto dim_of_rotations = [&](double rotations) {
    return dims * std::log(s.original_context / (rotations * kTau)) / (2 * std::log(s.theta));
  };
  double low = dim_of_rotations(s.beta_fast), high = dim_of_rotations(s.beta_slow);
  if (s.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dims - 1.0);
  if (low == high) high += 0.001;
  return 1 - std::clamp((i - low) / (high - low), 0.0, 1.0);
}

double yarn_magnitude(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1;
}

double yarn_scale(const RopeSettings& s) {
  if (s.attention_factor > 0) return s.attention_factor;
  if (s.mscale > 0 && s.mscale_all_dim > 0) {
    return yarn_magnitude(s.factor, s.mscale) / yarn_magnitude(s.factor, s.mscale_all_dim);
  }
  return yarn_magnitude(s.factor, 1);
}

}  // namespace

Rope::Rope(int dims, const RopeSettings& s, std::span<const float> factors) : dims_(dims) {
  for (int i = 0; i < dims / 2; ++i) {
    double frequency = std::pow(s.theta, -2.0 * i / dims);
    if (s.type == "linear") {
      frequency /= s.factor;
    } else if (s.type == "llama3") {
      frequency = llama3_frequency(s, frequency);
    } else if (s.type == "yarn") {
      const double kept = yarn_kept(s, dims, i);
      frequency = frequency / s.factor * (1 - kept) + frequency * kept;
    } else {
      check(s.type == "default", "a rope type is one that was checked");
    }
    if (!factors.empty()) frequency /= factors[static_cast<size_t>(i)];
    inverse_frequencies_.push_back(static_cast<float>(frequency));
  }
  if (s.type == "yarn") scale_ = static_cast<float>(yarn_scale(s));
}

mx::array Rope::table(std::span<const int64_t> positions) const {
  const size_t half = inverse_frequencies_.size();
  std::vector<float> values(positions.size() * 2 * half);
  float* out = values.data();
  for (int64_t position : positions) {
    for (size_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(position) * inverse_frequencies_[i];
      out[i] = static_cast<float>(std::cos(double{angle})) * scale_;
      out[half + i] = static_cast<float>(std::sin(double{angle})) * scale_;
    }
    out += 2 * half;
  }
  return mx::array(values.begin(), {static_cast<int>(positions.size()), dims_}, mx::float32);
}

}  // namespace cohort::nn
