#include "model/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "base/json.h"
#include "model/safetensors.h"

namespace cohort::model {
namespace {

namespace bj = boost::json;
namespace fs = std::filesystem;
constexpr auto kBad = ErrorKind::kInvalidRequest;

constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr size_t kMaxJsonBytes = 64 << 20;        // the index of 300,000 tensors takes about 30 MB
constexpr size_t kMaxTokenizerBytes = 256 << 20;  // Gemma's takes 33 MB
constexpr size_t kMaxTemplateBytes = 1 << 20;

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

bool is_inside(const fs::path& file, const fs::path& folder) {
  const auto [end, rest] = std::mismatch(folder.begin(), folder.end(), file.begin(), file.end());
  return end == folder.end() && rest != file.end();
}

// Opens a file of the folder; nullopt if it does not exist. Links may lead to other files of the
// folder and, from snapshots/REVISION of a huggingface_hub cache, to blobs/ of the same repository.
std::optional<MappedFile> open_inside(const fs::path& folder, const std::string& name,
                                      size_t max_bytes) {
  std::error_code error;
  const fs::path path = folder / name;
  if (!fs::exists(fs::symlink_status(path, error))) return std::nullopt;
  const fs::path real = fs::canonical(path, error);
  if (error) fail(kBad, "{}: cannot open it: {}", printable(name), error.message());
  const fs::path real_folder = fs::canonical(folder, error);
  if (error) fail(kBad, "cannot open the model folder: {}", error.message());
  const bool in_cache = real_folder.parent_path().filename() == "snapshots" &&
                        is_inside(real, real_folder.parent_path().parent_path() / "blobs");
  if (!is_inside(real, real_folder) && !in_cache) {
    fail(kBad, "{}: it is a link that leaves the model folder", printable(name));
  }
  if (!fs::is_regular_file(real, error) || fs::file_size(real, error) == 0 || error) {
    fail(kBad, "{}: it is not a regular, non-empty file", printable(name));
  }
  MappedFile file(real.string());
  if (file.bytes().size() > max_bytes) {
    fail(kBad, "{}: its {} bytes exceed the limit of {}", printable(name), file.bytes().size(),
         max_bytes);
  }
  return file;
}

std::optional<bj::object> read_json_inside(const fs::path& folder, const std::string& name,
                                           JsonRules rules = {}) {
  const std::optional<MappedFile> file = open_inside(folder, name, kMaxJsonBytes);
  if (!file) return std::nullopt;
  return parse_json_object(text_of(*file), name, rules);
}

// What the index file says: tensor name to shard name.
std::map<std::string, std::string> read_weight_map(const bj::object& index) {
  const bj::value* found = index.if_contains("weight_map");
  if (!found || !found->is_object()) {
    fail(kBad, "{}: weight_map is missing or not an object", kIndexName);
  }
  std::map<std::string, std::string> weight_map;
  for (const bj::key_value_pair& entry : found->get_object()) {
    const bj::string* shard = entry.value().if_string();
    if (!shard) fail_tensor(kBad, kIndexName, entry.key(), "its file name is not a string");
    const std::string_view name = *shard;
    if (name.find_first_of(std::string_view("/\\\0", 3)) != std::string_view::npos ||
        !name.ends_with(".safetensors")) {
      fail_tensor(kBad, kIndexName, entry.key(),
                  "{} is not the name of a .safetensors file in the model folder", printable(name));
    }
    weight_map.emplace(entry.key(), name);
  }
  return weight_map;
}

std::set<std::string> model_files(const fs::path& folder) {
  std::set<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::string name = it->path().filename().string();
    if (name.starts_with("model") && name.ends_with(".safetensors")) names.insert(std::move(name));
  }
  if (error) fail(kBad, "cannot list the model folder: {}", error.message());
  return names;
}

// Opens the shards; fills `shards` and `tensors`.
void open_shards(const fs::path& folder, Checkpoint& checkpoint) {
  const std::optional<bj::object> index =
      read_json_inside(folder, std::string(kIndexName), {.unique_keys = true});
  std::map<std::string, std::string> weight_map;
  std::set<std::string> files;
  if (index) {
    weight_map = read_weight_map(*index);
    for (const auto& [tensor, file] : weight_map) files.insert(file);
  } else {
    files = model_files(folder);
  }
  if (files.empty()) fail(kBad, "{}: the folder has no model*.safetensors", checkpoint.path);

  std::map<std::string, std::string> places;  // tensor name to the shard that holds it
  for (const std::string& name : files) {
    std::optional<MappedFile> file = open_inside(folder, name, SIZE_MAX);
    if (!file) fail(kBad, "{}: {} is missing", kIndexName, printable(name));
    SafetensorsIndex shard = SafetensorsIndex::parse(file->bytes(), name);
    for (TensorView& tensor : shard.tensors) {
      const auto [place, is_new] = places.emplace(tensor.name, name);
      if (!is_new) fail_tensor(kBad, name, tensor.name, "{} holds it, too", place->second);
      checkpoint.tensors.push_back(std::move(tensor));
    }
    checkpoint.shards.push_back(*std::move(file));
  }
  for (const auto& [tensor, file] : weight_map) {
    const auto place = places.find(tensor);
    if (place == places.end() || place->second != file) {
      fail_tensor(kBad, file, tensor, "{} says it is here, but it is not", kIndexName);
    }
  }
}

// The field `chat_template` of a JSON file: a text, or a list of {name, template}.
std::vector<ChatTemplate> templates_in(const bj::object& object, std::string_view file) {
  const bj::value* field = object.if_contains("chat_template");
  if (!field || field->is_null()) return {};
  if (const bj::string* text = field->if_string()) return {{"default", std::string(*text)}};
  if (!field->is_array()) fail(kBad, "{}: chat_template is neither a string nor a list", file);
  std::vector<ChatTemplate> templates;
  for (const bj::value& item : field->get_array()) {
    const bj::object* entry = item.if_object();
    const bj::value* name = entry ? entry->if_contains("name") : nullptr;
    const bj::value* text = entry ? entry->if_contains("template") : nullptr;
    if (!name || !text || !name->is_string() || !text->is_string()) {
      fail(kBad, "{}: an entry of chat_template is not {{\"name\", \"template\"}}", file);
    }
    templates.push_back({std::string(name->get_string()), std::string(text->get_string())});
  }
  return templates;
}

// As transformers: a template file wins over the field in the tokenizer's or processor's settings.
std::vector<ChatTemplate> folder_templates(const fs::path& folder,
                                           const std::optional<bj::object>& tokenizer_config) {
  if (auto file = open_inside(folder, "chat_template.jinja", kMaxTemplateBytes)) {
    return {{"default", std::string(text_of(*file))}};
  }
  if (tokenizer_config) {
    if (auto found = templates_in(*tokenizer_config, "tokenizer_config.json"); !found.empty()) {
      return found;
    }
  }
  const auto processor = read_json_inside(folder, "chat_template.json");
  return processor ? templates_in(*processor, "chat_template.json") : std::vector<ChatTemplate>{};
}

Checkpoint open_folder(const fs::path& folder, const std::string& config_name) {
  Checkpoint checkpoint;
  checkpoint.path = folder.string();
  std::optional<bj::object> config = read_json_inside(folder, config_name);
  if (!config) {
    fail(kBad, "{}: the folder has no {} (for a GGUF model, give the path of the .gguf file)",
         checkpoint.path, printable(config_name));
  }
  checkpoint.config = *std::move(config);
  checkpoint.generation_config = read_json_inside(folder, "generation_config.json");
  checkpoint.tokenizer_config = read_json_inside(folder, "tokenizer_config.json");
  checkpoint.tokenizer_json = open_inside(folder, "tokenizer.json", kMaxTokenizerBytes);
  checkpoint.chat_templates = folder_templates(folder, checkpoint.tokenizer_config);
  open_shards(folder, checkpoint);
  return checkpoint;
}

Checkpoint open_gguf(const std::string& path) {
  if (path.ends_with(".safetensors")) {
    fail(kBad, "{}: give the path of the model folder, not of a safetensors file", path);
  }
  Checkpoint checkpoint;
  checkpoint.path = path;
  GgufIndex& index = checkpoint.gguf.emplace(path).index;
  checkpoint.tensors = std::exchange(index.tensors, {});
  const GgufMetadata& metadata = index.metadata;
  if (metadata.find<uint32_t>("split.count").value_or(1) > 1) {
    fail(ErrorKind::kUnsupported,
         "{}: it is one part of a split model; join the parts with llama-gguf-split --merge", path);
  }
  const std::string key = "tokenizer.chat_template";
  if (const auto text = metadata.find<std::string_view>(key)) {
    checkpoint.chat_templates.push_back({"default", std::string(*text)});
  }
  using Names = std::vector<std::string_view>;
  for (const std::string_view name : metadata.find<Names>(key + "s").value_or(Names{})) {
    const auto text = metadata.get<std::string_view>(fmt::format("{}.{}", key, name));
    checkpoint.chat_templates.push_back({std::string(name), std::string(text)});
  }
  return checkpoint;
}

}  // namespace

Checkpoint Checkpoint::open(const std::string& path, const std::string& config_name) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) fail(ErrorKind::kNotFound, "{}: no such file or folder", path);
  Checkpoint checkpoint =
      fs::is_directory(status) ? open_folder(path, config_name) : open_gguf(path);
  std::sort(checkpoint.tensors.begin(), checkpoint.tensors.end(),
            [](const TensorView& a, const TensorView& b) { return a.name < b.name; });
  std::stable_partition(checkpoint.chat_templates.begin(), checkpoint.chat_templates.end(),
                        [](const ChatTemplate& t) { return t.name == "default"; });
  return checkpoint;
}

const TensorView* Checkpoint::find(std::string_view name) const {
  const auto place = std::lower_bound(
      tensors.begin(), tensors.end(), name,
      [](const TensorView& tensor, std::string_view wanted) { return tensor.name < wanted; });
  return place != tensors.end() && place->name == name ? &*place : nullptr;
}

std::vector<std::string_view> Checkpoint::names() const {
  std::vector<std::string_view> names;
  for (const TensorView& tensor : tensors) names.push_back(tensor.name);
  return names;
}

void Checkpoint::drop_pages(const TensorView& tensor) const {
  const auto holds = [&tensor](const MappedFile& file) {
    const std::less_equal<const std::byte*> before;
    return before(file.bytes().data(), tensor.bytes.data()) &&
           before(tensor.bytes.data() + tensor.bytes.size(),
                  file.bytes().data() + file.bytes().size());
  };
  if (gguf && holds(gguf->file)) gguf->file.drop_pages(tensor.bytes);
  for (const MappedFile& shard : shards) {
    if (holds(shard)) shard.drop_pages(tensor.bytes);
  }
}

std::optional<bj::object> Checkpoint::read_json(const std::string& name) const {
  return read_json_inside(path, name);
}

}  // namespace cohort::model
