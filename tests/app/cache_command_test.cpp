// `cohort cache` on a folder that a store wrote.

#include <gtest/gtest.h>

#include "app/commands.h"
#include "base/error.h"
#include "tests/store/objects.h"
#include "tests/store/ssd_scene.h"

namespace cohort::app {
namespace {

using namespace store::test;

/// What the command prints, and its exit status.
std::pair<std::string, int> run(const std::filesystem::path& folder, const char* action) {
  Settings settings;
  settings.ssd_cache = folder;
  testing::internal::CaptureStdout();
  const int status = run_cache(settings, {action});
  std::fflush(stdout);
  return {testing::internal::GetCapturedStdout(), status};
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

TEST(CacheCommand, ListsChecksAndClears) {
  const TempFolder folder;
  PrefixModel model({plain_layer()});
  {
    store::SsdStore store(options(folder.path));
    keep(store, model, some_ids(100, 1));
    keep(store, model, some_ids(70, 2));
    store.offer_object("key", some_object(1));
    EXPECT_TRUE(store.flush(20s));
  }
  const auto [listed, list_status] = run(folder.path, "ls");
  EXPECT_EQ(list_status, 0);
  EXPECT_TRUE(contains(listed, kIdentity) && contains(listed, "100 tokens")) << listed;
  EXPECT_TRUE(contains(listed, " object ") && contains(listed, "3 files")) << listed;
  EXPECT_EQ(run(folder.path, "verify").second, 0);

  Record damaged = read_file(files_in(folder.path).front());
  damaged[damaged.size() - 100] ^= std::byte{1};
  write_file(files_in(folder.path).front(), damaged);
  write_file(files_in(folder.path).front().replace_extension(".tmp"), damaged);
  const auto [verified, status] = run(folder.path, "verify");
  EXPECT_EQ(status, 1);
  EXPECT_TRUE(contains(verified, ": damaged\n3 files")) << verified;
  EXPECT_EQ(run(folder.path, "gc").second, 0);
  EXPECT_EQ(files_in(folder.path).size(), 2U);
  EXPECT_EQ(files_in(folder.path, ".tmp").size(), 0U);
  EXPECT_EQ(run(folder.path, "verify").second, 0);
}

TEST(CacheCommand, NeedsAFolderThatIsThere) {
  EXPECT_THROW(run_cache({}, {"ls"}), Error);
  Settings settings;
  settings.ssd_cache = "no/such/folder";
  EXPECT_THROW(run_cache(settings, {"gc"}), Error);
  EXPECT_FALSE(std::filesystem::exists("no"));
}

}  // namespace
}  // namespace cohort::app
