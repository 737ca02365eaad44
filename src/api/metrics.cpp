#include "base/metrics.h"

#include "api/openai.h"

namespace cohort::api {

namespace {

using engine::EngineStats;

void write_now(const EngineStats& stats, MetricsText& out) {
  const auto gauge = [&](std::string_view name, std::string_view help, size_t value) {
    out.gauge(name, help, static_cast<double>(value));
  };
  gauge("cohort_rows", "Sequences being generated.", stats.rows);
  gauge("cohort_waiting_requests", "Requests accepted and not begun.", stats.waiting);
  gauge("cohort_waiting_tokens", "Prompt tokens of the requests that wait.", stats.waiting_tokens);
  gauge("cohort_parked_rows", "Sequences that gave way to others and will go on.", stats.parked);
  gauge("cohort_kv_used_bytes", "Keys and values of all sequences.", stats.kv_used_bytes);
  gauge("cohort_kv_held_bytes", "Memory taken from the system for keys and values.",
        stats.kv_held_bytes);
  gauge("cohort_prefixes", "Prompts and answers kept for those who begin alike.", stats.prefixes);
  gauge("cohort_prefix_bytes", "What these hold, with their tokens.", stats.prefix_bytes);
  const size_t limit = stats.kv_limit_bytes;
  out.gauge(
      "cohort_kv_limit_bytes", "What keys and values may use; +Inf is no limit.",
      limit == SIZE_MAX ? std::numeric_limits<double>::infinity() : static_cast<double>(limit));
}

void write_counters(const EngineStats& stats, MetricsText& out) {
  out.counter("cohort_iterations_total", "Forwards over all sequences.", stats.iterations);
  out.counter("cohort_failed_forwards_total", "Forwards that failed.", stats.failed_forwards);
  out.counter("cohort_preemptions_total", "Times that a sequence gave way to others.",
              stats.preemptions);
  out.counter("cohort_prompt_tokens_total", "Tokens of prompts, cached ones included.",
              stats.prompt_tokens);
  out.counter("cohort_cached_tokens_total", "Tokens of prompts that were not computed again.",
              stats.cached_tokens);
  out.counter("cohort_prefix_hits_total", "Prompts that began like a kept one.", stats.prefix_hits);
  out.counter("cohort_prefix_misses_total", "Prompts that did not.", stats.prefix_misses);
  out.counter("cohort_prefix_evictions_total", "Kept ones that had to go.", stats.prefix_evictions);
  out.counter("cohort_generated_tokens_total", "Tokens of answers.", stats.generated_tokens);
  out.counter("cohort_resumed_answers_total", "Answers that went on from a checkpoint.",
              stats.resumed_answers);
  constexpr std::string_view kReasons[] = {"stop", "length", "cancelled", "error"};
  std::vector<MetricsText::Sample> ended;  // in the order of engine::FinishReason
  for (const std::string_view reason : kReasons) {
    ended.emplace_back(reason, stats.ended[ended.size()].load());
  }
  out.counter("cohort_requests_ended_total", "Requests that have ended, by how.", "reason", ended);
}

void write_distributions(const EngineStats& stats, MetricsText& out) {
  out.histogram("cohort_time_to_first_token_seconds", "From the request to its first token.",
                stats.time_to_first_token_s);
  out.histogram("cohort_inter_token_seconds", "Between two tokens of a sequence.",
                stats.inter_token_s);
  out.histogram("cohort_queue_seconds", "From the request to its beginning.", stats.queue_s);
  out.histogram("cohort_iteration_seconds", "Of one forward with all around it.",
                stats.iteration_s);
  out.histogram("cohort_batch_rows", "Sequences of one forward.", stats.batch_rows);
}

void write_ssd(const store::SsdStats& stats, MetricsText& out) {
  out.gauge("cohort_ssd_files", "Prefixes on SSD.", static_cast<double>(stats.files));
  out.gauge("cohort_ssd_bytes", "What they take.", static_cast<double>(stats.bytes));
  out.counter("cohort_ssd_hits_total", "Prefixes restored.", stats.hits);
  out.counter("cohort_ssd_misses_total", "Prompts without a file of use.", stats.misses);
  out.counter("cohort_ssd_written_bytes_total", "Written.", stats.written_bytes);
  out.counter("cohort_ssd_restored_bytes_total", "Read.", stats.restored_bytes);
  out.counter("cohort_ssd_damaged_total", "Files that were no whole record.", stats.damaged);
  out.counter("cohort_ssd_dropped_total", "Snapshots that were not written.", stats.dropped);
  out.counter("cohort_ssd_errors_total", "Reads and writes that failed.",
              stats.write_errors + stats.read_errors);
}

}  // namespace

Reply show_metrics(const serving::ModelService& service) {
  const EngineStats& stats = service.stats();
  MetricsText out;
  write_now(stats, out);
  write_counters(stats, out);
  write_distributions(stats, out);
  if (const auto ssd = service.ssd_stats()) write_ssd(*ssd, out);
  return {.body = out.text(), .content_type = MetricsText::kContentType};
}

}  // namespace cohort::api
