#include "store/ssd/file_catalog.h"

#include <utility>

namespace cohort::store {

void FileCatalog::add(const std::string& file, const SavedPrefix& prefix, uint64_t bytes) {
  const auto home = trees_.try_emplace(prefix.space).first;
  const auto tokens = static_cast<int64_t>(prefix.ids.size());
  const auto path = home->second.on_path(prefix.ids);
  bool taken = !path.empty() && entries_.at(path.front()).offset == tokens;
  if (taken && !prefix.generation) return;
  if (taken && !entries_.at(path.front()).generation) {
    Entry& replaced = entries_.at(path.front());
    home->second.erase(*std::exchange(replaced.place, nullptr));
    taken = false;
  }
  const EntryId id = ++last_id_;
  RadixTree::Node* place = taken ? nullptr : &home->second.insert(prefix.ids, id, prefix.floor);
  entries_.try_emplace(id, Entry{file, home, place, tokens, prefix.floor,
                                 prefix.minimum_reusable_offset, bytes, prefix.generation});
  ids_[file] = id;
  if (prefix.generation) generations_.emplace(prefix.generation->key, id);
  bytes_ += bytes;
}

void FileCatalog::add_object(const std::string& file, const std::string& key, uint64_t bytes) {
  if (!object_files_.try_emplace(key, file).second) return;
  objects_[file] = {key, bytes};
  bytes_ += bytes;
}

std::optional<std::string> FileCatalog::find_object(const std::string& key) const {
  const auto found = object_files_.find(key);
  if (found == object_files_.end()) return std::nullopt;
  return found->second;
}

void FileCatalog::erase(const std::string& file) {
  if (const auto object = objects_.find(file); object != objects_.end()) {
    bytes_ -= object->second.bytes;
    object_files_.erase(object->second.key);
    objects_.erase(object);
    return;
  }
  const auto found = ids_.find(file);
  if (found == ids_.end()) return;
  const Entry& entry = entries_.at(found->second);
  if (entry.generation) {
    std::erase_if(generations_, [&](const auto& each) { return each.second == found->second; });
  }
  if (entry.place != nullptr) {
    entry.home->second.erase(*entry.place);
    if (entry.home->second.empty()) trees_.erase(entry.home);
  }
  bytes_ -= entry.bytes;
  entries_.erase(found->second);
  ids_.erase(found);
}

std::optional<SsdMatch> FileCatalog::longest(const Namespace& space,
                                             std::span<const int32_t> ids) const {
  const auto home = trees_.find(space);
  if (home == trees_.end()) return std::nullopt;
  const auto match = home->second.longest(ids);
  if (!match) return std::nullopt;
  const Entry& entry = entries_.at(match->entry);
  const auto first = ids.first(static_cast<size_t>(match->tokens));
  return SsdMatch{match->tokens,
                  entry.file,
                  {space, {first.begin(), first.end()}, entry.floor, entry.minimum_reusable_offset},
                  entry.offset};
}

std::vector<std::string> FileCatalog::replaced_by(const SavedPrefix& prefix) const {
  std::vector<std::string> found;
  const auto home = trees_.find(prefix.space);
  if (home == trees_.end()) return found;
  for (const EntryId id : home->second.on_path(prefix.ids)) {
    const Entry& entry = entries_.at(id);
    if (entry.offset >= prefix.floor && !entry.generation) found.push_back(entry.file);
  }
  return found;
}

std::optional<Generation> FileCatalog::generation(const std::string& key,
                                                  const std::string& fingerprint) const {
  const Generation* best = nullptr;
  const auto [begin, end] = generations_.equal_range(key);
  for (auto each = begin; each != end; ++each) {
    const Generation& generation = *entries_.at(each->second).generation;
    const bool longer = best == nullptr || generation.answer.size() > best->answer.size();
    if (generation.fingerprint == fingerprint && longer) best = &generation;
  }
  return best == nullptr ? std::nullopt : std::optional(*best);
}

std::vector<std::string> FileCatalog::generation_files(const std::string& key) const {
  std::vector<std::string> found;
  const auto [begin, end] = generations_.equal_range(key);
  for (auto each = begin; each != end; ++each) found.push_back(entries_.at(each->second).file);
  return found;
}

std::vector<std::string> FileCatalog::files() const {
  std::vector<std::string> found;
  for (const auto& [file, id] : ids_) found.push_back(file);
  for (const auto& [file, object] : objects_) found.push_back(file);
  return found;
}

}  // namespace cohort::store
