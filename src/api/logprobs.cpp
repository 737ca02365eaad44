#include "api/logprobs.h"

#include <algorithm>
#include <utility>

namespace cohort::api {

namespace json = boost::json;

namespace {

size_t characters(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

json::object chat_token(const engine::TokenLogprob& token, const serving::ModelService& service) {
  const serving::TokenText text = service.token_text(token.id);
  json::array bytes;
  bytes.reserve(text.bytes.size());
  for (const char byte : text.bytes) bytes.push_back(static_cast<unsigned char>(byte));
  return {{"token", text.text}, {"logprob", token.logprob}, {"bytes", std::move(bytes)}};
}

}  // namespace

std::vector<PlacedScore> TextPosition::place(const engine::TokenEvent& event,
                                             const serving::ModelService& service) {
  std::vector<PlacedScore> placed;
  placed.reserve(event.scores.size());
  for (const engine::ScoredToken& scored : event.scores) {
    placed.push_back({.scored = scored, .offset = shown_ + characters(held_)});
    const serving::TokenText text = service.token_text(scored.token.id);
    if (!text.special) held_ += text.bytes;
  }
  if (event.text.empty()) return placed;
  shown_ += characters(event.text);
  // The text begins what is held, behind a space that some tokenizers drop at the start of a text.
  // It differs where bytes were no character: then nothing is known to be held.
  const size_t at = held_.find(event.text);
  held_.erase(0, at == std::string::npos ? at : at + event.text.size());
  return placed;
}

json::object chat_logprobs(std::span<const PlacedScore> scores,
                           const serving::ModelService& service) {
  json::array content;
  for (const PlacedScore& score : scores) {
    json::object token = chat_token(score.scored.token, service);
    json::array top;
    for (const engine::TokenLogprob& other : score.scored.top) {
      top.push_back(chat_token(other, service));
    }
    token["top_logprobs"] = std::move(top);
    content.push_back(std::move(token));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

json::object completion_logprobs(std::span<const PlacedScore> scores,
                                 const serving::ModelService& service) {
  json::array tokens, logprobs, tops, offsets;
  for (const auto& [scored, offset] : scores) {
    const std::string text = service.token_text(scored.token.id).text;
    json::object top;
    // Of tokens with the same text, the likeliest one counts: it comes first.
    for (const engine::TokenLogprob& other : scored.top) {
      top.emplace(service.token_text(other.id).text, other.logprob);
    }
    top.emplace(text, scored.token.logprob);
    tokens.emplace_back(text);
    logprobs.emplace_back(scored.token.logprob);
    tops.push_back(std::move(top));
    offsets.emplace_back(offset);
  }
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

}  // namespace cohort::api
