#include "serving/text_parts.h"

#include <string_view>
#include <vector>

#include "base/error.h"
#include "model/checkpoint.h"

namespace cohort::serving {
namespace {

namespace json = boost::json;

/// An id that a checkpoint states, which must be in the vocabulary.
int32_t in_vocabulary(const std::string& path, std::string_view key, std::optional<int64_t> id,
                      int64_t vocab_size) {
  if (id && *id >= 0 && *id < vocab_size) return static_cast<int32_t>(*id);
  fail(ErrorKind::kInvalidRequest, "{}: \"{}\" must be token ids from 0 to {}", path, key,
       vocab_size - 1);
}

text::GgufVocabulary gguf_vocabulary(const model::GgufMetadata& m) {
  text::GgufVocabulary v;
  v.model = m.get<std::string_view>("tokenizer.ggml.model");
  v.pre = m.find<std::string_view>("tokenizer.ggml.pre").value_or("default");
  for (std::string_view token : m.get<std::vector<std::string_view>>("tokenizer.ggml.tokens")) {
    v.tokens.emplace_back(token);
  }
  v.scores = m.find<std::vector<float>>("tokenizer.ggml.scores").value_or(std::vector<float>{});
  v.token_types =
      m.find<std::vector<int32_t>>("tokenizer.ggml.token_type").value_or(std::vector<int32_t>{});
  for (std::string_view merge : m.find<std::vector<std::string_view>>("tokenizer.ggml.merges")
                                    .value_or(std::vector<std::string_view>{})) {
    v.merges.emplace_back(merge);
  }
  const int64_t unknown = m.find<int64_t>("tokenizer.ggml.unknown_token_id").value_or(-1);
  const bool there = unknown >= 0 && unknown < static_cast<int64_t>(v.tokens.size());
  v.unknown_id = there ? static_cast<int32_t>(unknown) : -1;  // else the one of that kind
  v.add_space_prefix = m.find<bool>("tokenizer.ggml.add_space_prefix").value_or(true);
  return v;
}

/// A special token of tokenizer_config.json: a string, or an object with "content".
std::string special_token(const model::Checkpoint& checkpoint, const std::string& key) {
  if (checkpoint.gguf) {
    const model::GgufMetadata& m = checkpoint.gguf->index.metadata;
    const auto id = m.find<int64_t>("tokenizer.ggml." + key + "_id");
    const auto tokens = m.get<std::vector<std::string_view>>("tokenizer.ggml.tokens");
    if (!id || *id < 0 || *id >= static_cast<int64_t>(tokens.size())) return {};
    return std::string(tokens[static_cast<size_t>(*id)]);
  }
  if (!checkpoint.tokenizer_config) return {};
  const json::value* value = checkpoint.tokenizer_config->if_contains(key);
  if (value != nullptr && value->is_object()) value = value->get_object().if_contains("content");
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

/// Whether BOS begins a text, if the checkpoint says so over the head of its post-processor.
///   source  transformers 4: of its fast tokenizers, those of Llama and Gemma replace the
///           post-processor with one made from add_bos_token; the others leave it alone
std::optional<bool> stated_bos(const model::Checkpoint& checkpoint) {
  if (checkpoint.gguf) {
    const model::GgufMetadata& m = checkpoint.gguf->index.metadata;
    return m.find<bool>("tokenizer.ggml.add_bos_token")
        .value_or(m.get<std::string_view>("tokenizer.ggml.model") == "llama");
  }
  if (!checkpoint.tokenizer_config) return std::nullopt;
  const json::value* name = checkpoint.tokenizer_config->if_contains("tokenizer_class");
  const json::value* add = checkpoint.tokenizer_config->if_contains("add_bos_token");
  if (name == nullptr || add == nullptr || !add->is_bool()) return std::nullopt;
  for (const char* rebuilding :
       {"LlamaTokenizer", "LlamaTokenizerFast", "GemmaTokenizer", "GemmaTokenizerFast"}) {
    if (*name == rebuilding) return add->get_bool();
  }
  return std::nullopt;
}

/// Collects ids that a checkpoint states.
struct IdSet {
  const model::Checkpoint& checkpoint;
  const text::Tokenizer& tokenizer;
  const int32_t vocab_size;
  std::set<int32_t> ids = {};

  void add(std::string_view key, std::optional<int64_t> id) {
    ids.insert(in_vocabulary(checkpoint.path, key, id, vocab_size));
  }
  /// "eos_token_id" of a config: an id or a list of ids; null is absent.
  void add_config(const json::object& config) {
    constexpr const char* kKey = "eos_token_id";
    const json::value* value = config.if_contains(kKey);
    if (value == nullptr || value->is_null()) return;
    const auto integer = [](const json::value& id) {
      return id.is_int64() ? std::optional(id.get_int64()) : std::nullopt;
    };
    if (!value->is_array()) return add(kKey, integer(*value));
    for (const json::value& id : value->get_array()) add(kKey, integer(id));
  }
  void add_metadata(const char* key) {
    if (const auto id = checkpoint.gguf->index.metadata.find<int64_t>(key)) add(key, id);
  }
  /// A token by its text, if there is one that the model can give.
  void add_text(const std::string& text) {
    const int32_t id = text.empty() ? -1 : tokenizer.token_to_id(text);
    if (id >= 0 && id < vocab_size) ids.insert(id);
  }
};

}  // namespace

text::Tokenizer load_tokenizer(const model::Checkpoint& checkpoint) {
  if (checkpoint.gguf) {
    return text::Tokenizer::from_gguf(gguf_vocabulary(checkpoint.gguf->index.metadata));
  }
  if (!checkpoint.tokenizer_json) {
    fail(ErrorKind::kInvalidRequest, "{}: there is no tokenizer.json", checkpoint.path);
  }
  const auto bytes = checkpoint.tokenizer_json->bytes();
  return text::Tokenizer::from_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

std::unique_ptr<text::ChatTemplate> load_template(const model::Checkpoint& checkpoint,
                                                  const std::string& source) {
  std::string_view text = source;
  if (text.empty() && !checkpoint.chat_templates.empty()) text = checkpoint.chat_templates[0].text;
  if (text.empty()) return nullptr;
  return std::make_unique<text::ChatTemplate>(text, special_token(checkpoint, "bos_token"),
                                              special_token(checkpoint, "eos_token"));
}

std::set<int32_t> end_tokens(const model::Checkpoint& checkpoint, const text::Tokenizer& tokenizer,
                             int32_t vocab_size) {
  IdSet found{checkpoint, tokenizer, vocab_size};
  if (checkpoint.generation_config) found.add_config(*checkpoint.generation_config);
  found.add_config(checkpoint.config);
  if (!checkpoint.gguf) {
    found.add_text(special_token(checkpoint, "eos_token"));
  } else {
    found.add_metadata("tokenizer.ggml.eos_token_id");
    found.add_metadata("tokenizer.ggml.eot_token_id");
    // A GGUF file names one end token; chat models end turns with these, too.
    for (const char* text :
         {"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<|end|>"}) {
      found.add_text(text);
    }
  }
  return std::move(found.ids);
}

std::vector<int32_t> leading_tokens(const model::Checkpoint& checkpoint,
                                    const text::Tokenizer& tokenizer, int32_t vocab_size) {
  const std::optional<bool> stated = stated_bos(checkpoint);
  if (checkpoint.gguf) {
    constexpr const char* kBos = "tokenizer.ggml.bos_token_id";
    const auto id = checkpoint.gguf->index.metadata.find<int64_t>(kBos);
    if (!*stated || !id) return {};
    return {in_vocabulary(checkpoint.path, kBos, id, vocab_size)};
  }
  if (!stated) {
    std::vector<int32_t> ids = tokenizer.leading_ids();
    for (int32_t id : ids) in_vocabulary(checkpoint.path, "post_processor", id, vocab_size);
    return ids;
  }
  const std::string bos = special_token(checkpoint, "bos_token");
  const int32_t id = *stated && !bos.empty() ? tokenizer.token_to_id(bos) : -1;
  if (id < 0) return {};
  return {in_vocabulary(checkpoint.path, "bos_token", id, vocab_size)};
}

engine::SamplingOptions recommended_sampling(const model::Checkpoint& checkpoint) {
  engine::SamplingOptions sampling;
  if (!checkpoint.generation_config) return sampling;
  const auto number = [&](const char* key, double low, double high) -> std::optional<float> {
    const json::value* value = checkpoint.generation_config->if_contains(key);
    if (value == nullptr || value->is_null()) return std::nullopt;
    const double n = value->is_number() ? value->to_number<double>() : low - 1;
    if (!(n >= low && n <= high)) {
      fail(ErrorKind::kInvalidRequest, "{}: generation_config.json: \"{}\" must be from {} to {}",
           checkpoint.path, key, low, high);
    }
    return static_cast<float>(n);
  };
  sampling.temperature = number("temperature", 0, 100);
  sampling.top_p = number("top_p", 1e-6, 1);
  sampling.min_p = number("min_p", 0, 1);
  sampling.repetition_penalty = number("repetition_penalty", 1e-3, 100);
  if (const auto k = number("top_k", 0, 1 << 24)) sampling.top_k = static_cast<int32_t>(*k);
  const json::value* sample = checkpoint.generation_config->if_contains("do_sample");
  if (sample != nullptr && sample->is_bool() && !sample->get_bool()) sampling.temperature = 0.0f;
  return sampling;
}

}  // namespace cohort::serving
