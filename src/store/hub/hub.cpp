#include "store/hub/hub.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/settings.h"
#include "store/hub/download.h"
#include "store/hub/file_lock.h"
#include "store/hub/hub_cache.h"

namespace cohort::store {
namespace {

namespace fs = std::filesystem;

constexpr size_t kFilesMax = 20'000;

struct Listing {
  std::string commit;
  std::vector<std::string> files;
};

[[noreturn]] void refuse_listing(const HubId& id, std::string_view what) {
  fail(ErrorKind::kInvalidRequest, "the hub's listing of {} {}", id.repository(), what);
}

/// Every name is checked, wanted or not: a listing that tries to leave its folder is hostile.
Listing parse_listing(const std::string& text, const HubId& id) {
  const boost::json::object root =
      parse_json_object(text, fmt::format("the hub's listing of {}", id.repository()));
  const auto* sha = root.if_contains("sha");
  const auto* siblings = root.if_contains("siblings");
  Listing listing;
  if (sha && sha->is_string()) listing.commit = sha->get_string();
  const bool is_commit = listing.commit.size() == 40 && is_plain_name(listing.commit) &&
                         listing.commit.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!is_commit) refuse_listing(id, "names no commit: " + printable(listing.commit));
  if (!siblings || !siblings->is_array()) refuse_listing(id, "has no list of files");
  if (siblings->get_array().size() > kFilesMax) refuse_listing(id, "has too many files");
  for (const boost::json::value& item : siblings->get_array()) {
    const auto* entry = item.if_object();
    const auto* name = entry ? entry->if_contains("rfilename") : nullptr;
    if (!name || !name->is_string()) refuse_listing(id, "has a file without a name");
    listing.files.emplace_back(name->get_string().c_str(), name->get_string().size());
    if (!is_safe_repository_path(listing.files.back())) {
      refuse_listing(id, "names a file outside its folder: " + printable(listing.files.back()));
    }
  }
  return listing;
}

bool is_small_model_file(std::string_view name) {
  const bool is_template = name.starts_with("additional_chat_templates/") &&
                           std::count(name.begin(), name.end(), '/') == 1 &&
                           name.ends_with(".jinja");
  if (is_template) return true;
  if (name.find('/') != std::string_view::npos) return false;
  return name.ends_with(".json") || name.ends_with(".jinja") || name == "merges.txt" ||
         name == "tokenizer.model";
}

bool is_top_level(std::string_view name, std::string_view extension) {
  return name.find('/') == std::string_view::npos && name.ends_with(extension);
}

void fetch_file(HubSession& session, const HubCache& cache, const std::string& base_url,
                const std::string& commit, const std::string& name) {
  for (int round = 0; round < 2; ++round) {
    const RemoteFile file = session.describe(name, base_url + percent_encode(name, true));
    const fs::path blob = cache.blob(file.tag);
    const FileLock lock(cache.lock(file.tag));
    std::error_code error;
    const bool have = fs::file_size(blob, error) == file.size_bytes && !error;
    if (have || session.fetch(file, blob)) {
      cache.link(commit, name, file.tag);
      return;
    }
  }
  fail(ErrorKind::kUnavailable, "{} keeps changing on the server while it is downloaded", name);
}

/// What other hub clients take for a yes.
bool is_yes(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text == "1" || text == "ON" || text == "YES" || text == "TRUE";
}

}  // namespace

HubOptions hub_options(const char* (*environment)(const char*), int stall_s) {
  const auto read = [&](const char* name) {
    const char* text = environment(name);
    return std::string(text ? text : "");
  };
  const std::string home = read("HOME");
  HubOptions options{.endpoint = read("HF_ENDPOINT"),
                     .token = read("HF_TOKEN"),
                     .cache_root = expand_home(read("HF_HUB_CACHE"), home.c_str()),
                     .offline = false,
                     .stall_s = stall_s};
  options.offline = is_yes(read("HF_HUB_OFFLINE"));
  if (options.endpoint.empty()) options.endpoint = "https://huggingface.co";
  while (options.endpoint.ends_with('/')) options.endpoint.pop_back();
  origin_of(options.endpoint);
  if (options.token.find_first_of("\r\n") != std::string::npos) {
    fail(ErrorKind::kInvalidRequest, "HF_TOKEN holds a line break");
  }
  if (options.cache_root.empty()) {
    std::string hf_home = expand_home(read("HF_HOME"), home.c_str());
    const std::string xdg = read("XDG_CACHE_HOME");
    if (hf_home.empty() && !xdg.empty()) hf_home = xdg + "/huggingface";
    if (hf_home.empty() && !home.empty()) hf_home = home + "/.cache/huggingface";
    if (!hf_home.empty()) options.cache_root = hf_home + "/hub";
  }
  return options;
}

std::vector<std::string> select_files(const std::vector<std::string>& listing, const HubId& id) {
  std::vector<std::string> small, weights, model_weights, ggufs;
  for (const std::string& name : listing) {
    if (is_small_model_file(name)) small.push_back(name);
    if (name.ends_with(".gguf")) ggufs.push_back(name);
    if (!is_top_level(name, ".safetensors")) continue;
    weights.push_back(name);
    if (name.starts_with("model")) model_weights.push_back(name);
  }
  if (!id.file.empty()) {
    if (std::find(ggufs.begin(), ggufs.end(), id.file) != ggufs.end()) return {id.file};
    fail(ErrorKind::kNotFound, "{} has no file {}; GGUF files there: {}", id.repository(),
         printable(id.file), ggufs.empty() ? "none" : fmt::to_string(fmt::join(ggufs, ", ")));
  }
  // Some repositories hold the same weights twice, under a second name.
  if (!model_weights.empty()) weights = model_weights;
  if (!weights.empty()) {
    small.insert(small.end(), weights.begin(), weights.end());
    return small;
  }
  if (ggufs.size() == 1) return ggufs;
  if (ggufs.empty()) {
    fail(ErrorKind::kNotFound, "{} holds neither safetensors nor GGUF files", id.repository());
  }
  fail(ErrorKind::kNotFound, "{} holds several GGUF files; choose one as {}:FILE: {}",
       id.repository(), id.repository(), fmt::join(ggufs, ", "));
}

fs::path fetch_from_hub(const HubId& id, const HubOptions& options, bool refresh) {
  if (options.cache_root.empty()) {
    fail(ErrorKind::kInvalidRequest, "HOME is not set: name the hub's cache with HF_HOME");
  }
  const HubCache cache(options.cache_root, id);
  const auto known = cache.commit_of(id.revision);
  if (known && !refresh) {
    if (const auto found = find_loadable(cache.snapshot(*known), id.file)) return *found;
  }
  if (options.offline) {
    fail(ErrorKind::kUnavailable,
         "{} is not complete in {}, and HF_HUB_OFFLINE forbids the network", id.repository(),
         options.cache_root.string());
  }
  HttpClient client(options.stall_s);
  HubSession session(client, options);
  const std::string revision = percent_encode(id.revision, false);
  const Listing listing =
      parse_listing(session.get_text(fmt::format("{}/api/models/{}/revision/{}", options.endpoint,
                                                 id.repository(), revision)),
                    id);
  const std::vector<std::string> files = select_files(listing.files, id);
  cache.create();
  const std::string base_url =
      fmt::format("{}/{}/resolve/{}/", options.endpoint, id.repository(), listing.commit);
  for (const std::string& name : files) {
    fetch_file(session, cache, base_url, listing.commit, name);
  }
  cache.set_commit(id.revision, listing.commit);
  const fs::path snapshot = cache.snapshot(listing.commit);
  if (files.size() == 1) return snapshot / files.front();
  const auto found = find_loadable(snapshot, id.file);
  if (!found) {
    fail(ErrorKind::kNotFound, "{} is not a whole model: config.json or weight files are missing",
         id.repository());
  }
  return *found;
}

}  // namespace cohort::store
