#include "serving/answer_identity.h"

#include <fmt/format.h>

#include "base/sha256.h"

namespace cohort::serving {
namespace {

/// Its length first, so that no two lists of texts are alike.
void add(Sha256& hash, std::string_view text) {
  const uint64_t size = text.size();
  hash.update(std::as_bytes(std::span(&size, 1)));
  hash.update(std::as_bytes(std::span(text)));
}

std::string numbers_of(const engine::Request& request, const engine::SamplingParams& sampling) {
  const auto said = [](const auto& value) { return value ? fmt::format("{}", *value) : "none"; };
  std::string text =
      fmt::format("{} {} {} {} {} {} {} {} {} {}", sampling.temperature, sampling.top_p,
                  sampling.top_k, sampling.min_p, sampling.repetition_penalty,
                  sampling.presence_penalty, sampling.frequency_penalty,
                  said(request.sampling.seed), said(request.max_tokens), request.ignore_eos);
  for (const auto& [id, bias] : sampling.logit_bias) text += fmt::format(" {}:{}", id, bias);
  return text;
}

}  // namespace

store::Generation answer_identity(const engine::Request& request,
                                  const engine::SamplingParams& sampling,
                                  const store::Namespace& space) {
  Sha256 key, fingerprint;
  add(key, request.client);
  add(key, request.id);
  add(fingerprint, space);
  add(fingerprint, numbers_of(request, sampling));
  const auto prompt = std::as_bytes(std::span(request.prompt));
  add(fingerprint, {reinterpret_cast<const char*>(prompt.data()), prompt.size()});
  for (const std::string& stop : request.stop) add(fingerprint, stop);
  return {.key = key.hex(), .fingerprint = fingerprint.hex(), .seed = sampling.seed};
}

}  // namespace cohort::serving
