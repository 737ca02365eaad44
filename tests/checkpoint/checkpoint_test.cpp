#include "model/checkpoint.h"
#include "tests/support/refusal.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace cohort::model {
namespace {

namespace fs = std::filesystem;
const fs::path kLlama = COHORT_GOLDENS "/llama";
const fs::path kCorpus = COHORT_CORPUS;

// A folder of the test's own, removed at its end.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "cohort_XXXXXX").string();
    path = mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path); }

  void write(const fs::path& name, std::string_view text) const {
    fs::create_directories((path / name).parent_path());
    std::ofstream(path / name, std::ios::binary) << text;
  }
  void link(const fs::path& name, const fs::path& target) const {
    fs::create_directories((path / name).parent_path());
    fs::create_symlink(target, path / name);
  }
  /// A tensor file from the corpus: ok_plain and ok_scalar both hold a tensor "a".
  void add_shard(const fs::path& name, const char* corpus_name = "ok_plain") const {
    fs::create_directories((path / name).parent_path());
    fs::copy_file(kCorpus / "safetensors" / (std::string(corpus_name) + ".safetensors"),
                  path / name);
  }
  std::string refusal(ErrorKind kind = ErrorKind::kInvalidRequest, const fs::path& sub = "") const {
    return test::refusal([&] { Checkpoint::open((path / sub).string()); }, kind);
  }

  fs::path path;
};

TEST(Checkpoint, AFolderIsFoundAsItIs) {
  const Checkpoint checkpoint = Checkpoint::open(kLlama.string());
  EXPECT_EQ(checkpoint.tensors.size(), 39U);
  EXPECT_EQ(checkpoint.names().front(), "lm_head.weight");
  const TensorView* head = checkpoint.find("lm_head.weight");
  ASSERT_NE(head, nullptr);
  EXPECT_EQ(head->shape, (std::vector<int64_t>{327, 64}));
  EXPECT_EQ(head->bytes.size(), 83712U);
  EXPECT_EQ(checkpoint.find("lm_head"), nullptr);
  EXPECT_EQ(checkpoint.config.at("model_type").as_string(), "llama");
  EXPECT_TRUE(checkpoint.generation_config->contains("eos_token_id"));
  EXPECT_TRUE(checkpoint.tokenizer_config.has_value());
  EXPECT_EQ(checkpoint.tokenizer_json->bytes().size(), fs::file_size(kLlama / "tokenizer.json"));
  ASSERT_EQ(checkpoint.chat_templates.size(), 1U);
  EXPECT_EQ(checkpoint.chat_templates[0].name, "default");
  EXPECT_EQ(checkpoint.chat_templates[0].text.size(),
            fs::file_size(kLlama / "chat_template.jinja"));
  EXPECT_EQ(checkpoint.read_json("processor_config.json"), std::nullopt);
  EXPECT_FALSE(checkpoint.gguf.has_value());
}

TEST(Checkpoint, AnotherConfigCanBeNamed) {
  const Checkpoint checkpoint = Checkpoint::open(kLlama.string(), "config_hub.json");
  EXPECT_TRUE(checkpoint.config.contains("rope_theta"));
}

TEST(Checkpoint, BytesStayWhenTheObjectMoves) {
  Checkpoint first = Checkpoint::open(COHORT_GOLDENS "/llama_bf16");
  const std::byte* bytes = first.tensors[0].bytes.data();
  const std::byte value = *bytes;
  const Checkpoint second = std::move(first);
  EXPECT_EQ(second.tensors[0].bytes.data(), bytes);
  EXPECT_EQ(*second.tensors[0].bytes.data(), value);
}

TEST(Checkpoint, AGgufFileIsFoundAsItIs) {
  const Checkpoint checkpoint = Checkpoint::open((kCorpus / "gguf/ok_alignment_64.gguf").string());
  EXPECT_EQ(checkpoint.names(), (std::vector<std::string_view>{"a", "b"}));
  EXPECT_EQ(checkpoint.gguf->index.metadata.get<uint32_t>("general.alignment"), 64U);
  EXPECT_TRUE(checkpoint.config.empty());
}

TEST(Checkpoint, AGgufFileHasTemplatesInItsMetadata) {
  const auto found = Checkpoint::open((kCorpus / "gguf/ok_templates.gguf").string()).chat_templates;
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].text, "d");
  EXPECT_EQ(found[1].name, "tool_use");
  EXPECT_EQ(found[1].text, "t");
}

TEST(Checkpoint, APartOfASplitGgufModelIsRefused) {
  try {
    Checkpoint::open((kCorpus / "gguf/ok_split.gguf").string());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUnsupported);
    EXPECT_NE(std::string(error.what()).find("one part of a split model"), std::string::npos);
  }
}

TEST(Checkpoint, WhatIsMissingIsNamed) {
  const Folder folder;
  EXPECT_NE(folder.refusal(ErrorKind::kNotFound, "nothing").find("no such file"),
            std::string::npos);
  EXPECT_NE(folder.refusal().find("the folder has no 'config.json'"), std::string::npos);
  folder.write("config.json", "{}");
  EXPECT_NE(folder.refusal().find("no model*.safetensors"), std::string::npos);
  folder.add_shard("model.safetensors");
  EXPECT_EQ(folder.refusal(), "");
  EXPECT_NE(folder.refusal(ErrorKind::kInvalidRequest, "model.safetensors").find("model folder"),
            std::string::npos);
}

TEST(Checkpoint, AllModelFilesAreReadWithoutAnIndex) {
  const Folder folder;
  folder.write("config.json", "{}");
  folder.add_shard("model-00001-of-00002.safetensors", "ok_any_order");
  folder.add_shard("model-00002-of-00002.safetensors", "ok_every_dtype");
  folder.add_shard("other.safetensors");
  EXPECT_EQ(Checkpoint::open(folder.path.string()).tensors.size(), 2U + 16U);
  folder.add_shard("model.safetensors");
  EXPECT_EQ(folder.refusal(),
            "model.safetensors: tensor 'a': model-00001-of-00002.safetensors holds it, too");
}

TEST(Checkpoint, TheIndexNamesTheFiles) {
  const Folder folder;
  const auto index = [&](std::string_view map) {
    folder.write("model.safetensors.index.json", fmt::format("{{\"weight_map\":{}}}", map));
  };
  folder.write("config.json", "{}");
  folder.add_shard("weights.safetensors", "ok_any_order");
  folder.add_shard("model.safetensors");
  index(R"({"a":"weights.safetensors","z":"weights.safetensors"})");
  EXPECT_EQ(Checkpoint::open(folder.path.string()).tensors.size(), 2U);
  index(R"({"a":"weights.safetensors","y":"weights.safetensors"})");
  EXPECT_EQ(folder.refusal(),
            "weights.safetensors: tensor 'y': model.safetensors.index.json says it is here, but it "
            "is not");
  index(R"({"a":"gone.safetensors"})");
  EXPECT_EQ(folder.refusal(), "model.safetensors.index.json: 'gone.safetensors' is missing");
  index(R"({})");
  EXPECT_NE(folder.refusal(), "");
  index("[]");
  EXPECT_EQ(folder.refusal(),
            "model.safetensors.index.json: weight_map is missing or not an object");
  index(R"({"a":"weights.safetensors","a":"weights.safetensors"})");
  EXPECT_NE(folder.refusal().find("the key 'a' appears twice"), std::string::npos);
  index(R"({"a":7})");
  EXPECT_NE(folder.refusal().find("its file name is not a string"), std::string::npos);
}

TEST(Checkpoint, TheIndexCannotLeaveTheFolder) {
  const Folder folder;
  folder.write("model/config.json", "{}");
  folder.add_shard("model/model.safetensors");
  folder.add_shard("secret.safetensors");
  const std::string names[] = {"../../etc/passwd",
                               "../secret.safetensors",
                               "/etc/passwd",
                               "sub/model.safetensors",
                               "..\\\\secret.safetensors",
                               "..",
                               "config.json",
                               "model.safetensors\\u0000.safetensors"};
  for (const std::string& name : names) {
    folder.write("model/model.safetensors.index.json",
                 fmt::format("{{\"weight_map\":{{\"a\":\"{}\"}}}}", name));
    EXPECT_NE(folder.refusal(ErrorKind::kInvalidRequest, "model").find("is not the name of"),
              std::string::npos)
        << name;
  }
}

TEST(Checkpoint, LinksOutOfTheFolderAreRefused) {
  const Folder folder;
  folder.write("model/config.json", "{}");
  folder.add_shard("secret.safetensors");
  folder.link("model/model.safetensors", "../secret.safetensors");
  const std::string reason = "it is a link that leaves the model folder";
  EXPECT_EQ(folder.refusal(ErrorKind::kInvalidRequest, "model"), "'model.safetensors': " + reason);
  fs::remove(folder.path / "model/model.safetensors");
  folder.add_shard("model/weights");
  folder.link("model/model.safetensors", "weights");  // inside the folder
  EXPECT_EQ(folder.refusal(ErrorKind::kInvalidRequest, "model"), "");
  folder.link("model/tokenizer.json", "/etc/passwd");
  EXPECT_EQ(folder.refusal(ErrorKind::kInvalidRequest, "model"), "'tokenizer.json': " + reason);
  fs::remove(folder.path / "model/tokenizer.json");
  folder.link("model/generation_config.json", "nowhere");
  EXPECT_NE(folder.refusal(ErrorKind::kInvalidRequest, "model").find("cannot open it"),
            std::string::npos);
}

TEST(Checkpoint, AHubCacheMayLinkToItsOwnBlobs) {
  const Folder folder;
  const fs::path revision = "models--org--name/snapshots/0123abc";
  folder.write("models--org--name/blobs/config", R"({"model_type":"llama"})");
  folder.add_shard("models--org--name/blobs/weights");
  folder.add_shard("models--org--other/blobs/weights");
  folder.link(revision / "config.json", "../../blobs/config");
  folder.link(revision / "model.safetensors", "../../blobs/weights");
  const Checkpoint checkpoint = Checkpoint::open((folder.path / revision).string());
  EXPECT_EQ(checkpoint.tensors.size(), 1U);
  fs::remove(folder.path / revision / "model.safetensors");
  folder.link(revision / "model.safetensors", "../../../models--org--other/blobs/weights");
  EXPECT_NE(folder.refusal(ErrorKind::kInvalidRequest, revision).find("leaves the model folder"),
            std::string::npos);
}

TEST(Checkpoint, APipeInTheFolderIsRefusedAtOnce) {
  const Folder folder;
  ASSERT_EQ(mkfifo((folder.path / "config.json").c_str(), 0600), 0);
  EXPECT_EQ(folder.refusal(), "'config.json': it is not a regular, non-empty file");
}

TEST(Checkpoint, TemplatesComeFromTheFirstPlaceThatHasThem) {
  const Folder folder;
  const auto templates = [&] { return Checkpoint::open(folder.path.string()).chat_templates; };
  folder.write("config.json", "{}");
  folder.add_shard("model.safetensors");
  EXPECT_TRUE(templates().empty());
  folder.write("chat_template.json", R"({"chat_template": "processor"})");
  EXPECT_EQ(templates().at(0).text, "processor");
  folder.write("tokenizer_config.json", R"({"chat_template": null})");
  EXPECT_EQ(templates().at(0).text, "processor");
  folder.write("tokenizer_config.json", R"({"chat_template": "tokenizer"})");
  EXPECT_EQ(templates().at(0).text, "tokenizer");
  folder.write("tokenizer_config.json",
               R"({"chat_template": [{"name": "tool_use", "template": "t"},
                                     {"name": "default", "template": "d"}]})");
  EXPECT_EQ(templates().at(0).text, "d");
  EXPECT_EQ(templates().at(1).name, "tool_use");
  folder.write("tokenizer_config.json", R"({"chat_template": [{"name": "default"}]})");
  EXPECT_NE(folder.refusal().find("an entry of chat_template is not"), std::string::npos);
  folder.write("chat_template.jinja", "file");
  EXPECT_EQ(templates().at(0).text, "file");
}

}  // namespace
}  // namespace cohort::model
