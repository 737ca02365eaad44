#include <boost/json.hpp>

#include "api/error_body.h"
#include "api/openai.h"

namespace cohort::api {

namespace json = boost::json;

namespace {

double microseconds(TraceClock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

json::object describe(const Span& span, TraceClock::time_point zero) {
  json::object fields{{"name", span.name},
                      {"begin_us", microseconds(span.begin - zero)},
                      {"duration_us", microseconds(span.end - span.begin)}};
  if (span.work_id != 0) fields["work_id"] = span.work_id;
  if (span.batch != 0) fields["batch"] = span.batch;
  if (span.tokens != 0) fields["tokens"] = span.tokens;
  return fields;
}

json::object describe(const TraceRecord& record) {
  json::array spans;
  spans.reserve(record.spans.size());
  for (const Span& span : record.spans) spans.push_back(describe(span, record.begin));
  return {{"trace_id", record.trace_id},
          {"parent_id", record.parent_id.empty() ? json::value() : json::value(record.parent_id)},
          {"request_id", record.request_id},
          {"route", record.route},
          {"outcome", name_of(record.outcome)},
          {"begin_unix_us", record.begin_unix_us},
          {"duration_us", microseconds(record.end - record.begin)},
          {"spans", std::move(spans)},
          {"dropped_spans", record.dropped_spans}};
}

}  // namespace

Reply show_traces(const Tracer* tracer) {
  if (tracer == nullptr || tracer->keeps() == 0) {
    return error_reply(404, "no traces are kept: start the server with --debug-traces N", "",
                       "traces_off");
  }
  json::array traces;  // the newest last
  for (const auto& record : tracer->recent()) traces.push_back(describe(*record));
  return {.body = json::serialize(json::object{{"traces", std::move(traces)}})};
}

}  // namespace cohort::api
