#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <mutex>
#include <thread>

#include "api/openai.h"
#include "app/commands.h"
#include "app/loading.h"
#include "base/error.h"
#include "base/printable.h"
#include "base/say.h"
#include "base/trace.h"
#include "http/server.h"
#include "serving/model_host.h"

namespace cohort::app {
namespace {

/// What could never match, or is not what it was meant to be.
void require_usable(const Settings& settings) {
  for (const std::string& key : settings.api_key) {
    const auto sendable = [](char c) { return c > ' ' && c <= '~' && c != ','; };
    if (key.empty() || key.starts_with('-') || !std::ranges::all_of(key, sendable)) {
      fail(ErrorKind::kInvalidRequest,
           "--api-key: a key must be printable ASCII without spaces and commas, and not begin "
           "with -");
    }
  }
  for (const std::string& name : settings.allowed_host) {
    if (name.empty() || name.find_first_of(":/*, ") != std::string::npos) {
      fail(ErrorKind::kInvalidRequest, "--allowed-host: {} is no host name; give it without a port",
           printable(name));
    }
  }
  for (const std::string& origin : settings.allowed_origin) {
    const size_t host = origin.find("://");
    if (host == std::string::npos || origin.find_first_of("/*, ", host + 3) != std::string::npos) {
      fail(ErrorKind::kInvalidRequest,
           "--allowed-origin: {} is no origin; these are like https://chat.example:8443",
           printable(origin));
    }
  }
}

http::ServerOptions http_options(const Settings& settings) {
  require_usable(settings);
  http::ServerOptions options;
  options.host = settings.host;
  options.port = static_cast<uint16_t>(settings.port);
  options.api_keys = settings.api_key;
  options.allowed_hosts = settings.allowed_host;
  options.allowed_origins = settings.allowed_origin;
  options.body_bytes_max = uint64_t(settings.body_limit_mb) << 20;
  options.drain_timeout = std::chrono::seconds(settings.drain_timeout_s);
  options.log = warnings(settings);
  return options;
}

TracerOptions tracer_options(const Settings& settings) {
  if (settings.trace.empty() && settings.trace_limit_mb) {
    fail(ErrorKind::kInvalidRequest, "--trace-limit-mb has no effect without --trace");
  }
  TracerOptions options{.file = settings.trace,
                        .file_bytes_max = int64_t{settings.trace_limit_mb.value_or(256)} << 20,
                        .keep = static_cast<size_t>(settings.debug_traces)};
  options.log = warnings(settings);
  return options;
}

/// What SIGTERM, SIGINT and SIGHUP do: while loading, nothing is lost and the process ends; the
/// first one afterwards asks to drain; the next one ends the process as it is.
class StopSignals {
 public:
  /// Blocks the signals: before any other thread starts, so that only ours receives them.
  StopSignals() {
    sigemptyset(&signals_);
    for (int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals_, signal);
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
    std::thread([this] { listen(); }).detach();
  }

  void finish_loading() {
    std::lock_guard lock(mutex_);
    loaded_ = true;
  }
  void wait() { asked_.get_future().wait(); }

 private:
  [[noreturn]] void listen() {
    int signal = 0;
    sigwait(&signals_, &signal);
    {
      std::lock_guard lock(mutex_);
      if (!loaded_) std::_Exit(0);
    }
    asked_.set_value();
    sigwait(&signals_, &signal);
    std::_Exit(128 + signal);
  }

  sigset_t signals_;
  std::mutex mutex_;
  bool loaded_ = false;  // guarded by mutex_
  std::promise<void> asked_;
};

void print_invitation(const std::string& url, const serving::ModelInfo& info, bool needs_key) {
  const auto [path, ask] =
      info.has_chat_template
          ? std::pair("chat/completions", R"("messages": [{"role": "user", "content": "Hello!"}])")
          : std::pair("completions", R"("prompt": "Once upon a time", "max_tokens": 64)");
  fmt::print(
      "listening on {0}\n\n"
      "curl {0}/v1/{1} -H 'Content-Type: application/json'{4} -d '{{\n"
      "  \"model\": \"{2}\", {3}}}'\n",
      url, path, info.ids.front(), ask, needs_key ? " -H 'Authorization: Bearer KEY'" : "");
  std::fflush(stdout);
}

}  // namespace

/// Answers /health with "loading" until the model is there; SIGTERM or SIGINT drains.
int run_serve(const Settings& settings, const ServeOptions&) {
  Tracer tracer(tracer_options(settings));               // outlives all that has traces
  const store::LocalModel model = find_model(settings);  // a download ends as programs do
  static StopSignals& stop_signals = *new StopSignals;   // its thread sees the process end
  serving::BindingOptions options = binding_options(settings, model);
  serving::ModelHost service(options.names);
  http::ServerOptions server_options = http_options(settings);
  server_options.tracer = &tracer;
  http::Server server(api::openai_routes(service, &tracer), server_options);
  server.start();
  const bool talks = settings.log_level >= LogLevel::kInfo;
  if (talks) say("cohort: loading {}\n", model.path.string());
  service.finish_loading(std::make_unique<serving::ModelBinding>(std::move(options)));
  stop_signals.finish_loading();
  print_invitation(server.url(), service.info(), !settings.api_key.empty());

  stop_signals.wait();
  if (talks) say("cohort: finishing running answers; again to stop at once\n");
  service.start_draining();
  server.stop();
  return 0;
}

}  // namespace cohort::app
