#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort {

/// How many values fell into each of some fixed ranges.
///   thread  any; no call waits for another
class Histogram {
 public:
  ///   bounds  upper ends of the ranges, included, rising; what is above the last one counts, too
  explicit Histogram(std::vector<double> bounds);

  /// Counts a value; allocates nothing.
  void observe(double value) noexcept;

  const std::vector<double>& bounds() const { return bounds_; }
  /// Of each range, and of what is above the last bound.
  std::vector<uint64_t> counts() const;
  double sum() const { return sum_; }

 private:
  const std::vector<double> bounds_;
  std::vector<std::atomic<uint64_t>> counts_;
  std::atomic<double> sum_ = 0;
};

/// Metrics as text that Prometheus reads.
///   source  https://prometheus.io/docs/instrumenting/exposition_formats (version 0.0.4)
class MetricsText {
 public:
  static constexpr const char* kContentType = "text/plain; version=0.0.4; charset=utf-8";
  using Sample = std::pair<std::string_view, uint64_t>;  // value of the label, count

  void counter(std::string_view name, std::string_view help, uint64_t value);
  /// One counter, counted apart for each value of a label.
  void counter(std::string_view name, std::string_view help, std::string_view label,
               std::span<const Sample> samples);
  void gauge(std::string_view name, std::string_view help, double value);
  void histogram(std::string_view name, std::string_view help, const Histogram& histogram);

  const std::string& text() const { return text_; }

 private:
  void head(std::string_view name, std::string_view help, std::string_view type);
  std::string text_;
};

}  // namespace cohort
