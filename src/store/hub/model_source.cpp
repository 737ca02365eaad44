#include "store/hub/model_source.h"

#include "base/error.h"
#include "base/printable.h"
#include "store/hub/aliases.h"
#include "store/hub/model_id.h"
#include "store/hub/wheel.h"

namespace cohort::store {
namespace {

namespace fs = std::filesystem;

fs::path alias_folder(const Settings& settings) {
  if (settings.cache_dir.starts_with("~")) {
    fail(ErrorKind::kInvalidRequest, "HOME is not set: name a folder with --cache-dir");
  }
  return fs::path(settings.cache_dir) / "models";
}

bool is_local(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored) ||
         (path.extension() == ".gguf" && fs::is_regular_file(path, ignored));
}

/// Longer or odder texts are no path worth asking the system about.
bool may_be_path(const std::string& text) {
  return !text.empty() && text.size() < 4096 && text.find('\0') == std::string::npos;
}

std::string name_of(const fs::path& path) {
  const fs::path clean = fs::absolute(path).lexically_normal();
  const fs::path last = clean.has_filename() ? clean.filename() : clean.parent_path().filename();
  return last.extension() == ".gguf" ? last.stem().string() : last.string();
}

}  // namespace

LocalModel resolve_model(const std::string& model, const Settings& settings, const HubOptions& hub,
                         bool refresh) {
  if (may_be_path(model) && is_local(model)) return {.name = name_of(model), .path = model};
  if (const Alias* alias = find_alias(model)) {
    return {.name = alias->name,
            .path = fetch_alias(*alias, alias_folder(settings), settings.python)};
  }
  if (const auto id = parse_hub_id(model)) {
    return {.name = id->repository(), .path = fetch_from_hub(*id, hub, refresh)};
  }
  std::vector<std::string> names;
  for (const Alias& alias : aliases()) names.emplace_back(alias.name);
  fail(ErrorKind::kInvalidRequest,
       "{} is no model; give a folder, a .gguf file, one of {}, or a hub id "
       "org/name[@revision][:file.gguf]",
       printable(model), fmt::join(names, ", "));
}

bool looks_like_model(const std::string& text) {
  return (may_be_path(text) && is_local(text)) || find_alias(text) || parse_hub_id(text);
}

std::vector<CachedModel> list_models(const Settings& settings, const HubOptions& hub) {
  std::vector<CachedModel> models;
  for (const Alias& alias : aliases()) {
    const fs::path path = alias_folder(settings) / alias.file;
    std::error_code error;
    const uint64_t size = fs::file_size(path, error);
    if (error) continue;
    models.push_back({.name = alias.name,
                      .size_bytes = size,
                      .path = path,
                      .complete = size == alias.size_bytes});
  }
  for (CachedModel& model : list_hub_cache(hub.cache_root)) models.push_back(std::move(model));
  return models;
}

}  // namespace cohort::store
