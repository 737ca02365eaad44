#include "base/metrics.h"

#include <gtest/gtest.h>

#include <limits>
#include <thread>

namespace cohort {
namespace {

using Counts = std::vector<uint64_t>;

TEST(Histogram, AValueOnABoundIsWithinIt) {
  Histogram histogram({1, 2, 5});
  for (const double value : {0.0, 1.0, 1.5, 2.0, 5.0, 5.1, 1e300}) histogram.observe(value);
  EXPECT_EQ(histogram.counts(), (Counts{2, 2, 1, 2}));
}

TEST(Histogram, LosesNothingWhenManyThreadsCount) {
  Histogram histogram({1});
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&] {
        for (int i = 0; i < 10'000; ++i) histogram.observe(i % 2 == 0 ? 1 : 2);
      });
    }
    while (histogram.sum() < 100) histogram.counts();  // read meanwhile
  }
  EXPECT_EQ(histogram.counts(), (Counts{20'000, 20'000}));
  EXPECT_EQ(histogram.sum(), 60'000);
}

TEST(MetricsText, CountersAndGaugesHaveHelpAndType) {
  MetricsText out;
  out.counter("a_total", "What \\ is\ncounted.", 18446744073709551615u);
  out.gauge("b_bytes", "Bytes.", 68719476736.0);
  out.gauge("c", "Inf.", std::numeric_limits<double>::infinity());
  EXPECT_EQ(out.text(),
            "# HELP a_total What \\\\ is\\ncounted.\n# TYPE a_total counter\n"
            "a_total 18446744073709551615\n"
            "# HELP b_bytes Bytes.\n# TYPE b_bytes gauge\nb_bytes 68719476736\n"
            "# HELP c Inf.\n# TYPE c gauge\nc +Inf\n");
}

TEST(MetricsText, LabelsAreEscaped) {
  MetricsText out;
  const MetricsText::Sample samples[] = {{"stop", 1}, {"\"\\\n", 2}};
  out.counter("a_total", "A.", "reason", samples);
  EXPECT_EQ(out.text(),
            "# HELP a_total A.\n# TYPE a_total counter\n"
            "a_total{reason=\"stop\"} 1\na_total{reason=\"\\\"\\\\\\n\"} 2\n");
}

TEST(MetricsText, AHistogramAddsUp) {
  Histogram histogram({0.001, 0.5, 100});
  for (const double value : {0.25, 0.5, 50.0, 1000.0}) histogram.observe(value);
  MetricsText out;
  out.histogram("a_seconds", "A.", histogram);
  EXPECT_EQ(out.text(),
            "# HELP a_seconds A.\n# TYPE a_seconds histogram\n"
            "a_seconds_bucket{le=\"0.001\"} 0\na_seconds_bucket{le=\"0.5\"} 2\n"
            "a_seconds_bucket{le=\"100\"} 3\na_seconds_bucket{le=\"+Inf\"} 4\n"
            "a_seconds_sum 1050.75\na_seconds_count 4\n");
}

}  // namespace
}  // namespace cohort
