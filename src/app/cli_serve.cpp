#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <optional>
#include <thread>

#include "api/openai.h"
#include "app/commands.h"
#include "app/loading.h"
#include "http/server.h"
#include "serving/model_host.h"

namespace cohort::app {
namespace {

http::ServerOptions server_options(const Settings& settings) {
  http::ServerOptions options;
  options.host = settings.host;
  options.port = static_cast<uint16_t>(settings.port);
  options.allowed_origins = settings.allowed_origins;
  options.body_bytes_max = uint64_t(settings.body_limit_mb) << 20;
  options.drain_timeout = std::chrono::seconds(settings.drain_timeout_s);
  options.log = [](std::string_view line) { fmt::print(stderr, "cohort: {}\n", line); };
  return options;
}

void print_invitation(const std::string& url, const std::string& model) {
  fmt::print(
      "listening on {0}\n\n"
      "curl {0}/v1/chat/completions -H 'Content-Type: application/json' -d '{{\n"
      "  \"model\": \"{1}\", \"messages\": [{{\"role\": \"user\", \"content\": \"Hello!\"}}]}}'\n",
      url, model);
  std::fflush(stdout);
}

}  // namespace

/// Answers /health with "loading" until the model is there; SIGTERM or SIGINT drains.
int run_serve(const Settings& settings, const ServeOptions&) {
  // Blocked before any thread starts, so that only the wait below receives them.
  sigset_t signals;
  sigemptyset(&signals);
  for (int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  const store::LocalModel model = find_model(settings);
  serving::BindingOptions options = binding_options(settings, model);
  serving::ModelHost service(options.names);
  http::Server server(api::openai_routes(service), server_options(settings));
  server.start();
  fmt::print(stderr, "cohort: loading {}\n", model.path.string());
  const std::string name = options.names.front();
  service.finish_loading(std::make_unique<serving::ModelBinding>(std::move(options)));
  print_invitation(server.url(), name);

  int signal = 0;
  sigwait(&signals, &signal);
  fmt::print(stderr, "cohort: finishing running answers; again to stop at once\n");
  service.start_draining();
  std::thread second([&signals] {
    int again = 0;
    sigwait(&signals, &again);
    std::_Exit(128 + again);
  });
  second.detach();
  server.stop();
  return 0;
}

}  // namespace cohort::app
