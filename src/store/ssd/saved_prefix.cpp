#include "store/ssd/saved_prefix.h"

#include <charconv>
#include <string>

#include "base/error.h"

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

}  // namespace

bj::object about_prefix(std::string_view identity, const SavedPrefix& prefix) {
  return {{"identity", identity},
          {"namespace", prefix.space},
          {"ids", hex(prefix.ids)},
          {"floor", prefix.floor},
          {"minimumReusableOffset", prefix.minimum_reusable_offset}};
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
  return prefix;
}

}  // namespace cohort::store
