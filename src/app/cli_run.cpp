#include <fmt/format.h>

#include <boost/json.hpp>

#include <chrono>
#include <iostream>
#include <string>

#include "app/commands.h"
#include "app/loading.h"
#include "app/output.h"
#include "base/error.h"
#include "base/printable.h"
#include "base/say.h"

namespace cohort::app {
namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

/// A whole answer with its times.
struct Answer {
  std::string text;
  std::vector<int32_t> ids;
  size_t prompt_tokens = 0;
  uint64_t seed = 0;
  engine::FinishReason finish = engine::FinishReason::kStop;
  double first_token_s = 0;
  double decode_s = 0;  // from the first token to the last
};

/// Runs one request, showing text as it comes if `show`.
///   throws  the error that ended it
Answer answer(serving::ModelBinding& binding, engine::Request request, bool show) {
  const auto start = Clock::now();
  const auto stream = binding.submit(std::move(request));
  Answer result{.prompt_tokens = stream->prompt_tokens(), .seed = stream->seed()};
  Clock::time_point first{};
  for (bool ended = false; !ended;) {
    for (const engine::TokenEvent& event : stream->wait()) {
      const auto now = Clock::now();
      if (result.ids.empty() && !event.ids.empty()) first = now;
      result.text += event.text;
      result.ids.insert(result.ids.end(), event.ids.begin(), event.ids.end());
      if (show) {
        fmt::print("{}", event.text);
        flush_output();
      }
      if (event.error) throw *event.error;
      if (event.finish) {
        result.finish = *event.finish;
        result.decode_s = seconds(first, now);
        ended = true;
      }
    }
  }
  result.first_token_s = seconds(start, first);
  return result;
}

const char* finish_name(engine::FinishReason reason) {
  return reason == engine::FinishReason::kLength ? "length" : "stop";
}

void print_json(const Answer& a) {
  boost::json::object out;
  out["text"] = a.text;
  out["ids"] = boost::json::value_from(a.ids);
  out["prompt_tokens"] = a.prompt_tokens;
  out["completion_tokens"] = a.ids.size();
  out["finish_reason"] = finish_name(a.finish);
  out["seed"] = a.seed;
  out["prefill_tok_s"] = static_cast<double>(a.prompt_tokens) / a.first_token_s;
  out["decode_tok_s"] = a.ids.size() > 1 ? static_cast<double>(a.ids.size() - 1) / a.decode_s : 0.0;
  out["ttft_ms"] = a.first_token_s * 1000;
  fmt::print("{}\n", boost::json::serialize(out));
}

/// One line after the other; the conversation grows until the end of input. A turn that the
/// template or the model refuses is taken back, and the person may try another.
int chat(serving::ModelBinding& binding, std::optional<uint64_t> seed) {
  prompt::Conversation conversation;
  std::string line;
  for (;;) {
    say("> ");
    if (!std::getline(std::cin, line)) break;
    if (line.empty()) continue;
    conversation.messages.push_back({"user", line, {}});
    try {
      engine::Request request{.prompt = binding.render(conversation)};
      request.sampling.seed = seed;
      const Answer reply = answer(binding, std::move(request), true);
      fmt::print("\n");
      conversation.messages.push_back({"assistant", reply.text, {}});
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kInvalidRequest) throw;
      say("cohort: error: {}\n", error.what());
      conversation.messages.pop_back();
    }
  }
  return 0;
}

}  // namespace

int run_run(const Settings& settings, const RunOptions& options) {
  if (options.prompt_is_a_guess) {
    say("cohort: there is no model called {}: taken as the prompt\n", printable(*options.prompt));
  }
  serving::ModelBinding binding(binding_options(settings, find_model(settings)));
  if (!options.prompt && !options.ids_file) return chat(binding, options.seed);
  engine::Request request;
  request.sampling.seed = options.seed;
  request.max_tokens = settings.max_tokens;
  if (options.ids_file) {
    request.prompt = read_ids(*options.ids_file);
  } else if (binding.info().has_chat_template) {
    request.prompt = binding.render({.messages = {{"user", *options.prompt, {}}}});
  } else {
    request.prompt = binding.tokenize(*options.prompt);
  }
  const Answer result = answer(binding, std::move(request), !options.json);
  if (options.json) {
    print_json(result);
  } else {
    fmt::print("\n");
  }
  return 0;
}

}  // namespace cohort::app
