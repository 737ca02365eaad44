#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/settings.h"
#include "store/hub/hub.h"
#include "store/hub/hub_cache.h"

namespace cohort::store {

/// A model on this machine.
struct LocalModel {
  std::string name;            // alias, hub id or file name: what requests may call it
  std::filesystem::path path;  // a folder with safetensors, or a .gguf file
};

/// Finds MODEL, downloading it first if need be. MODEL is, in this order: an existing folder or
/// .gguf file, an alias, or org/name[@revision][:file.gguf] of the hub.
///   refresh  ask the hub even if the model is complete here
///   throws   Error as fetch_from_hub and fetch_alias; {kInvalidRequest} if MODEL is none of these
LocalModel resolve_model(const std::string& model, const Settings& settings, const HubOptions& hub,
                         bool refresh = false);

/// Whether a lone argument is a MODEL rather than a prompt: an existing folder or .gguf file, an
/// alias or a hub id.
bool looks_like_model(const std::string& text);

/// Every model in the caches of this machine.
std::vector<CachedModel> list_models(const Settings& settings, const HubOptions& hub);

}  // namespace cohort::store
