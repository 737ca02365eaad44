#include "app/loading.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "base/say.h"
#include "kernels/device.h"

namespace cohort::app {
namespace {

std::string read_text(const std::string& file) {
  const MappedFile mapped(file);
  return {reinterpret_cast<const char*>(mapped.bytes().data()), mapped.bytes().size()};
}

/// Where a model's kv_config.json would be.
std::string kv_config_of(const std::filesystem::path& model) {
  const auto folder = std::filesystem::is_directory(model) ? model : model.parent_path();
  return (folder / "kv_config.json").string();
}

}  // namespace

store::LocalModel find_model(const Settings& settings) {
  const auto environment = [](const char* name) -> const char* { return std::getenv(name); };
  return store::resolve_model(settings.model, settings,
                              store::hub_options(environment, settings.download_stall_s));
}

int64_t prefill_chunk(const Settings& settings) {
  return settings.prefill_chunk_tokens > 0 ? settings.prefill_chunk_tokens
                                           : engine::PrefillPolicy::kChunk;
}

std::function<void(std::string_view)> warnings(const Settings& settings) {
  if (settings.log_level < LogLevel::kWarn) return [](std::string_view) {};
  return [](std::string_view line) { say("cohort: {}\n", line); };
}

model::LoadOptions load_options(const Settings& settings) {
  if (!kernels::has_host_blocks(settings.device)) {
    const auto refuse = [](const char* flag) {
      fail(ErrorKind::kInvalidRequest, "{} does not go with --device gpu, which {}", flag,
           "keeps keys and values as they are and in its own memory");
    };
    if (settings.kv_quant != "off") refuse("--kv-quant");
    if (settings.kv_quant_by_request) refuse("--kv-quant-by-request");
    if (!settings.ssd_cache.empty()) refuse("--ssd-cache");
  }
  kernels::require(settings.device);
  // MLX rounds what a GPU multiplies to TF32 unless this is 0; it looks once, at its first product.
  if (settings.exact) ::setenv("MLX_ENABLE_TF32", "0", 1);
  return {.exact = settings.exact, .device = settings.device, .log = warnings(settings)};
}

namespace {

/// Knobs that would change nothing are a mistake, unless requests may choose what they are for.
void require_effect(const Settings& settings, kv::KvScheme::Kind kind) {
  using Kind = kv::KvScheme::Kind;
  const auto refuse = [&](const char* flag, const char* what) {
    fail(ErrorKind::kInvalidRequest, "{} has no effect with --kv-quant {}: it is for {}", flag,
         settings.kv_quant, what);
  };
  if (kind == Kind::kOff && settings.kv_start > 0) refuse("--kv-start", "quantized ones");
  if (kind != Kind::kUniform && settings.kv_group_size != 64) refuse("--kv-group-size", "4 and 8");
  if (kind != Kind::kTurbo && settings.kv_turbo_skip_ends > 0) {
    refuse("--kv-turbo-skip-ends", "turbo");
  }
  if (kind != Kind::kConfig && !settings.kv_config.empty()) refuse("--kv-config", "config");
}

}  // namespace

kv::KvScheme kv_scheme(const Settings& settings, const std::string& path, KvConfig config) {
  kv::KvScheme scheme;
  kv::set_quantization(scheme, settings.kv_quant);
  scheme.dense_bf16 = settings.kv_dtype != KvDtype::kF32 && !settings.exact;
  scheme.group = settings.kv_group_size;
  if (scheme.group != 32 && scheme.group != 64 && scheme.group != 128) {
    fail(ErrorKind::kInvalidRequest, "--kv-group-size must be 32, 64 or 128, not {}", scheme.group);
  }
  scheme.start = settings.kv_start;
  scheme.turbo_skip_ends = settings.kv_turbo_skip_ends;
  if (settings.exact && settings.kv_dtype == KvDtype::kBf16) {
    fail(ErrorKind::kInvalidRequest,
         "--exact stores keys and values as f32: leave --kv-dtype bf16 out, or make it f32");
  }
  if (settings.exact && (scheme.kind != kv::KvScheme::Kind::kOff || settings.kv_quant_by_request)) {
    fail(ErrorKind::kInvalidRequest,
         "--exact stores keys and values as f32: it does not go with --kv-quant {}{}",
         settings.kv_quant, settings.kv_quant_by_request ? " --kv-quant-by-request" : "");
  }
  if (config == KvConfig::kIfNeeded) require_effect(settings, scheme.kind);
  const bool needed = scheme.kind == kv::KvScheme::Kind::kConfig;
  const std::string beside = kv_config_of(path);
  if (!settings.kv_config.empty()) {
    scheme.layers = kv::read_kv_config(read_text(settings.kv_config), settings.kv_config);
  } else if ((needed || config == KvConfig::kAlways) && std::filesystem::exists(beside)) {
    scheme.layers = kv::read_kv_config(read_text(beside), beside);
  } else if (needed) {
    fail(ErrorKind::kNotFound, "--kv-quant config: there is no {}; name a file with --kv-config",
         beside);
  }
  return scheme;
}

serving::BindingOptions binding_options(const Settings& settings, const store::LocalModel& model) {
  serving::BindingOptions options;
  options.path = model.path.string();
  options.names = settings.served_model_name;
  if (options.names.empty()) options.names.push_back(model.name);
  options.threads = settings.threads;
  options.context_tokens = settings.context_tokens;
  options.load = load_options(settings);
  options.kv = kv_scheme(settings, options.path,
                         settings.kv_quant_by_request ? KvConfig::kAlways : KvConfig::kIfNeeded);
  options.kv_by_request = settings.kv_quant_by_request;
  engine::EngineOptions& engine = options.engine;
  engine.kv_memory_bytes = static_cast<size_t>(settings.kv_memory_mb) << 20;
  engine.max_rows = static_cast<size_t>(settings.max_rows);
  engine.max_waiting = static_cast<size_t>(settings.max_waiting);
  engine.max_waiting_tokens = static_cast<size_t>(settings.max_waiting_tokens);
  engine.prefill.chunk = prefill_chunk(settings);
  engine.prefill.exact = settings.prefill_chunk_tokens > 0;
  engine.budget = {.itl_target_s = settings.itl_target_ms / 1000.0,
                   .alone_tokens = settings.prefill_chunk_tokens,
                   .most_tokens = engine.prefill.chunk};
  const Settings defaults;
  if (settings.ssd_cache.empty() &&
      (settings.ssd_cache_max || settings.ssd_demote_idle != defaults.ssd_demote_idle)) {
    fail(ErrorKind::kInvalidRequest,
         "--ssd-cache-max and --ssd-demote-idle have no effect without --ssd-cache DIR");
  }
  if (settings.ssd_cache.empty() && settings.generation_checkpoint > 0) {
    fail(ErrorKind::kInvalidRequest,
         "--generation-checkpoint keeps answers on SSD: it needs --ssd-cache DIR");
  }
  engine.generation_checkpoint = settings.generation_checkpoint;
  options.ssd.folder = settings.ssd_cache;
  options.ssd.most_bytes = uint64_t{static_cast<uint32_t>(settings.ssd_cache_max.value_or(32))}
                           << 30;
  engine.demote_idle =
      std::chrono::seconds(settings.ssd_cache.empty() ? 0 : settings.ssd_demote_idle);
  if (settings.prompt_cache_mb) {
    options.prompt_cache_bytes = static_cast<size_t>(*settings.prompt_cache_mb) << 20;
  }
  options.sampling.temperature = settings.temperature;
  options.sampling.top_p = settings.top_p;
  options.sampling.top_k = settings.top_k;
  options.sampling.min_p = settings.min_p;
  options.sampling.repetition_penalty = settings.repetition_penalty;
  options.max_tokens = settings.max_tokens;
  if (!settings.chat_template.empty()) options.chat_template = read_text(settings.chat_template);
  return options;
}

std::vector<int32_t> read_ids(const std::string& file) {
  const boost::json::value list = parse_json(read_text(file), file);
  std::vector<int32_t> ids;
  if (list.is_array()) {
    for (const boost::json::value& id : list.get_array()) {
      if (!id.is_int64() || id.get_int64() < 0 || id.get_int64() > INT32_MAX) break;
      ids.push_back(static_cast<int32_t>(id.get_int64()));
    }
    if (!ids.empty() && ids.size() == list.get_array().size()) return ids;
  }
  fail(ErrorKind::kInvalidRequest, "{}: must be a JSON list of at least one token id", file);
}

}  // namespace cohort::app
