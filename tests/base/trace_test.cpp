#include "base/trace.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

namespace cohort {
namespace {

using namespace std::chrono_literals;

constexpr const char* kParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

TEST(Traceparent, IsReadAsTheSpecificationSays) {
  const auto parent = parse_traceparent(kParent);
  ASSERT_TRUE(parent);
  EXPECT_EQ(parent->trace_id, "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(parent->parent_id, "b7ad6b7169203331");
  EXPECT_TRUE(parse_traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"));
}

TEST(Traceparent, AnythingElseIsNone) {
  for (const std::string header : {"", "00", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
                                   "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-",
                                   "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0",
                                   "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01 ",
                                   "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
                                   " 0-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                                   "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                                   "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                                   "00-00000000000000000000000000000000-b7ad6b7169203331-01",
                                   "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
                                   "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
                                   "00-0af7651916cd43dd8448eb211c80319g-b7ad6b7169203331-01",
                                   "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333\xff-01",
                                   "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0G",
                                   "00_0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331_01"}) {
    EXPECT_FALSE(parse_traceparent(header)) << header;
  }
}

TEST(Tracer, IsOffUnlessSomethingIsDoneWithTraces) {
  Tracer tracer({});
  EXPECT_EQ(tracer.begin(kParent, "id", "/route"), nullptr);
  const TraceSpan span(nullptr, "queue");  // does nothing
}

TEST(Tracer, KeepsTheLastFinishedOnes) {
  Tracer tracer({.keep = 2});
  auto running = tracer.begin("", "running", "/route");
  for (const char* id : {"a", "b", "c"}) tracer.begin("", id, "/route");
  ASSERT_EQ(tracer.recent().size(), 2u);
  EXPECT_EQ(tracer.recent()[0]->request_id, "b");
  EXPECT_EQ(tracer.recent()[1]->request_id, "c");
  running.reset();
  EXPECT_EQ(tracer.recent()[1]->request_id, "running");
}

TEST(Trace, IsFinishedWhenItsLastOwnerLetsGo) {
  Tracer tracer({.keep = 1});
  auto connection = tracer.begin(kParent, "id", "/route");
  auto engine = connection;
  connection->set_outcome(TraceOutcome::kSuccess);
  connection.reset();
  EXPECT_TRUE(tracer.recent().empty());
  {
    TraceSpan span(engine.get(), "decode");
    span.span().tokens = 3;
    std::this_thread::sleep_for(1ms);
  }
  engine.reset();
  ASSERT_EQ(tracer.recent().size(), 1u);
  const TraceRecord& record = *tracer.recent().front();
  EXPECT_EQ(record.outcome, TraceOutcome::kSuccess);
  EXPECT_EQ(record.trace_id, "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(record.parent_id, "b7ad6b7169203331");
  EXPECT_EQ(record.route, "/route");
  ASSERT_EQ(record.spans.size(), 1u);
  const Span& span = record.spans.front();
  EXPECT_STREQ(span.name, "decode");
  EXPECT_EQ(span.tokens, 3);
  EXPECT_GE(span.end - span.begin, 1ms);
  EXPECT_TRUE(record.begin <= span.begin && span.end <= record.end);
}

TEST(Trace, HasAnIdOfItsOwnUnlessTheCallerGaveOne) {
  Tracer tracer({.keep = 2});
  tracer.begin("", "a", "/");
  tracer.begin("00-nonsense", "b", "/");
  const auto recent = tracer.recent();
  for (const auto& record : recent) {
    EXPECT_EQ(record->trace_id.size(), 32u);
    EXPECT_EQ(record->trace_id.find_first_not_of("0123456789abcdef"), std::string::npos);
    EXPECT_EQ(record->parent_id, "");
    EXPECT_EQ(record->outcome, TraceOutcome::kAbort);
  }
  EXPECT_NE(recent[0]->trace_id, recent[1]->trace_id);
}

TEST(Trace, IsBoundedAndKeepsItsEnd) {
  Tracer tracer({.keep = 1});
  auto trace = tracer.begin("", "id", "/");
  for (int64_t i = 0; i < 10'000; ++i) trace->add({.name = "decode", .tokens = i});
  trace->add({.name = "response.last_write"});
  trace.reset();
  const TraceRecord& record = *tracer.recent().front();
  EXPECT_EQ(record.spans.size(), Trace::kSpansMax);
  EXPECT_EQ(record.dropped_spans, 10'001 - Trace::kSpansMax);
  EXPECT_EQ(record.spans[Trace::kSpansMax - 2].tokens, Trace::kSpansMax - 2);
  EXPECT_STREQ(record.spans.back().name, "response.last_write");
}

TEST(Trace, ManyThreadsAddAndFinish) {
  Tracer tracer({.keep = 8});
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&] {
        for (int i = 0; i < 50; ++i) {
          auto trace = tracer.begin("", "id", "/");
          std::jthread engine([trace] { trace->add({.name = "decode"}); });
          trace->add({.name = "request.prompt"});
          tracer.recent();
        }
      });
    }
  }
  ASSERT_EQ(tracer.recent().size(), 8u);
  for (const auto& record : tracer.recent()) EXPECT_EQ(record->spans.size(), 2u);
}

TEST(WorkIds, AreUniqueOverThreads) {
  const uint64_t first = next_work_id();
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 4; ++thread) {
      threads.emplace_back([] {
        for (int i = 0; i < 100; ++i) next_work_id();
      });
    }
  }
  EXPECT_GT(first, 0u);
  EXPECT_EQ(next_work_id(), first + 401);
}

}  // namespace
}  // namespace cohort
