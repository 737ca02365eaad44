#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "store/hub/model_id.h"

namespace cohort::store {

/// Where models are downloaded from and to; resolved once from the environment that all hub
/// clients of a user share.
struct HubOptions {
  std::string endpoint;              // $HF_ENDPOINT, no trailing slash
  std::string token;                 // $HF_TOKEN; sent to the endpoint only
  std::filesystem::path cache_root;  // $HF_HUB_CACHE, $HF_HOME/hub or ~/.cache/huggingface/hub
  bool offline = false;              // $HF_HUB_OFFLINE
  int stall_s = 30;                  // silence after which a transfer is tried again
};

/// Reads HubOptions from the environment.
///   throws  Error{kInvalidRequest} if HF_ENDPOINT is no http(s) address
HubOptions hub_options(const char* (*environment)(const char*), int stall_s);

/// Makes a model of a hub available on this machine and returns what to load: a folder with
/// safetensors or a GGUF file. What is complete in the cache needs no network, unless `refresh`.
///   cost    downloads resume where they broke off, also in a later process
///   throws  Error{kNotFound} no such model, revision or file; {kInvalidRequest} names or redirects
///           that leave the folder or the hub; {kUnavailable} the hub cannot be reached or breaks
///           off; {kInternal} a file that is not what its checksum says
///   thread  any; processes wait for each other file by file
std::filesystem::path fetch_from_hub(const HubId& id, const HubOptions& options, bool refresh);

/// The files of a repository that a model needs, small ones first: configuration, tokenizer,
/// template and safetensors; or `wanted_file`; or the only GGUF file.
///   throws  Error{kNotFound} if there is nothing to load, or several GGUF files and none chosen
std::vector<std::string> select_files(const std::vector<std::string>& listing, const HubId& id);

}  // namespace cohort::store
