#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace cohort::store {

/// A model on a hub, as the user writes it: org/name[@revision][:file.gguf].
struct HubId {
  std::string org;
  std::string name;
  std::string revision = "main";
  std::string file;  // one GGUF file of the repository; empty = the safetensors or the only GGUF

  std::string repository() const { return org + "/" + name; }
};

/// Reads a hub id; absent if the text is not one. ASCII letters, digits, "-", "_" and "." only, no
/// "..", at most 96 characters a part: what hubs allow, and nothing that could leave a folder.
std::optional<HubId> parse_hub_id(std::string_view text);

/// True if a file name from a listing stays inside the folder it is joined to: relative, no empty,
/// "." or ".." part, no backslash, no control character, at most 1,024 bytes.
bool is_safe_repository_path(std::string_view path);

/// True for a name that is one plain file name of ASCII letters, digits, "-", "_" and ".":
/// what a content tag must be to name a file in the cache.
bool is_plain_name(std::string_view name);

}  // namespace cohort::store
