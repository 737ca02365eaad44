#include "store/hub/model_id.h"

#include <algorithm>

namespace cohort::store {
namespace {

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_' || c == '.';
}

bool is_hub_part(std::string_view part) {
  return is_plain_name(part) && part.size() <= 96 && part.front() != '-' && part.back() != '-' &&
         part.back() != '.' && part.find("--") == std::string_view::npos;
}

bool is_revision(std::string_view revision) {
  return revision.size() <= 200 && is_safe_repository_path(revision) &&
         std::all_of(revision.begin(), revision.end(),
                     [](char c) { return is_word(c) || c == '/'; });
}

bool is_gguf_file(std::string_view file) {
  return is_safe_repository_path(file) && file.size() > 5 &&
         file.substr(file.size() - 5) == ".gguf";
}

}  // namespace

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() <= 200 && name.front() != '.' &&
         name.find("..") == std::string_view::npos &&
         std::all_of(name.begin(), name.end(), is_word);
}

bool is_safe_repository_path(std::string_view path) {
  if (path.empty() || path.size() > 1024) return false;
  for (const unsigned char c : path) {
    if (c < 0x20 || c == 0x7f || c == '\\') return false;
  }
  size_t begin = 0;
  while (begin <= path.size()) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (part.empty() || part == "." || part == ".." || part.size() > 255) return false;
    begin = end + 1;
  }
  return true;
}

std::optional<HubId> parse_hub_id(std::string_view text) {
  HubId id;
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  id.org = text.substr(0, slash);
  text.remove_prefix(slash + 1);
  if (const size_t colon = text.find(':'); colon != std::string_view::npos) {
    id.file = text.substr(colon + 1);
    text = text.substr(0, colon);
    if (!is_gguf_file(id.file)) return std::nullopt;
  }
  if (const size_t at = text.find('@'); at != std::string_view::npos) {
    id.revision = text.substr(at + 1);
    text = text.substr(0, at);
    if (!is_revision(id.revision)) return std::nullopt;
  }
  id.name = text;
  if (!is_hub_part(id.org) || !is_hub_part(id.name)) return std::nullopt;
  return id;
}

}  // namespace cohort::store
