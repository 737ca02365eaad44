#include "store/ssd/saved_prefix.h"

#include <charconv>
#include <string>

#include "base/error.h"
#include "base/sha256.h"

namespace cohort::store {
namespace {

namespace bj = boost::json;

constexpr size_t kDigits = 8;  // of an id

std::string hex(const std::vector<int32_t>& ids) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  text.reserve(ids.size() * kDigits);
  for (const int32_t id : ids) {
    const auto bits = static_cast<uint32_t>(id);
    for (int shift = 28; shift >= 0; shift -= 4) text.push_back(kHex[bits >> shift & 15]);
  }
  return text;
}

[[noreturn]] void refuse(const char* what) {
  fail(ErrorKind::kInvalidRequest, "a file's {} are not those of a prefix", what);
}

std::vector<int32_t> read_hex(std::string_view text) {
  if (text.size() % kDigits != 0) refuse("ids");
  std::vector<int32_t> ids(text.size() / kDigits);
  for (size_t i = 0; i < ids.size(); ++i) {
    const char* begin = text.data() + i * kDigits;
    uint32_t bits = 0;
    const auto read = std::from_chars(begin, begin + kDigits, bits, 16);
    if (read.ec != std::errc{} || read.ptr != begin + kDigits) refuse("ids");
    ids[i] = static_cast<int32_t>(bits);
  }
  return ids;
}

std::string_view text_in(const bj::object& about, std::string_view key) {
  const bj::value* value = about.if_contains(key);
  return value != nullptr && value->is_string() ? std::string_view(value->get_string()) : "";
}

int64_t number_in(const bj::object& about, std::string_view key) {
  const bj::value* value = about.if_contains(key);
  return value != nullptr && value->is_int64() ? value->get_int64() : -1;
}

std::string checksum(const Generation& generation) {
  Sha256 sha256;
  for (const std::string* text : {&generation.key, &generation.fingerprint}) {
    sha256.update(std::as_bytes(std::span(text->c_str(), text->size() + 1)));
  }
  sha256.update(std::as_bytes(std::span(&generation.seed, 1)));
  sha256.update(std::as_bytes(std::span(generation.answer)));
  return sha256.hex();
}

}  // namespace

bj::object about_generation(const SavedPrefix& prefix) {
  const Generation& generation = *prefix.generation;
  return {{"key", generation.key},
          {"fingerprint", generation.fingerprint},
          {"seed", generation.seed},
          {"promptTokens", prefix.ids.size() + 1 - generation.answer.size()},
          {"next", generation.answer.back()},
          {"checksum", checksum(generation)}};
}

std::optional<Generation> generation_of(const bj::value& about, std::span<const int32_t> ids) {
  if (!about.is_object()) return std::nullopt;
  const bj::object& object = about.get_object();
  Generation generation{std::string(text_in(object, "key")),
                        std::string(text_in(object, "fingerprint"))};
  const bj::value* seed = object.if_contains("seed");
  const int64_t prompt_tokens = number_in(object, "promptTokens");
  const int64_t next = number_in(object, "next");
  const bool fits = prompt_tokens > 0 && prompt_tokens <= static_cast<int64_t>(ids.size()) &&
                    next >= 0 && next <= INT32_MAX;
  if (!fits || seed == nullptr || !(seed->is_uint64() || seed->is_int64())) return std::nullopt;
  generation.seed =
      seed->is_uint64() ? seed->get_uint64() : static_cast<uint64_t>(seed->get_int64());
  const auto answer = ids.subspan(static_cast<size_t>(prompt_tokens));
  generation.answer.assign(answer.begin(), answer.end());
  generation.answer.push_back(static_cast<int32_t>(next));
  if (text_in(object, "checksum") != checksum(generation)) return std::nullopt;
  return generation;
}

bj::object about_prefix(std::string_view identity, const SavedPrefix& prefix) {
  bj::object about{{"identity", identity},
                   {"namespace", prefix.space},
                   {"ids", hex(prefix.ids)},
                   {"floor", prefix.floor},
                   {"minimumReusableOffset", prefix.minimum_reusable_offset}};
  if (prefix.generation) about["generation"] = about_generation(prefix);
  return about;
}

std::string_view identity_of(const kv::RecordHead& head) {
  return text_in(head.about(), "identity");
}

SavedPrefix prefix_of(const kv::RowHead& head, std::string_view identity) {
  if (identity_of(head) != identity) {
    fail(ErrorKind::kUnsupported, "a file was written for something else");
  }
  const bj::object& about = head.about();
  SavedPrefix prefix{Namespace(text_in(about, "namespace")), read_hex(text_in(about, "ids")),
                     number_in(about, "floor"), number_in(about, "minimumReusableOffset")};
  const auto tokens = static_cast<int64_t>(prefix.ids.size());
  const bool numbers_fit = prefix.floor >= 0 && prefix.floor <= tokens &&
                           prefix.minimum_reusable_offset >= 0 &&
                           prefix.minimum_reusable_offset <= prefix.floor;
  if (tokens == 0 || head.offset() != tokens || !numbers_fit) refuse("numbers");
  if (const bj::value* generation = about.if_contains("generation")) {
    prefix.generation = generation_of(*generation, prefix.ids);
    if (!prefix.generation) refuse("words of an answer");
  }
  return prefix;
}

}  // namespace cohort::store
