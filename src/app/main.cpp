#include <exception>

#include "app/command_line.h"
#include "app/commands.h"
#include "app/output.h"
#include "base/say.h"
#include "text/template_worker.h"

namespace cohort::app {
namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;

int run(const Settings& settings, const ServeOptions& options) {
  return run_serve(settings, options);
}
int run(const Settings& settings, const RunOptions& options) {
  return run_run(settings, options);
}
int run(const Settings& settings, const LogitsOptions& options) {
  return run_logits(settings, options);
}
int run(const Settings& settings, const BenchOptions& options) {
  return run_bench(settings, options);
}
int run(const Settings& settings, const PullOptions& options) {
  return run_pull(settings, options);
}
int run(const Settings& settings, const LsOptions& options) {
  return run_ls(settings, options);
}

int run(const Settings& settings, const FitOptions& options) {
  return run_fit(settings, options);
}
int run(const Settings& settings, const CacheOptions& options) {
  return run_cache(settings, options);
}

int guarded_main(int argc, char** argv) {
  int status_of_error = kUsage;  // until the command itself starts
  try {
    auto parsed = parse_command_line({argv + 1, argv + argc});
    if (const auto* help = std::get_if<HelpText>(&parsed)) {
      status_of_error = kFailed;
      fmt::print("{}", help->text);
      flush_output();
      return 0;
    }
    auto& invocation = std::get<Invocation>(parsed);
    invocation.sources.environment = process_environment();
    const Settings settings = load_settings(invocation.sources);
    status_of_error = kFailed;
    const int status =
        std::visit([&](const auto& options) { return run(settings, options); }, invocation.options);
    flush_output();
    return status;
  } catch (const std::exception& error) {  // Error, and what libraries throw
    say("cohort: error: {}\n", error.what());
    return status_of_error;
  }
}

}  // namespace
}  // namespace cohort::app

int main(int argc, char** argv) {
  if (const auto status = cohort::text::serve_as_template_worker(argc, argv)) return *status;
  return cohort::app::guarded_main(argc, argv);
}
