#include "api/generation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "api/error_body.h"
#include "api/json_input.h"
#include "api/priority.h"
#include "base/printable.h"
#include "base/random_hex.h"

namespace cohort::api {

namespace json = boost::json;

namespace {

int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
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

json::object usage(const engine::Stream& stream, size_t completion_tokens) {
  const size_t prompt_tokens = stream.prompt_tokens();
  return {{"prompt_tokens", prompt_tokens},
          {"completion_tokens", completion_tokens},
          {"total_tokens", prompt_tokens + completion_tokens},
          {"prompt_tokens_details", json::object{{"cached_tokens", stream.cached_tokens()}}},
          {"completion_tokens_details", json::object{{"reasoning_tokens", 0}}}};
}

json::object choice(int index, json::object part, json::value logprobs, json::value finish_reason) {
  json::object result{{"index", index}};
  for (auto& [key, value] : part) result[key] = std::move(value);
  result["logprobs"] = std::move(logprobs);
  result["finish_reason"] = std::move(finish_reason);
  return result;
}

json::value logprobs_of(const AnswerShape& shape, const AnswerHead& head,
                        std::span<const PlacedScore> scores) {
  return head.scorer == nullptr ? json::value(nullptr) : shape.logprobs(scores, *head.scorer);
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

std::string model_id(std::string_view asked, const serving::ModelInfo& info) {
  if (std::ranges::find(info.ids, asked) != info.ids.end()) return std::string(asked);
  throw Error(ErrorKind::kNotFound,
              fmt::format("the model {} does not exist; this server has '{}'", printable(asked),
                          fmt::join(info.ids, "', '")),
              "model", "model_not_found");
}

Outcome generate(serving::ModelService& service, const Call& call, Draft draft,
                 std::vector<int32_t> prompt, std::string_view prompt_field,
                 const AnswerShape& shape) {
  const serving::ModelInfo& info = service.info();
  AnswerHead head{.id = fmt::format("{}{}", shape.id_prefix, random_hex(24)),
                  .model = draft.model ? model_id(*draft.model, info) : info.ids.front(),
                  .created_unix_s = unix_seconds(),
                  .choices = static_cast<size_t>(draft.request.choices),
                  .scorer = draft.request.top_logprobs ? &service : nullptr};
  const engine::Priority of_header = read_priority_header(call.priority);
  draft.request.id = call.request_id;
  draft.request.own_id = call.own_request_id;
  require_short(call.session, "the session in the head", "");
  if (draft.request.session.empty()) draft.request.session = call.session;
  draft.request.client = call.client;
  draft.request.priority = draft.priority.value_or(of_header);
  draft.request.trace = call.trace;
  draft.request.prompt = std::move(prompt);
  draft.request.prompt_field = prompt_field;
  std::shared_ptr<engine::Stream> stream = service.submit(std::move(draft.request));
  head.seed = stream->seed();
  head.stream = stream;
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
  check(!all.empty() && all.back().last, "an answer is complete when its stream has finished");
  if (const auto failure = failure_of(all.back())) return error_reply(*failure);
  struct Choice {
    std::string text;
    TextPosition position;
    std::vector<PlacedScore> scores;
    json::value finish;
  };
  std::vector<Choice> choices(head.choices);
  size_t completion_tokens = 0;
  for (const engine::TokenEvent& event : all) {
    Choice& choice = choices.at(static_cast<size_t>(event.choice));
    choice.text += event.text;
    completion_tokens += event.ids.size();
    if (head.scorer != nullptr) {
      std::ranges::move(choice.position.place(event, *head.scorer),
                        std::back_inserter(choice.scores));
    }
    if (event.finish) choice.finish = finish_name(*event.finish);
  }
  json::array list;
  for (Choice& one : choices) {
    list.push_back(choice(static_cast<int>(list.size()), shape.whole(one.text),
                          logprobs_of(shape, head, one.scores), std::move(one.finish)));
  }
  json::object answer = body(shape.object, head, std::move(list));
  answer["usage"] = usage(*head.stream, completion_tokens);
  return {.body = json::serialize(answer)};
}

std::string ChunkWriter::write(const Events& arrived) {
  std::string out;
  for (const engine::TokenEvent& event : arrived) write_event(event, out);
  return out;
}

void ChunkWriter::write_event(const engine::TokenEvent& event, std::string& out) {
  const auto write_part = [&](json::object part, json::value logprobs, json::value finish) {
    write_chunk({choice(event.choice, std::move(part), std::move(logprobs), std::move(finish))},
                nullptr, out);
  };
  Choice& state = choices_.at(static_cast<size_t>(event.choice));
  if (!std::exchange(state.opened, true) && shape_.opening) {
    write_part(shape_.opening(), nullptr, nullptr);
  }
  completion_tokens_ += event.ids.size();
  std::vector<PlacedScore> scores;
  if (head_.scorer != nullptr) scores = state.position.place(event, *head_.scorer);
  if (!event.text.empty() || !scores.empty()) {
    write_part(shape_.piece(event.text),
               scores.empty() ? json::value(nullptr) : logprobs_of(shape_, head_, scores), nullptr);
  }
  if (const auto failure = failure_of(event)) return append_event(error_body(*failure), out);
  if (event.finish) write_part(shape_.closing(), nullptr, finish_name(*event.finish));
  if (!event.last) return;
  if (include_usage_) write_chunk({}, usage(*head_.stream, completion_tokens_), out);
  append_event("[DONE]", out);
}

void ChunkWriter::write_chunk(json::array choices, json::value usage, std::string& out) {
  json::object chunk = body(shape_.chunk_object, head_, std::move(choices));
  if (include_usage_) chunk["usage"] = std::move(usage);
  append_event(json::serialize(chunk), out);
}

}  // namespace cohort::api
