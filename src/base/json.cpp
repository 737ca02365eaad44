#include "base/json.h"

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/src.hpp>  // the definitions of Boost.JSON: in this file only

#include <limits>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/printable.h"

namespace cohort {
namespace {

namespace bj = boost::json;

// Listens to a parse and stops it at the first key that its object already has. Boost's own parser
// keeps the last of equal keys without a word.
struct UniqueKeys {
  static constexpr size_t max_object_size = std::numeric_limits<size_t>::max();
  static constexpr size_t max_array_size = max_object_size;
  static constexpr size_t max_key_size = max_object_size;
  static constexpr size_t max_string_size = max_object_size;
  using ec = bj::error_code;
  using text = bj::string_view;

  std::vector<std::unordered_set<std::string>> open_objects;
  std::string key;
  bool duplicate = false;

  bool on_object_begin(ec&) { return open_objects.emplace_back(), true; }
  bool on_object_end(size_t, ec&) { return open_objects.pop_back(), true; }
  bool on_key_part(text part, size_t, ec&) { return key.append(part.data(), part.size()), true; }
  bool on_key(text part, size_t, ec& error) {
    key.append(part.data(), part.size());
    duplicate = !open_objects.back().insert(key).second;
    if (duplicate) {
      error = bj::error::syntax;
      return false;
    }
    key.clear();
    return true;
  }

  bool on_document_begin(ec&) { return true; }
  bool on_document_end(ec&) { return true; }
  bool on_array_begin(ec&) { return true; }
  bool on_array_end(size_t, ec&) { return true; }
  bool on_string_part(text, size_t, ec&) { return true; }
  bool on_string(text, size_t, ec&) { return true; }
  bool on_number_part(text, ec&) { return true; }
  bool on_int64(int64_t, text, ec&) { return true; }
  bool on_uint64(uint64_t, text, ec&) { return true; }
  bool on_double(double, text, ec&) { return true; }
  bool on_bool(bool, ec&) { return true; }
  bool on_null(ec&) { return true; }
  bool on_comment_part(text, ec&) { return true; }
  bool on_comment(text, ec&) { return true; }
};

void check_unique_keys(std::string_view text, std::string_view what,
                       const bj::parse_options& options) {
  bj::basic_parser<UniqueKeys> parser(options);
  bj::error_code error;
  parser.write_some(false, text.data(), text.size(), error);
  if (parser.handler().duplicate) {
    fail(ErrorKind::kInvalidRequest, "{}: the key {} appears twice in one JSON object", what,
         printable(parser.handler().key));
  }
  // Any other error is reported, with its place, by the parse that follows.
}

}  // namespace

bj::value parse_json(std::string_view text, std::string_view what, JsonRules rules) {
  bj::parse_options options;
  options.max_depth = rules.max_depth;
  if (rules.unique_keys) check_unique_keys(text, what, options);
  bj::parser parser({}, options);
  bj::error_code error;
  const size_t end = parser.write_some(text.data(), text.size(), error);
  if (!error && end < text.size()) error = bj::error::extra_data;
  if (error) {
    fail(ErrorKind::kInvalidRequest, "{}: invalid JSON at byte {}: {}", what, end, error.message());
  }
  return parser.release();
}

bj::object parse_json_object(std::string_view text, std::string_view what, JsonRules rules) {
  bj::value value = parse_json(text, what, rules);
  if (!value.is_object()) {
    fail(ErrorKind::kInvalidRequest, "{}: a JSON object is needed, not {}", what,
         std::string_view(bj::to_string(value.kind())));
  }
  return std::move(value.as_object());
}

}  // namespace cohort
