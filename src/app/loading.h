#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/settings.h"
#include "kv/scheme.h"
#include "model/model.h"
#include "serving/model_binding.h"
#include "store/hub/model_source.h"

namespace cohort::app {

/// Finds the model of the settings, downloading it first if need be.
store::LocalModel find_model(const Settings& settings);

/// Prompt tokens that a row is fed at a time.
int64_t prefill_chunk(const Settings& settings);

/// Where lines go that tell what was left out or went wrong: to stderr, if --log-level lets them.
std::function<void(std::string_view)> warnings(const Settings& settings);

/// How the settings say to load the model; sets a variable of this process for MLX, so before there
/// are other threads.
///   throws  Error{kInvalidRequest} if there is no such device, or settings ask too much of it
model::LoadOptions load_options(const Settings& settings);

/// Whether only the scheme of the settings is asked for, or others may be, too.
enum class KvConfig { kIfNeeded, kAlways };

/// How the settings say to store keys and values of the model at `path`, a folder or a .gguf file.
/// The kv_config.json in or beside it is read where its scheme may be asked for.
///   throws  Error{kInvalidRequest} for words, files and combinations that do not exist
kv::KvScheme kv_scheme(const Settings& settings, const std::string& path,
                       KvConfig config = KvConfig::kIfNeeded);

/// How the settings say to serve `model`.
///   throws  Error if the chat template file cannot be read
serving::BindingOptions binding_options(const Settings& settings, const store::LocalModel& model);

/// The JSON list of token ids in a file.
///   throws  Error{kNotFound, kInvalidRequest} naming the file
std::vector<int32_t> read_ids(const std::string& file);

}  // namespace cohort::app
