#pragma once

#include <boost/json.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "model/gguf.h"
#include "model/tensor_view.h"

namespace cohort::model {

struct ChatTemplate {
  std::string name;  // "default", or a purpose such as "tool_use"
  std::string text;  // Jinja
};

/// What was found at a MODEL path: checked for consistency, not interpreted (families do that).
/// Move-only. Nothing is read into memory but the small JSON files; tensors stay in mapped files.
///   source  Hugging Face model folders (transformers, mlx-lm), huggingface_hub's cache, GGUF
struct Checkpoint {
  /// Opens a GGUF file, or a folder with config.json and model*.safetensors (exactly the shards of
  /// model.safetensors.index.json if there is one).
  ///   path         of the file or folder
  ///   config_name  another file of the folder to read instead of config.json
  ///   throws       Error{kNotFound} if there is nothing at `path`; kInvalidRequest naming file,
  ///                tensor and reason; kUnsupported for formats and types that Cohort does not read
  ///   thread       any          cost  reads headers only: about 20 ms for 10,000 tensors
  static Checkpoint open(const std::string& path, const std::string& config_name = "config.json");

  /// The tensor of this name, or nullptr.
  const TensorView* find(std::string_view name) const;
  std::vector<std::string_view> names() const;
  /// For a tensor that was copied: memory need not hold the file's pages, too.
  void drop_pages(const TensorView& tensor) const;

  /// A JSON object file of the folder, nullopt if there is none.
  ///   name    a plain file name, such as "processor_config.json"
  ///   throws  Error{kInvalidRequest} if it is damaged, too large or a link out of the folder
  std::optional<boost::json::object> read_json(const std::string& name) const;

  std::string path;
  std::vector<TensorView> tensors;           // sorted by name; they point into the files below
  std::vector<ChatTemplate> chat_templates;  // "default" first if there is one

  // A folder:
  boost::json::object config;
  std::optional<boost::json::object> generation_config;
  std::optional<boost::json::object> tokenizer_config;
  std::optional<MappedFile> tokenizer_json;
  std::vector<MappedFile> shards;

  // A GGUF file (its tensors are moved to `tensors`):
  std::optional<GgufFile> gguf;
};

}  // namespace cohort::model
