// The real HTTP server in front of the echo service, with the command line and the output of
// `cohort serve`: for developing clients' tests without a model.
#include <fmt/format.h>

#include <csignal>
#include <cstdlib>
#include <cstring>

#include "api/openai.h"
#include "http/server.h"
#include "tests/support/echo_service.h"

int main(int argc, char** argv) {
  cohort::http::ServerOptions options;
  cohort::testing::EchoOptions echo;
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::strcmp(argv[i], "--port") == 0) {
      options.port = static_cast<uint16_t>(std::atoi(argv[i + 1]));
    }
    if (std::strcmp(argv[i], "--token-us") == 0) {
      echo.token_time = std::chrono::microseconds(std::atoi(argv[i + 1]));
    }
  }
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  cohort::testing::EchoService service(echo);
  cohort::http::Server server(cohort::api::openai_routes(service), options);
  server.start();
  fmt::print("listening on {}\n", server.url());
  std::fflush(stdout);
  int received = 0;
  sigwait(&signals, &received);
  service.set_health(cohort::serving::Health::kDraining);
  server.stop();
  return 0;
}
