// The file of trace events as a viewer reads it.
#include "base/trace_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "base/error.h"

namespace cohort {
namespace {

namespace json = boost::json;
using namespace std::chrono_literals;

class TraceFiles : public ::testing::Test {
 protected:
  TraceFiles() { std::filesystem::create_directory(folder_); }
  ~TraceFiles() override { std::filesystem::remove_all(folder_); }

  std::string text() const {
    std::ostringstream out;
    out << std::ifstream(path).rdbuf();
    return out.str();
  }
  /// As viewers do: a bracket that is missing is thought of.
  json::array events() const {
    const std::string all = text();
    return json::parse(all.ends_with("]\n") ? all : all + "]").as_array();
  }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("cohort_traces_" + std::to_string(::getpid()));
  const std::string path = (folder_ / "trace.json").string();
  std::vector<std::string> log;
  TracerOptions options{.file = path,
                        .log = [this](std::string_view line) { log.emplace_back(line); }};
};

/// The whole time of each request, or its other spans.
std::vector<json::object> spans_of(const json::array& events, bool whole) {
  std::vector<json::object> spans;
  for (const json::value& event : events) {
    const bool is_whole = event.at("args").as_object().contains("outcome");
    if (event.at("ph") == "X" && is_whole == whole) spans.push_back(event.as_object());
  }
  return spans;
}

TEST_F(TraceFiles, ReadAtAnyTime) {
  {
    Tracer tracer(options);
    EXPECT_EQ(events().size(), 1u);  // the name of the process
    tracer.begin("", "first", "/v1/completions");
    EXPECT_EQ(spans_of(events(), true).size(), 1u);
    tracer.begin("", "second", "/v1/completions");
    EXPECT_EQ(spans_of(events(), true).size(), 2u);
    EXPECT_FALSE(text().ends_with("]\n"));
  }
  EXPECT_TRUE(text().ends_with("]\n"));
  EXPECT_EQ(spans_of(json::parse(text()).as_array(), true).size(), 2u);
}

TEST_F(TraceFiles, SayWhatIsKnownOfEachSpan) {
  Tracer tracer(options);
  auto trace = tracer.begin("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "a\"b\\c",
                            "/v1/completions");
  std::this_thread::sleep_for(2ms);
  const auto begin = TraceClock::now() - 1500us;
  trace->add({.name = "prefill.forward",
              .begin = begin,
              .end = begin + 1'234'567ns,
              .work_id = 7,
              .batch = 3,
              .tokens = 64});
  trace->set_outcome(TraceOutcome::kError);
  trace.reset();
  const json::object span = spans_of(events(), false).at(0);
  EXPECT_EQ(span.at("name"), "prefill.forward");
  EXPECT_EQ(span.at("dur").as_double(), 1234.567);
  EXPECT_EQ(span.at("args"),
            json::parse(R"({"request_id":"a\"b\\c","trace_id":"0af7651916cd43dd8448eb211c80319c",
                            "work_id":7,"batch":3,"tokens":64})"));
  const json::object whole = spans_of(events(), true).at(0);
  EXPECT_EQ(whole.at("name"), "/v1/completions");
  EXPECT_EQ(whole.at("args").at("outcome"), "error");
  EXPECT_EQ(whole.at("args").at("parent_id"), "b7ad6b7169203331");
  EXPECT_EQ(whole.at("tid"), span.at("tid"));
  std::map<int64_t, json::value> names;
  for (const json::value& event : events()) {
    if (event.at("name") == "thread_name") names[event.at("tid").as_int64()] = event.at("args");
  }
  EXPECT_EQ(names.at(span.at("tid").as_int64()).at("name"), "/v1/completions a\"b\\c");
}

/// Viewers drop a span that overlaps another of its thread without lying within it.
TEST_F(TraceFiles, SpansOfOneThreadNest) {
  Tracer tracer(options);
  for (int request = 0; request < 2; ++request) {
    auto trace = tracer.begin("", "id", "/v1/completions");
    const auto zero = TraceClock::now();
    const auto add = [&](const char* name, int from_us, int to_us) {
      trace->add({.name = name,
                  .begin = zero + std::chrono::microseconds(from_us),
                  .end = zero + std::chrono::microseconds(to_us)});
    };
    add("decode", 0, 10);
    add("response.first_write", 8, 12);  // begins within one forward, ends within the next
    add("decode", 10, 20);
    add("sample", 18, 20);
    add("response.last_write", 18, 25);
    add("same", 30, 30);
    add("same", 30, 30);
    std::this_thread::sleep_for(1ms);
  }
  std::map<int64_t, std::vector<std::pair<double, double>>> by_thread;
  for (const json::value& event : events()) {
    if (event.at("ph") != "X") continue;
    const double ts = event.at("ts").to_number<double>();
    by_thread[event.at("tid").as_int64()].emplace_back(ts,
                                                       ts + event.at("dur").to_number<double>());
  }
  EXPECT_EQ(by_thread.size(), 4u);
  size_t spans = 0;
  for (const auto& [thread, times] : by_thread) {
    spans += times.size();
    for (const auto& [a, b] : times) {
      for (const auto& [c, d] : times) {
        const double slack = 0.0005;  // of decimal fractions
        EXPECT_FALSE(a + slack < c && c + slack < b && b + slack < d) << a << b << c << d;
      }
    }
  }
  EXPECT_EQ(spans, 16u);
}

TEST_F(TraceFiles, ThatCannotBeWrittenAreAnErrorAtTheStart) {
  for (const std::string& bad : {folder_.string(), path + "/x", std::string("/dev/full")}) {
    try {
      Tracer tracer({.file = bad});
      FAIL() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInvalidRequest);
      EXPECT_NE(std::string(error.what()).find("--trace " + bad), std::string::npos);
    }
  }
}

TEST_F(TraceFiles, EndWithOneLineWhereTheyMayNotGrow) {
  options.file_bytes_max = 2000;
  options.keep = 3;
  Tracer tracer(options);
  for (int i = 0; i < 20; ++i) tracer.begin("", std::to_string(i), "/v1/completions");
  ASSERT_EQ(log.size(), 1u);
  EXPECT_NE(log[0].find(path), std::string::npos);
  EXPECT_NE(log[0].find("--trace-limit-mb"), std::string::npos);
  EXPECT_LE(text().size(), 2000u);
  const auto spans = spans_of(json::parse(text()).as_array(), true);
  ASSERT_GE(spans.size(), 2u);
  EXPECT_LT(spans.size(), 20u);
  for (size_t i = 0; i < spans.size(); ++i) {
    EXPECT_EQ(spans[i].at("args").at("request_id").as_string(), std::to_string(i));
  }
  EXPECT_EQ(tracer.recent().back()->request_id, "19");
}

TEST_F(TraceFiles, ThatTakeNoMoreCostNoTrace) {
  options.file_bytes_max = 100;
  Tracer tracer(options);
  EXPECT_NE(tracer.begin("", "first", "/v1/completions"), nullptr);
  EXPECT_EQ(tracer.begin("", "second", "/v1/completions"), nullptr);
}

TEST_F(TraceFiles, AFullDiskEndsThemWithOneLine) {
  Tracer tracer(options);
  tracer.begin("", "first", "/v1/completions");
  const auto size = std::filesystem::file_size(path);
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit full{.rlim_cur = size + 100, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
  tracer.begin("", "second", "/v1/completions");
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  tracer.begin("", "third", "/v1/completions");
  ASSERT_EQ(log.size(), 1u);
  EXPECT_NE(log[0].find(path), std::string::npos);
  EXPECT_EQ(std::filesystem::file_size(path), size);  // no half of an event
  EXPECT_EQ(spans_of(events(), true).size(), 1u);
}

}  // namespace
}  // namespace cohort
