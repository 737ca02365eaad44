#include "api/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "api/error_body.h"
#include "api/json_input.h"
#include "api/priority.h"
#include "base/random_hex.h"

namespace cohort::api {

namespace json = boost::json;

namespace {

int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

/// The model's name as the caller wrote it.
std::string resolve_model(const std::optional<std::string>& asked, const serving::ModelInfo& info) {
  if (!asked) return info.ids.front();
  if (std::ranges::find(info.ids, *asked) != info.ids.end()) return *asked;
  throw Error(ErrorKind::kNotFound,
              fmt::format("the model {} does not exist; this server has {}", quoted(*asked),
                          quoted(info.ids.front())),
              "model", "model_not_found");
}

Error draining() {
  return {ErrorKind::kUnavailable, "the server is shutting down", "", "server_draining"};
}

json::value finish_name(engine::FinishReason finish) {
  return finish == engine::FinishReason::kLength ? "length" : "stop";
}

/// The failure that ended a generation, if it did not end well.
std::optional<Error> failure_of(const engine::TokenEvent& event) {
  if (event.finish == engine::FinishReason::kError) {
    return event.error.value_or(Error(ErrorKind::kInternal, "a stream ended without its error"));
  }
  if (event.finish == engine::FinishReason::kCancelled) {
    return draining();  // who hears of it did not cancel it
  }
  return std::nullopt;
}

json::object usage(size_t prompt_tokens, size_t completion_tokens) {
  return {{"prompt_tokens", prompt_tokens},
          {"completion_tokens", completion_tokens},
          {"total_tokens", prompt_tokens + completion_tokens},
          {"prompt_tokens_details", json::object{{"cached_tokens", 0}}},
          {"completion_tokens_details", json::object{{"reasoning_tokens", 0}}}};
}

json::object choice(json::object part, json::value finish_reason) {
  json::object result{{"index", 0}};
  for (auto& [key, value] : part) result[key] = std::move(value);
  result["logprobs"] = nullptr;
  result["finish_reason"] = std::move(finish_reason);
  return result;
}

json::object body(std::string_view object, const AnswerHead& head, json::array choices) {
  return {{"id", head.id},
          {"object", object},
          {"created", head.created_unix_s},
          {"model", head.model},
          {"system_fingerprint", fmt::format("cohort-seed-{}", head.seed)},
          {"seed", head.seed},
          {"choices", std::move(choices)}};
}

void append_event(std::string_view data, std::string& out) {
  out.append("data: ").append(data).append("\n\n");
}

}  // namespace

void require_ready(const serving::ModelService& service) {
  const auto refuse_all = [](std::string_view why, std::string_view code) {
    throw Error(ErrorKind::kUnavailable, std::string(why), "", std::string(code));
  };
  switch (service.health()) {
    case serving::Health::kReady:
      return;
    case serving::Health::kLoading:
      return refuse_all("the model is still loading", "model_loading");
    case serving::Health::kDraining:
      throw draining();
    case serving::Health::kDead:
      return refuse_all("the engine has stopped after a failure", "engine_dead");
  }
}

Outcome generate(serving::ModelService& service, const Call& call, Draft draft,
                 std::vector<int32_t> prompt, std::string_view prompt_field,
                 const AnswerShape& shape) {
  const serving::ModelInfo& info = service.info();
  AnswerHead head{.id = fmt::format("{}{}", shape.id_prefix, random_hex(24)),
                  .model = resolve_model(draft.model, info),
                  .created_unix_s = unix_seconds()};
  const engine::Priority of_header = read_priority_header(call.priority);
  draft.request.id = call.request_id;
  draft.request.client = call.client;
  draft.request.priority = draft.priority.value_or(of_header);
  draft.request.trace = call.trace;
  draft.request.prompt = std::move(prompt);
  draft.request.prompt_field = prompt_field;
  std::shared_ptr<engine::Stream> stream = service.submit(std::move(draft.request));
  head.seed = stream->seed();
  head.prompt_tokens = stream->prompt_tokens();
  if (!draft.stream) {
    return Deferred{.stream = std::move(stream),
                    .complete = [&shape, head = std::move(head)](const Events& all) {
                      return whole_answer(shape, head, all);
                    }};
  }
  auto writer = std::make_shared<ChunkWriter>(shape, std::move(head), draft.include_usage);
  return Streamed{.stream = std::move(stream),
                  .format = [writer](const Events& arrived) { return writer->write(arrived); }};
}

Reply whole_answer(const AnswerShape& shape, const AnswerHead& head, const Events& all) {
  check(!all.empty() && all.back().finish, "an answer is complete when its stream has finished");
  if (const auto failure = failure_of(all.back())) return error_reply(*failure);
  std::string text;
  size_t completion_tokens = 0;
  for (const engine::TokenEvent& event : all) {
    text += event.text;
    completion_tokens += event.ids.size();
  }
  json::object answer =
      body(shape.object, head, {choice(shape.whole(text), finish_name(*all.back().finish))});
  answer["usage"] = usage(head.prompt_tokens, completion_tokens);
  return {.body = json::serialize(answer)};
}

std::string ChunkWriter::write(const Events& arrived) {
  std::string out;
  if (!opened_ && shape_.opening) write_choice(shape_.opening(), nullptr, out);
  opened_ = true;
  for (const engine::TokenEvent& event : arrived) write_event(event, out);
  return out;
}

void ChunkWriter::write_event(const engine::TokenEvent& event, std::string& out) {
  completion_tokens_ += event.ids.size();
  if (!event.text.empty()) write_choice(shape_.piece(event.text), nullptr, out);
  if (!event.finish) return;
  if (const auto failure = failure_of(event)) return append_event(error_body(*failure), out);
  write_choice(shape_.piece(""), finish_name(*event.finish), out);
  if (include_usage_) {
    json::object chunk = body(shape_.chunk_object, head_, {});
    chunk["usage"] = usage(head_.prompt_tokens, completion_tokens_);
    append_event(json::serialize(chunk), out);
  }
  append_event("[DONE]", out);
}

void ChunkWriter::write_choice(json::object part, json::value finish_reason, std::string& out) {
  json::object chunk =
      body(shape_.chunk_object, head_, {choice(std::move(part), std::move(finish_reason))});
  if (include_usage_) chunk["usage"] = nullptr;
  append_event(json::serialize(chunk), out);
}

}  // namespace cohort::api
