#include "base/settings_file.h"

#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.h"

namespace cohort {
namespace {

std::string read_text(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  if (stream) text << stream.rdbuf();
  std::error_code ignored;
  if (!stream || std::filesystem::is_directory(path, ignored))
    fail(ErrorKind::kNotFound, "cannot read the configuration file {}", path);
  return text.str();
}

FileEntry to_entry(const std::string& path, std::string key, const toml::node& node) {
  FileEntry entry;
  entry.key = std::move(key);
  entry.line = static_cast<int>(node.source().begin.line);
  if (const auto* text = node.as_string()) {
    entry.kind = FileEntry::Kind::kString;
    entry.texts = {text->get()};
  } else if (const auto* integer = node.as_integer()) {
    entry.kind = FileEntry::Kind::kInteger;
    entry.texts = {fmt::to_string(integer->get())};
  } else if (const auto* number = node.as_floating_point()) {
    entry.kind = FileEntry::Kind::kFloat;
    entry.texts = {fmt::to_string(number->get())};
  } else if (const auto* yes = node.as_boolean()) {
    entry.kind = FileEntry::Kind::kBool;
    entry.texts = {yes->get() ? "true" : "false"};
  } else if (const auto* list = node.as_array()) {
    entry.kind = FileEntry::Kind::kList;
    for (const toml::node& item : *list) {
      if (!item.is_string()) {
        fail(ErrorKind::kInvalidRequest, "{}:{}: {}: a list may hold only strings", path,
             item.source().begin.line, entry.key);
      }
      entry.texts.push_back(item.as_string()->get());
    }
  }
  return entry;
}

}  // namespace

std::vector<FileEntry> read_settings_file(const std::string& path) {
  const std::string text = read_text(path);
  const toml::parse_result parsed = toml::parse(std::string_view(text), std::string_view(path));
  if (!parsed) {
    fail(ErrorKind::kInvalidRequest, "{}:{}: {}", path, parsed.error().source().begin.line,
         parsed.error().description());
  }
  std::vector<FileEntry> entries;
  for (const auto& [key, node] : parsed.table()) {
    entries.push_back(to_entry(path, std::string(key.str()), node));
  }
  return entries;
}

}  // namespace cohort
