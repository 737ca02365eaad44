#include "serving/model_binding.h"

#include <boost/json.hpp>

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include "base/error.h"
#include "base/printable.h"
#include "base/system_memory.h"
#include "engine/model_forward.h"
#include "kernels/cpu/attention.h"
#include "kernels/device.h"
#include "model/checkpoint.h"
#include "serving/answer_identity.h"
#include "serving/state_identity.h"
#include "serving/text_parts.h"
#include "text/utf8_assembler.h"

namespace cohort::serving {
namespace {

constexpr int64_t kSparseTokenBytes = 6;  // a token of text or code has less on average
constexpr size_t kPieceBytes = 4096;

uint64_t fresh_seed() {
  std::random_device device;
  // 53 bits: survives clients that read JSON numbers as doubles.
  return ((uint64_t{device()} << 32) | device()) >> 11;
}

/// request > flag > generation_config.json > built-in.
template <class T>
T first_of(const std::optional<T>& request, const std::optional<T>& flag,
           const std::optional<T>& model, T built_in) {
  if (request) return *request;
  if (flag) return *flag;
  return model.value_or(built_in);
}

/// What attention takes beside the caches; only models with recurrent layers are asked, as the
/// original of this rule does. See engine/prefill_policy.h.
std::function<size_t(int64_t, int64_t)> prefill_workspace(const model::ModelShape& shape,
                                                          int threads) {
  const auto is_recurrent = [](const kv::AnyLayerSpec& layer) {
    return std::holds_alternative<kv::RecurrentSpec>(layer);
  };
  if (std::ranges::none_of(shape.layers, is_recurrent)) return nullptr;
  return [outputs = shape.attention_outputs, threads](int64_t chunk, int64_t context) {
    return kernels::cpu::attention_scratch_bytes(outputs, chunk, context, threads);
  };
}

}  // namespace

ModelBinding::ModelBinding(BindingOptions options)
    : options_(std::move(options)), cpu_(options_.threads) {
  const model::Checkpoint checkpoint = model::Checkpoint::open(options_.path);
  // What the model cannot do is said before the work of loading it.
  const model::ModelShape shape = model::read_shape(checkpoint);
  default_precision_ = kv::resolve(options_.kv, shape.layers);
  if (options_.context_tokens > shape.context_tokens) {
    fail(ErrorKind::kInvalidRequest, "a context of {} tokens is more than the model's {}",
         options_.context_tokens, shape.context_tokens);
  }
  const int64_t context =
      options_.context_tokens > 0 ? options_.context_tokens : shape.context_tokens;
  if (options_.kv.start >= context) {
    fail(ErrorKind::kInvalidRequest, "--kv-start {}: no sequence gets there in a context of {}",
         options_.kv.start, context);
  }
  kv_schemes_ = kv::summarize(options_.kv, shape.layers);
  tokenizer_ = std::make_unique<text::Tokenizer>(load_tokenizer(checkpoint));
  template_ = load_template(checkpoint, options_.chat_template);
  generation_config_ = recommended_sampling(checkpoint);
  leading_ = leading_tokens(checkpoint, *tokenizer_, shape.vocab_size);
  std::set<int32_t> ends = end_tokens(checkpoint, *tokenizer_, shape.vocab_size);
  return_freed_memory();  // what building the tokenizer and the template took for a moment
  model_ = model::load_model(checkpoint, options_.load, cpu_);
  info_.ids = options_.names;
  info_.created_unix_s = std::chrono::duration_cast<std::chrono::seconds>(
                             std::chrono::system_clock::now().time_since_epoch())
                             .count();
  info_.context_tokens = context;
  info_.vocab_size = shape.vocab_size;
  info_.has_chat_template = template_ != nullptr;
  info_.kv_scheme = options_.kv.name();
  info_.kv_by_request = options_.kv_by_request;
  info_.choices_max = static_cast<int>(options_.engine.max_rows);
  if (options_.engine.kv_memory_bytes == 0) {
    options_.engine.kv_memory_bytes = kernels::free_block_bytes(options_.load.device) / 2;
  }
  info_.longest_row_tokens =
      kv::tokens_that_fit(default_precision_, shape.layers, options_.engine.kv_memory_bytes,
                          context, options_.engine.prefill.chunk);
  options_.engine.prompt_cache_bytes =
      options_.prompt_cache_bytes.value_or(options_.engine.kv_memory_bytes / 2);
  if (!options_.ssd.folder.empty()) {
    options_.ssd.identity = state_identity(checkpoint, options_);
    options_.ssd.most_pending_bytes =
        std::min(options_.ssd.most_pending_bytes, options_.engine.kv_memory_bytes / 8);
    options_.engine.ssd = options_.ssd;
  }
  options_.engine.prefill.workspace = prefill_workspace(shape, cpu_.pool().size());
  forward_ = std::make_unique<engine::ModelForward>(*model_, options_.load.device);
  engine_ = std::make_unique<engine::Engine>(*forward_, shape.layers, cpu_, *tokenizer_,
                                             std::move(ends), options_.engine);
}

ModelBinding::~ModelBinding() = default;

Health ModelBinding::health() const {
  if (!engine_->alive()) return Health::kDead;
  return engine_->draining() ? Health::kDraining : Health::kReady;
}

std::vector<int32_t> ModelBinding::render(const prompt::Conversation& conversation) const {
  if (template_ == nullptr) {
    fail(
        ErrorKind::kUnsupported,
        "this model has no chat template: use /v1/completions, or start with --chat-template FILE");
  }
  boost::json::array messages;
  std::vector<std::string_view> texts;
  for (const prompt::Message& message : conversation.messages) texts.push_back(message.content);
  require_possible(texts, text::SpecialTokens::kAsText, "messages");
  const bool knows_developer = template_->mentions("developer");
  for (const prompt::Message& message : conversation.messages) {
    const bool as_system = message.role == "developer" && !knows_developer;
    boost::json::object entry{{"role", as_system ? "system" : message.role},
                              {"content", message.content}};
    if (!message.name.empty()) entry["name"] = message.name;
    messages.push_back(std::move(entry));
  }
  return template_
      ->render(*tokenizer_, boost::json::serialize(messages), conversation.add_generation_prompt,
               conversation.template_kwargs_json)
      .ids;
}

std::vector<int32_t> ModelBinding::tokenize(std::string_view text) const {
  require_possible({&text, 1}, text::SpecialTokens::kParse, "prompt");
  std::vector<int32_t> ids = tokenizer_->encode(text, text::SpecialTokens::kParse);
  const bool there = std::ranges::mismatch(leading_, ids).in1 == leading_.end();
  if (!there) ids.insert(ids.begin(), leading_.begin(), leading_.end());
  return ids;
}

TokenText ModelBinding::token_text(int32_t id) const {
  TokenText token{.bytes = std::string(tokenizer_->bytes_of(id)),
                  .text = {},
                  .special = tokenizer_->is_special(id)};
  text::Utf8Assembler assembler;
  assembler.push(token.bytes, token.text);
  assembler.finish(token.text);
  return token;
}

engine::SamplingParams ModelBinding::resolve(const engine::SamplingOptions& request) const {
  const engine::SamplingOptions &flag = options_.sampling, &model = generation_config_;
  return {
      .temperature = first_of(request.temperature, flag.temperature, model.temperature, 0.7f),
      .top_p = first_of(request.top_p, flag.top_p, model.top_p, 1.0f),
      .top_k = first_of(request.top_k, flag.top_k, model.top_k, 0),
      .min_p = first_of(request.min_p, flag.min_p, model.min_p, 0.0f),
      .repetition_penalty = first_of(request.repetition_penalty, flag.repetition_penalty,
                                     model.repetition_penalty, 1.0f),
      .presence_penalty = request.presence_penalty.value_or(0),
      .frequency_penalty = request.frequency_penalty.value_or(0),
      .seed = request.seed ? *request.seed : fresh_seed(),
      .logit_bias = request.logit_bias,
  };
}

kv::KvScheme ModelBinding::scheme(const engine::Request& request) const {
  kv::KvScheme scheme = options_.kv;
  if (!request.kv_quant.empty()) kv::set_quantization(scheme, request.kv_quant);
  if (!options_.kv_by_request && scheme.name() != info_.kv_scheme) {
    throw Error(ErrorKind::kUnsupported,
                "kv_quant: this server stores keys and values as " + info_.kv_scheme +
                    "; start it with --kv-quant-by-request to let requests choose",
                "kv_quant", "unsupported_value");
  }
  return scheme;
}

void ModelBinding::require_possible(std::span<const std::string_view> texts,
                                    text::SpecialTokens special, const char* field) const {
  int64_t bytes = 0;
  for (const std::string_view text : texts) bytes += static_cast<int64_t>(text.size());
  const int64_t context = info_.context_tokens;
  if (bytes <= kSparseTokenBytes * context) return;
  // Some tokens are long. In pieces, so that a text far too long is not tokenized to its end; at
  // their borders there may be a few tokens more than in the whole.
  int64_t tokens = 0;
  for (std::string_view rest : texts) {
    while (!rest.empty() && tokens <= 2 * context) {
      const std::string_view piece = whole_characters(rest, kPieceBytes);
      tokens += std::ssize(tokenizer_->encode(piece, special));
      rest.remove_prefix(piece.size());
    }
  }
  if (tokens <= 2 * context) return;
  throw Error(ErrorKind::kInvalidRequest,
              fmt::format("the prompt has {} bytes: more than fit into the context of {} tokens",
                          bytes, context),
              field, "context_length_exceeded");
}

int64_t ModelBinding::answer_tokens(const engine::Request& request,
                                    const kv::RowPrecision& precision) const {
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  const int64_t fits =
      kv::tokens_that_fit(precision, model_->shape().layers, options_.engine.kv_memory_bytes,
                          info_.context_tokens, options_.engine.prefill.chunk);
  const int64_t wanted = prompt + request.max_tokens.value_or(1);
  if (wanted > fits) {
    throw Error(ErrorKind::kTooLarge,
                fmt::format("the prompt's {} tokens and {} of an answer need more memory for keys "
                            "and values than this server has, {:.1f} MB (--kv-memory-mb): it holds "
                            "{} tokens",
                            prompt, wanted - prompt,
                            static_cast<double>(options_.engine.kv_memory_bytes) / (1 << 20), fits),
                prompt < fits ? request.max_tokens_field : request.prompt_field,
                "context_length_exceeded");
  }
  // A default bends to what there is; what a request asks for does not.
  return request.max_tokens.value_or(std::min(options_.max_tokens.value_or(fits), fits - prompt));
}

std::optional<store::Generation> ModelBinding::generation(const engine::Request& request,
                                                          const engine::SamplingParams& sampling,
                                                          const store::Namespace& space) const {
  const bool resumable = options_.engine.generation_checkpoint > 0 && request.own_id &&
                         request.choices == 1 && !request.top_logprobs && request.cache_prompt;
  if (!resumable || engine_->ssd() == nullptr) return std::nullopt;
  store::Generation fresh = answer_identity(request, sampling, space);
  auto known = engine_->ssd()->generation(fresh.key, fresh.fingerprint);
  // A file is not believed: an id that the model does not have would be read out of bounds.
  const auto is_token = [&](int32_t id) { return id >= 0 && id < info_.vocab_size; };
  if (!known || !std::ranges::all_of(known->answer, is_token)) return fresh;
  return known;
}

std::shared_ptr<engine::Stream> ModelBinding::submit(engine::Request request) {
  engine::require_fit(request, info_.context_tokens);
  for (int32_t id : request.prompt) {
    if (id < 0 || id >= info_.vocab_size) {
      fail(ErrorKind::kInvalidRequest, "token id {} is outside the vocabulary of {}", id,
           info_.vocab_size);
    }
  }
  for (const auto& [id, bias] : request.sampling.logit_bias) {
    if (id < 0 || id >= info_.vocab_size) {
      throw Error(ErrorKind::kInvalidRequest,
                  fmt::format("logit_bias: token id {} is outside the vocabulary of {}", id,
                              info_.vocab_size),
                  "logit_bias");
    }
  }
  const kv::KvScheme scheme = this->scheme(request);
  const std::string stored_as = scheme.name();
  kv::RowPrecision precision = stored_as == info_.kv_scheme
                                   ? default_precision_
                                   : kv::resolve(scheme, model_->shape().layers);
  const int64_t max_tokens = answer_tokens(request, precision);
  engine::SamplingParams sampling = resolve(request.sampling);
  // Who sends a key of its own shares prefixes with nobody else, unless a salt says so.
  const bool salted = !request.cache_salt.empty();
  std::string space = fmt::format("{}\n{}:{}", stored_as, salted ? "salt" : "key",
                                  salted ? request.cache_salt : request.client);
  std::optional<store::Generation> generation = this->generation(request, sampling, space);
  if (generation) sampling.seed = generation->seed;
  auto stream = std::make_shared<engine::Stream>(request.prompt.size(), sampling.seed,
                                                 engine::Stream::kCapacity, request.choices);
  engine_->submit({.request = std::move(request),
                   .sampling = std::move(sampling),
                   .max_tokens = max_tokens,
                   .precision = std::move(precision),
                   .stream = stream,
                   .space = std::move(space),
                   .generation = std::move(generation)});
  return stream;
}

std::optional<store::SsdStats> ModelBinding::ssd_stats() const {
  if (engine_->ssd() == nullptr) return std::nullopt;
  return engine_->ssd()->stats();
}

bool ModelBinding::flush_ssd(std::chrono::milliseconds limit) {
  if (engine_->ssd() == nullptr) {
    fail(ErrorKind::kUnsupported, "there is no SSD cache: start the server with --ssd-cache DIR");
  }
  // Each holds a thread that others need for their requests.
  if (flushing_.test_and_set()) {
    fail(ErrorKind::kOverloaded, "the cache is being flushed already; try again later");
  }
  const bool durable = engine_->ssd()->flush(limit);
  flushing_.clear();
  return durable;
}

}  // namespace cohort::serving
