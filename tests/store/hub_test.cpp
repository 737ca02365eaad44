#include "store/hub/hub.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "store/hub/aliases.h"
#include "store/hub/hub_cache.h"
#include "store/hub/model_id.h"
#include "store/hub/model_source.h"
#include "store/hub/progress.h"
#include "store/hub/url.h"

namespace cohort::store {
namespace {

namespace fs = std::filesystem;

TEST(HubIds, RevisionAndFileAreRead) {
  const auto id = parse_hub_id("org/some.name-1@refs/pr/3:sub/model-Q4_0.gguf");
  ASSERT_TRUE(id);
  EXPECT_EQ(id->repository(), "org/some.name-1");
  EXPECT_EQ(id->revision, "refs/pr/3");
  EXPECT_EQ(id->file, "sub/model-Q4_0.gguf");
  EXPECT_EQ(parse_hub_id("org/name")->revision, "main");
}

TEST(HubIds, HostileNamesAreRefused) {
  const std::vector<std::string> hostile = {"",
                                            "/",
                                            "name",
                                            "../name",
                                            "org/..",
                                            "org/../x",
                                            "/org/name",
                                            "org//name",
                                            "%2e%2e/name",
                                            "org/%2e%2e",
                                            "org/name/more",
                                            "org\\name",
                                            std::string("org/na\0me", 9),
                                            "org/na me",
                                            "org/name@",
                                            "org/name@../x",
                                            "org/name@/x",
                                            "org/name@a/../b",
                                            "org/name@a b",
                                            "org/name:",
                                            "org/name:x.bin",
                                            "org/name:../x.gguf",
                                            "org/name:/x.gguf",
                                            "org/name:a\\b.gguf",
                                            "org/n\xd0\xb0me",
                                            "org/name\n",
                                            ".org/name",
                                            "org/.name",
                                            "org--x/name",
                                            "org/" + std::string(4096, 'a'),
                                            "https://host/name",
                                            "org/name@" + std::string(4096, 'a')};
  for (const std::string& text : hostile) EXPECT_FALSE(parse_hub_id(text)) << text;
}

TEST(HubIds, PathsThatLeaveTheirFolderAreUnsafe) {
  for (const char* path : {"a", "a/b.json", "a b", "\xc3\xa4", "...", "a..b"}) {
    EXPECT_TRUE(is_safe_repository_path(path)) << path;
  }
  for (const char* path : {"", "/a", "a/", "a//b", ".", "..", "../a", "a/..", "a/./b", "a\\b",
                           "a\nb", "a\x7f", "a/../../b"}) {
    EXPECT_FALSE(is_safe_repository_path(path)) << path;
  }
  EXPECT_FALSE(is_safe_repository_path(std::string_view("a\0b", 3)));
}

TEST(Redirects, OnlyHttpsLeavesAHubThatIsNotOnThisMachine) {
  const Origin hub = origin_of("https://hub.example");
  EXPECT_EQ(hub.port, "443");
  EXPECT_TRUE(may_redirect(hub, hub, origin_of("https://cdn.example/x")));
  EXPECT_FALSE(may_redirect(hub, hub, origin_of("http://cdn.example/x")));
  EXPECT_FALSE(may_redirect(hub, hub, origin_of("http://hub.example/x")));
  EXPECT_FALSE(may_redirect(hub, hub, origin_of("http://127.0.0.1/x")));
  const Origin mirror = origin_of("http://mirror.example:8000");
  EXPECT_TRUE(may_redirect(mirror, mirror, origin_of("http://MIRROR.example:8000/x")));
  EXPECT_FALSE(may_redirect(mirror, mirror, origin_of("http://mirror.example:8001/x")));
  const Origin local = origin_of("http://127.0.0.1:1");
  EXPECT_TRUE(may_redirect(local, local, origin_of("http://localhost:2/x")));
  EXPECT_FALSE(may_redirect(local, local, origin_of("http://127.0.0.1.evil.example/x")));
  EXPECT_FALSE(may_redirect(local, local, origin_of("http://192.168.0.1/x")));
}

TEST(Redirects, OddAddressesAreRefused) {
  for (const char* url :
       {"file:///etc/passwd", "http://user@host/", "ftp://host/", "host", "", "gopher://host/"}) {
    EXPECT_THROW(origin_of(url), Error) << url;
  }
  EXPECT_EQ(resolve_url("http://h:1/a/b?c", "/d"), "http://h:1/d");
  EXPECT_EQ(percent_encode("a b/\xc3\xa4", true), "a%20b/%C3%A4");
  EXPECT_EQ(percent_encode("refs/pr/1", false), "refs%2Fpr%2F1");
}

TEST(Selection, ASafetensorsRepositoryGivesItsSmallFilesFirst) {
  const std::vector<std::string> listing = {".gitattributes",
                                            "README.md",
                                            "config.json",
                                            "model-00001-of-00002.safetensors",
                                            "model-00002-of-00002.safetensors",
                                            "consolidated.safetensors",
                                            "pytorch_model.bin",
                                            "tokenizer.json",
                                            "merges.txt",
                                            "onnx/config.json",
                                            "original/x.safetensors",
                                            "q.gguf",
                                            "chat_template.jinja",
                                            "additional_chat_templates/tools.jinja",
                                            "model.safetensors.index.json"};
  const std::vector<std::string> expected = {"config.json",
                                             "tokenizer.json",
                                             "merges.txt",
                                             "chat_template.jinja",
                                             "additional_chat_templates/tools.jinja",
                                             "model.safetensors.index.json",
                                             "model-00001-of-00002.safetensors",
                                             "model-00002-of-00002.safetensors"};
  EXPECT_EQ(select_files(listing, *parse_hub_id("o/n")), expected);
  EXPECT_EQ(select_files(listing, *parse_hub_id("o/n:q.gguf")), std::vector<std::string>{"q.gguf"});
  EXPECT_THROW(select_files(listing, *parse_hub_id("o/n:absent.gguf")), Error);
}

TEST(Selection, SeveralGgufFilesNeedAChoice) {
  EXPECT_EQ(select_files({"README.md", "a.gguf"}, *parse_hub_id("o/n")),
            std::vector<std::string>{"a.gguf"});
  EXPECT_THROW(select_files({"a.gguf", "b.gguf"}, *parse_hub_id("o/n")), Error);
  EXPECT_THROW(select_files({"README.md"}, *parse_hub_id("o/n")), Error);
}

TEST(HubEnvironment, TheSharedVariablesDecideTheCacheRoot) {
  const auto root = [] {
    return hub_options([](const char* name) -> const char* { return std::getenv(name); }, 1)
        .cache_root.string();
  };
  for (const char* name : {"HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"}) ::unsetenv(name);
  ::setenv("HOME", "/home/ada", 1);
  EXPECT_EQ(root(), "/home/ada/.cache/huggingface/hub");
  ::setenv("XDG_CACHE_HOME", "/x", 1);
  EXPECT_EQ(root(), "/x/huggingface/hub");
  ::setenv("HF_HOME", "~/hf", 1);
  EXPECT_EQ(root(), "/home/ada/hf/hub");
  ::setenv("HF_HUB_CACHE", "/cache", 1);
  EXPECT_EQ(root(), "/cache");
}

class SnapshotTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) /
            (std::string("cohort_hub_") +
             testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }
  void write(const std::string& name, const std::string& text = "x") const {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  fs::path root_;
};

TEST_F(SnapshotTest, IsLoadableOnlyWithConfigurationAndEveryShard) {
  EXPECT_FALSE(find_loadable(root_, ""));
  write("config.json", "{}");
  EXPECT_FALSE(find_loadable(root_, ""));
  write("model.safetensors.index.json",
        R"({"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}})");
  write("1.safetensors");
  EXPECT_FALSE(find_loadable(root_, ""));
  write("2.safetensors");
  EXPECT_EQ(find_loadable(root_, ""), root_);
  write("model.safetensors.index.json", R"({"weight_map": {"a": "../1.safetensors"}})");
  EXPECT_FALSE(find_loadable(root_, ""));
  write("model.safetensors.index.json", "{");
  EXPECT_FALSE(find_loadable(root_, ""));
}

TEST_F(SnapshotTest, ADanglingLinkIsNotThere) {
  write("config.json", "{}");
  fs::create_symlink("../blobs/absent", root_ / "model.safetensors");
  EXPECT_FALSE(find_loadable(root_, ""));
  write("a.gguf");
  EXPECT_EQ(find_loadable(root_, ""), root_ / "a.gguf");
  EXPECT_FALSE(find_loadable(root_, "b.gguf"));
}

TEST_F(SnapshotTest, ListingShowsSizeAndCompleteness) {
  write("models--org--a/blobs/1", "12345");
  write("models--org--a/refs/main", "c1");
  write("models--org--a/snapshots/c1/m.gguf");
  write("models--org--b/blobs/2.incomplete", "123");
  write("datasets--org--c/blobs/3");
  const auto models = list_hub_cache(root_);
  ASSERT_EQ(models.size(), 2U);
  EXPECT_EQ(models[0].name, "org/a");
  EXPECT_EQ(models[0].size_bytes, 5U);
  EXPECT_TRUE(models[0].complete);
  EXPECT_EQ(models[1].name, "org/b");
  EXPECT_FALSE(models[1].complete);
}

TEST_F(SnapshotTest, LocalFoldersAndGgufFilesAreModels) {
  write("some.gguf");
  write("some.bin");
  const Settings settings;
  EXPECT_EQ(resolve_model((root_ / "some.gguf").string(), settings, {}).name, "some");
  EXPECT_EQ(resolve_model(root_.string() + "/", settings, {}).name, root_.filename());
  EXPECT_THROW(resolve_model((root_ / "some.bin").string(), settings, {}), Error);
  EXPECT_THROW(resolve_model((root_ / "absent").string(), settings, {}), Error);
  EXPECT_THROW(resolve_model("", settings, {}), Error);
  EXPECT_TRUE(looks_like_model((root_ / "some.gguf").string()));
  EXPECT_FALSE(looks_like_model((root_ / "some.bin").string()));
}

TEST(Aliases, AreWhatTheyArePinnedTo) {
  ASSERT_TRUE(find_alias("smollm2") && find_alias("gemma3-270m"));
  EXPECT_EQ(find_alias("gemma3-270m")->members.size(), 4U);
  EXPECT_FALSE(find_alias("smollm"));
  for (const Alias& alias : aliases()) EXPECT_EQ(std::string(alias.sha256).size(), 64U);
}

TEST(Bytes, ReadLikeDiskSizes) {
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(98'362'432), "98.4 MB");
}

}  // namespace
}  // namespace cohort::store
