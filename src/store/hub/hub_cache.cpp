#include "store/hub/hub_cache.h"

#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <fstream>
#include <iterator>
#include <set>

#include "base/error.h"
#include "store/hub/file_lock.h"

namespace cohort::store {
namespace {

namespace fs = std::filesystem;

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);  // follows links: a dangling one is not there
}

std::string read_text(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::vector<fs::path> files_with_extension(const fs::path& folder, const char* extension) {
  std::vector<fs::path> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().extension() == extension && is_file(entry.path()))
      found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

/// True if every file that the shard index names is there; a damaged index is not complete.
bool has_all_shards(const fs::path& snapshot, const fs::path& index) {
  boost::json::error_code error;
  const boost::json::value parsed = boost::json::parse(read_text(index), error);
  const auto* root = error ? nullptr : parsed.if_object();
  const auto* map = root ? root->if_contains("weight_map") : nullptr;
  if (!map || !map->is_object() || map->get_object().empty()) return false;
  std::set<std::string> shards;
  for (const auto& item : map->get_object()) {
    if (!item.value().is_string()) return false;
    shards.emplace(item.value().get_string().c_str());
  }
  return std::all_of(shards.begin(), shards.end(), [&](const std::string& shard) {
    return is_safe_repository_path(shard) && is_file(snapshot / shard);
  });
}

uint64_t size_of_files(const fs::path& folder) {
  uint64_t total = 0;
  std::error_code error;
  for (const auto& entry : fs::recursive_directory_iterator(folder, error)) {
    if (is_file(entry.path())) total += fs::file_size(entry.path(), error);
  }
  return total;
}

fs::path newest_snapshot(const fs::path& folder) {
  const std::string main = read_text(folder / "refs" / "main");
  std::error_code error;
  if (is_plain_name(main) && fs::is_directory(folder / "snapshots" / main, error)) {
    return folder / "snapshots" / main;
  }
  std::vector<fs::path> all;
  for (const auto& entry : fs::directory_iterator(folder / "snapshots", error)) {
    all.push_back(entry.path());
  }
  return all.empty() ? folder : *std::max_element(all.begin(), all.end());
}

}  // namespace

HubCache::HubCache(const fs::path& root, const HubId& id)
    : root_(root), folder_(root / fmt::format("models--{}--{}", id.org, id.name)) {}

fs::path HubCache::lock(const std::string& tag) const {
  return root_ / ".locks" / folder_.filename() / (tag + ".lock");
}

fs::path HubCache::snapshot(const std::string& commit) const {
  return folder_ / "snapshots" / commit;
}

std::optional<std::string> HubCache::commit_of(const std::string& revision) const {
  std::error_code ignored;
  if (is_plain_name(revision) && fs::is_directory(snapshot(revision), ignored)) return revision;
  std::string commit = read_text(folder_ / "refs" / revision);
  if (!is_plain_name(commit)) return std::nullopt;
  return commit;
}

void HubCache::set_commit(const std::string& revision, const std::string& commit) const {
  if (revision == commit) return;
  const fs::path path = folder_ / "refs" / revision;
  fs::create_directories(path.parent_path());
  const fs::path fresh = path.parent_path() / fmt::format(".{}.{}", commit, ::getpid());
  std::ofstream(fresh) << commit;
  fs::rename(fresh, path);
}

void HubCache::link(const std::string& commit, const std::string& file,
                    const std::string& tag) const {
  const fs::path path = snapshot(commit) / file;
  fs::create_directories(path.parent_path());
  const fs::path fresh = path.parent_path() / fmt::format(".{}.{}", tag, ::getpid());
  fs::remove(fresh);
  fs::create_symlink(fs::relative(blob(tag), path.parent_path()), fresh);
  fs::rename(fresh, path);
}

void HubCache::create() const {
  fs::create_directories(folder_ / "blobs");
  fs::create_directories(folder_ / "refs");
  fs::create_directories(folder_ / "snapshots");
  fs::create_directories(root_ / ".locks" / folder_.filename());
}

std::optional<fs::path> find_loadable(const fs::path& snapshot, const std::string& wanted_file) {
  if (!wanted_file.empty()) {
    if (is_file(snapshot / wanted_file)) return snapshot / wanted_file;
    return std::nullopt;
  }
  const fs::path index = snapshot / "model.safetensors.index.json";
  const bool has_weights = is_file(index) ? has_all_shards(snapshot, index)
                                          : !files_with_extension(snapshot, ".safetensors").empty();
  if (has_weights && is_file(snapshot / "config.json")) return snapshot;
  const std::vector<fs::path> ggufs = files_with_extension(snapshot, ".gguf");
  if (ggufs.size() == 1) return ggufs.front();
  return std::nullopt;
}

std::vector<CachedModel> list_hub_cache(const fs::path& root) {
  std::vector<CachedModel> models;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(root, ignored)) {
    const std::string folder = entry.path().filename().string();
    const size_t split = folder.find("--", 8);
    if (!folder.starts_with("models--") || split == std::string::npos) continue;
    const fs::path snapshot = newest_snapshot(entry.path());
    const bool complete =
        find_loadable(snapshot, "").has_value() || !files_with_extension(snapshot, ".gguf").empty();
    models.push_back({.name = folder.substr(8, split - 8) + "/" + folder.substr(split + 2),
                      .size_bytes = size_of_files(entry.path() / "blobs"),
                      .path = snapshot,
                      .complete = complete});
  }
  std::sort(models.begin(), models.end(),
            [](const CachedModel& a, const CachedModel& b) { return a.name < b.name; });
  return models;
}

}  // namespace cohort::store
