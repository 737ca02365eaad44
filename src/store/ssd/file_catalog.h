#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "store/radix.h"
#include "store/ssd/saved_prefix.h"

namespace cohort::store {

/// What a file could give for a prompt.
struct SsdMatch {
  int64_t tokens = 0;  // that it would save
  std::string file;
  SavedPrefix prefix;  // its first ids only: `tokens` of them
  int64_t offset = 0;  // of the row in the file
};

/// Which file holds which prefix or object, in memory.
///   thread  one at a time
class FileCatalog {
 public:
  /// Adds a file unless another one has the same namespace and ids; one of an unfinished answer
  /// then takes its place, or is known by its answer alone if the other one is of an answer, too.
  ///   bytes  of the file
  void add(const std::string& file, const SavedPrefix& prefix, uint64_t bytes);
  /// Adds a file unless another one has the same object.
  void add_object(const std::string& file, const std::string& key, uint64_t bytes);
  void erase(const std::string& file);
  bool contains(const std::string& file) const {
    return ids_.contains(file) || objects_.contains(file);
  }
  /// See RadixTree::longest.
  std::optional<SsdMatch> longest(const Namespace& space, std::span<const int32_t> ids) const;
  /// The file that holds the object of that key.
  std::optional<std::string> find_object(const std::string& key) const;
  /// Files of `prefix` and of its beginnings which a file of `prefix` could serve as well, but
  /// those of unfinished answers.
  std::vector<std::string> replaced_by(const SavedPrefix& prefix) const;
  /// The unfinished answer of that key and fingerprint, the longest if there are several.
  std::optional<Generation> generation(const std::string& key,
                                       const std::string& fingerprint) const;
  /// Files of unfinished answers of that key.
  std::vector<std::string> generation_files(const std::string& key) const;
  std::vector<std::string> files() const;
  size_t size() const { return ids_.size() + objects_.size(); }
  uint64_t bytes() const { return bytes_; }

 private:
  using Trees = std::map<Namespace, RadixTree>;
  struct Entry {
    std::string file;
    Trees::iterator home;
    RadixTree::Node* place = nullptr;  // null = in no tree
    int64_t offset = 0;
    int64_t floor = 0;
    int64_t minimum_reusable_offset = 0;
    uint64_t bytes = 0;
    std::optional<Generation> generation;
  };
  struct ObjectEntry {
    std::string key;
    uint64_t bytes = 0;
  };

  std::map<EntryId, Entry> entries_;
  std::map<std::string, EntryId> ids_;               // by file
  std::multimap<std::string, EntryId> generations_;  // by key
  Trees trees_;                                      // none is empty
  std::map<std::string, ObjectEntry> objects_;       // by file
  std::map<std::string, std::string> object_files_;  // by key
  EntryId last_id_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace cohort::store
