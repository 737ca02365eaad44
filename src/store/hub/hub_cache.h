#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "store/hub/model_id.h"

namespace cohort::store {

/// The folders of one repository in the cache that all hub clients of a user share.
///   source  huggingface_hub, "Understand caching": models--org--name/{blobs,refs,snapshots}
class HubCache {
 public:
  HubCache(const std::filesystem::path& root, const HubId& id);

  std::filesystem::path blob(const std::string& tag) const { return folder_ / "blobs" / tag; }
  std::filesystem::path lock(const std::string& tag) const;
  std::filesystem::path snapshot(const std::string& commit) const;

  /// The commit that the revision points to, if this machine knows it.
  std::optional<std::string> commit_of(const std::string& revision) const;
  void set_commit(const std::string& revision, const std::string& commit) const;

  /// Links a snapshot's file to its blob, replacing what was there.
  void link(const std::string& commit, const std::string& file, const std::string& tag) const;

  /// Makes the folders.
  void create() const;

 private:
  std::filesystem::path root_;
  std::filesystem::path folder_;
};

/// What to load from a snapshot: the folder itself if its configuration and every weight file are
/// there, the named GGUF file, or the only GGUF file; absent if something is missing.
std::optional<std::filesystem::path> find_loadable(const std::filesystem::path& snapshot,
                                                   const std::string& wanted_file);

struct CachedModel {
  std::string name;
  uint64_t size_bytes = 0;
  std::filesystem::path path;
  bool complete = false;
};

/// Every repository of models in a hub cache, by name; the snapshot of "main" where there is one.
std::vector<CachedModel> list_hub_cache(const std::filesystem::path& root);

}  // namespace cohort::store
