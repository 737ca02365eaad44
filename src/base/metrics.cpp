#include "base/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace cohort {

namespace {

std::string number(double value) {
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return std::isnan(value) ? "NaN" : fmt::to_string(value);
}

/// Escapes as the format asks: of a label's value the quotes, too.
std::string escaped(std::string_view text, bool quotes) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || (quotes && c == '"')) out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

Histogram::Histogram(std::vector<double> bounds)
    : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

void Histogram::observe(double value) noexcept {
  const auto range = std::ranges::lower_bound(bounds_, value) - bounds_.begin();
  counts_[static_cast<size_t>(range)].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

std::vector<uint64_t> Histogram::counts() const {
  return {counts_.begin(), counts_.end()};
}

void MetricsText::head(std::string_view name, std::string_view help, std::string_view type) {
  fmt::format_to(std::back_inserter(text_), "# HELP {0} {1}\n# TYPE {0} {2}\n", name,
                 escaped(help, false), type);
}

void MetricsText::counter(std::string_view name, std::string_view help, uint64_t value) {
  head(name, help, "counter");
  fmt::format_to(std::back_inserter(text_), "{} {}\n", name, value);
}

void MetricsText::counter(std::string_view name, std::string_view help, std::string_view label,
                          std::span<const Sample> samples) {
  head(name, help, "counter");
  for (const auto& [of_label, count] : samples) {
    fmt::format_to(std::back_inserter(text_), "{}{{{}=\"{}\"}} {}\n", name, label,
                   escaped(of_label, true), count);
  }
}

void MetricsText::gauge(std::string_view name, std::string_view help, double value) {
  head(name, help, "gauge");
  fmt::format_to(std::back_inserter(text_), "{} {}\n", name, number(value));
}

void MetricsText::histogram(std::string_view name, std::string_view help,
                            const Histogram& histogram) {
  head(name, help, "histogram");
  const auto out = std::back_inserter(text_);
  uint64_t so_far = 0;
  const std::vector<uint64_t> counts = histogram.counts();
  for (size_t i = 0; i < counts.size(); ++i) {
    so_far += counts[i];
    const bool bounded = i < histogram.bounds().size();
    fmt::format_to(out, "{}_bucket{{le=\"{}\"}} {}\n", name,
                   bounded ? number(histogram.bounds()[i]) : "+Inf", so_far);
  }
  fmt::format_to(out, "{0}_sum {1}\n{0}_count {2}\n", name, number(histogram.sum()), so_far);
}

}  // namespace cohort
