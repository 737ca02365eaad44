#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "base/random_hex.h"
#include "store/ssd/ssd_store.h"
#include "tests/kv/records.h"
#include "tests/store/prefix_rows.h"
#include "tests/support/temp_folder.h"

namespace cohort::store::test {

using namespace std::chrono_literals;
using cohort::test::TempFolder;
using kv::test::Record;

constexpr const char* kIdentity = "model m, tokenizer t, exact";

inline SsdOptions options(const std::filesystem::path& folder, uint64_t most_bytes = 0) {
  return {.folder = folder, .identity = kIdentity, .most_bytes = most_bytes};
}

/// Keeps the row of these ids, and waits until it is durable.
inline bool keep(SsdStore& store, PrefixModel& model, const Ids& ids,
                 const Namespace& space = "n") {
  store.offer(space, ids, model.row_of(ids));
  const bool durable = store.flush(20s);
  EXPECT_TRUE(store.collect().empty());
  return durable;
}

/// Waits for the row of a ticket.
inline std::optional<kv::RowCache> await(SsdStore& store, uint64_t ticket) {
  for (int i = 0; i < 20000; ++i) {
    for (SsdStore::Restored& each : store.collect()) {
      EXPECT_EQ(each.ticket, ticket);
      return std::move(each.row);
    }
    std::this_thread::sleep_for(1ms);
  }
  ADD_FAILURE() << "a restored row does not come";
  return std::nullopt;
}

/// What the store has for a prompt of `ids` and one token more.
inline std::optional<kv::RowCache> restored(SsdStore& store, PrefixModel& model, Ids ids,
                                            const Namespace& space = "n") {
  ids.push_back(-1);
  auto found = store.longest(space, ids);
  if (!found) return std::nullopt;
  const int64_t tokens = found->tokens;
  auto row = await(store, store.restore(std::move(*found), model.row()));
  EXPECT_EQ(row ? row->offset() : tokens, tokens);
  return row;
}

/// The files of the identity, whole ones or those that are being written.
inline std::vector<std::filesystem::path> files_in(const std::filesystem::path& folder,
                                                   const std::string& ending = ".kv") {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ending) found.push_back(entry.path());
  }
  std::ranges::sort(found);
  return found;
}

inline Record read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

/// There at once and whole, as writers of the cache do: half a file is a damaged one.
inline void write_file(const std::filesystem::path& path, const Record& record) {
  const std::filesystem::path unfinished = path.string() + ".unfinished";
  std::ofstream(unfinished, std::ios::binary)
      .write(reinterpret_cast<const char*>(record.data()),
             static_cast<std::streamsize>(record.size()));
  std::filesystem::rename(unfinished, path);
}

/// A name that a file of the cache may have.
inline std::filesystem::path new_file(const std::filesystem::path& folder) {
  return folder / group_of(kIdentity) / (random_hex(32) + ".kv");
}

inline uint64_t useless(const SsdStats& stats) {
  return stats.damaged + stats.foreign + stats.read_errors;
}

}  // namespace cohort::store::test
