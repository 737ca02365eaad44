#include "tests/support/echo_service.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace cohort::testing {

namespace {

constexpr int32_t kEndToken = 256;

/// How many bytes of `text` may be shown: not a part of a character, nor of a stop string.
size_t safe_length(const std::string& text, const std::vector<std::string>& stops) {
  size_t length = text.size();
  size_t start = length;
  while (start > 0 && length - start < 4 && (text[start - 1] & 0xC0) == 0x80) --start;
  if (start > 0) {
    const auto lead = static_cast<unsigned char>(text[start - 1]);
    const size_t wanted = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
    if (length - start + 1 < wanted) length = start - 1;
  }
  for (const std::string& stop : stops) {
    for (size_t size = std::min(stop.size(), text.size()); size > 0; --size) {
      if (text.ends_with(stop.substr(0, size))) {
        length = std::min(length, text.size() - size);
        break;
      }
    }
  }
  return length;
}

}  // namespace

struct EchoService::Row {
  engine::Request request;
  int choice = 0;
  std::shared_ptr<engine::Stream> stream;
  std::shared_ptr<void> subscription;  // of the last row that has it: to room in the stream
  int64_t max_tokens = 0;
  int64_t made = 0;
  std::string held;
};

EchoService::EchoService(EchoOptions options)
    : options_(std::move(options)),
      info_{.ids = {"echo", "echo-alias", "org/echo"},
            .created_unix_s = 1'700'000'000,
            .context_tokens = options_.context_tokens,
            .vocab_size = options_.vocab_size,
            .has_chat_template = true,
            .kv_scheme = "bf16"},
      thread_([this] { run(); }) {}

EchoService::~EchoService() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

std::vector<int32_t> EchoService::render(const prompt::Conversation& conversation) const {
  std::string text;
  for (const auto& message : conversation.messages) {
    if (message.content == "refuse me") {
      fail(ErrorKind::kInvalidRequest, "the chat template refuses: \"{}\"", message.content);
    }
    text += message.role + ": " + message.content + "\n";
  }
  return tokenize(text);
}

std::vector<int32_t> EchoService::tokenize(std::string_view text) const {
  std::vector<int32_t> ids;
  ids.reserve(text.size());
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

serving::TokenText EchoService::token_text(int32_t id) const {
  if (id == kEndToken) return {.bytes = "<end>", .text = "<end>", .special = true};
  if (id < 0 || id > kEndToken) return {};
  std::string byte(1, static_cast<char>(id));
  return {.bytes = byte, .text = id < 0x80 ? byte : "\uFFFD"};
}

std::shared_ptr<engine::Stream> EchoService::submit(engine::Request request) {
  engine::require_fit(request, options_.context_tokens);
  const uint64_t seed = request.sampling.seed.value_or(fresh_seed_++);
  stats_.prompt_tokens += request.prompt.size();
  auto stream = std::make_shared<engine::Stream>(request.prompt.size(), seed,
                                                 engine::Stream::kCapacity, request.choices);
  stream->on_room([this] {
    std::lock_guard lock(mutex_);
    poked_ = true;
    changed_.notify_one();
  });
  const std::shared_ptr<void> subscription(nullptr, [stream](void*) { stream->on_room({}); });
  const int64_t room = options_.context_tokens - static_cast<int64_t>(request.prompt.size());
  const int64_t max_tokens = std::min(room, request.max_tokens.value_or(room));
  stats_.rows += static_cast<size_t>(request.choices);
  std::lock_guard lock(mutex_);
  last_request_ = request;
  last_request_.trace = nullptr;
  for (int choice = 0; choice < request.choices; ++choice) {
    inbox_.push_back(std::make_unique<Row>(Row{.request = request,
                                               .choice = choice,
                                               .stream = stream,
                                               .subscription = subscription,
                                               .max_tokens = max_tokens}));
  }
  changed_.notify_one();
  return stream;
}

engine::Request EchoService::last_request() const {
  std::lock_guard lock(mutex_);
  return last_request_;
}

void EchoService::run() {
  std::vector<std::unique_ptr<Row>> rows;
  for (;;) {
    const size_t made_before = tokens_made();
    std::erase_if(rows, [&](const auto& row) {
      const bool done = step(*row);
      if (done) --stats_.rows;
      return done;
    });
    if (options_.token_time.count() > 0) std::this_thread::sleep_for(options_.token_time);
    std::unique_lock lock(mutex_);
    const bool idle = tokens_made() == made_before;
    if (idle) changed_.wait(lock, [&] { return stopping_ || poked_ || !inbox_.empty(); });
    poked_ = false;
    if (stopping_) return;
    std::ranges::move(inbox_, std::back_inserter(rows));
    inbox_.clear();
  }
}

/// One token of one row; true when the row is done.
bool EchoService::step(Row& row) {
  if (row.stream->cancelled()) {
    stats_.count_end(engine::FinishReason::kCancelled);
    return true;
  }
  if (options_.silent || row.stream->full()) return false;
  if (options_.fail_at == row.made && options_.fail_choice.value_or(row.choice) == row.choice) {
    stats_.count_end(engine::FinishReason::kError);
    row.stream->push(
        {.choice = row.choice, .finish = engine::FinishReason::kError, .error = options_.failure});
    return true;
  }
  const int32_t token = next_token(row);
  ++row.made;
  ++stats_.generated_tokens;
  engine::TokenEvent event{.choice = row.choice, .ids = {token}};
  if (token < 256) row.held += static_cast<char>(token);
  for (const std::string& stop : row.request.stop) {
    const size_t at = row.held.find(stop);
    if (at == std::string::npos) continue;
    row.held.resize(at);
    event.finish = engine::FinishReason::kStop;
  }
  if (token == kEndToken && !row.request.ignore_eos) {
    event.finish = engine::FinishReason::kStop;
  } else if (row.request.top_logprobs) {
    event.scores.push_back(score(token, *row.request.top_logprobs));
  }
  if (!event.finish && row.made >= row.max_tokens) event.finish = engine::FinishReason::kLength;
  const size_t whole_characters = safe_length(row.held, {});
  const size_t length = event.finish ? whole_characters : safe_length(row.held, row.request.stop);
  event.text = row.held.substr(0, length);
  row.held.erase(0, length);
  const bool done = event.finish.has_value();
  if (done) stats_.count_end(*event.finish);
  row.stream->push(std::move(event));
  return done;
}

int32_t EchoService::next_token(const Row& row) const {
  for (const auto& [id, bias] : row.request.sampling.logit_bias) {
    if (bias == 100) return id;
  }
  if (row.request.sampling.temperature.value_or(0) > 0) {
    uint64_t hash =
        (row.stream->seed() + static_cast<uint64_t>(row.choice) + 1) * 0x9E3779B97F4A7C15u +
        static_cast<uint64_t>(row.made);
    hash = (hash ^ (hash >> 31)) * 0xBF58476D1CE4E5B9u;
    return 'a' + static_cast<int32_t>((hash >> 33) % 26);
  }
  const auto& prompt = row.request.prompt;
  const auto at = static_cast<size_t>(row.made) % (prompt.size() + 1);
  return at == prompt.size() ? kEndToken : prompt[at];
}

engine::ScoredToken EchoService::score(int32_t token, int top) const {
  const auto at_rank = [&](int rank) {
    return engine::TokenLogprob{.id = (token + rank) % options_.vocab_size,
                                .logprob = -static_cast<float>(rank + 1) * std::log(2.0f)};
  };
  engine::ScoredToken scored{.token = at_rank(0), .top = {}};
  for (int rank = 0; rank < top; ++rank) scored.top.push_back(at_rank(rank));
  return scored;
}

}  // namespace cohort::testing
