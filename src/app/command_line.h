#pragma once

#include <string>
#include <variant>
#include <vector>

#include "app/commands.h"
#include "base/settings.h"

namespace cohort::app {

/// What the command line asks to run.
struct Invocation {
  SettingSources sources;  // flags and --config; the caller adds the environment
  std::variant<ServeOptions, RunOptions, LogitsOptions, BenchOptions, PullOptions, LsOptions,
               FitOptions, CacheOptions>
      options;
};

/// Text to print instead of running anything.
struct HelpText {
  std::string text;
};

/// Reads the arguments after the program's name.
///   throws  Error{kInvalidRequest} on a usage error, with what to try
std::variant<Invocation, HelpText> parse_command_line(std::vector<std::string> arguments);

}  // namespace cohort::app
