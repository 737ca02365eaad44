#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort {

/// What forwards run on. kPlain is for tests: what kGpu runs, but on the CPU.
enum class Device { kCpu, kGpu, kPlain };
enum class KvDtype { kBf16, kF32 };
enum class LogLevel { kError, kWarn, kInfo, kDebug };

/// Subcommands, as bits: which of them take a flag.
enum Command : uint32_t {
  kServe = 1,
  kRun = 2,
  kLogits = 4,
  kBench = 8,
  kPull = 16,
  kLs = 32,
  kFit = 64,
  kCache = 128,
};

/// Every knob, resolved; passed around as const after start. settings.def says what each one means.
struct Settings {
#define GROUP(title)
#define SETTING(type, name, default_value, ...) type name = default_value;
#include "base/settings.def"
#undef SETTING
#undef GROUP
};

/// Which values a knob takes. `names` is for enums; `least`..`most` for numbers.
struct Allowed {
  std::optional<double> least;
  std::optional<double> most;
  bool least_excluded = false;
  bool secret = false;  // messages leave the value out
  std::vector<std::string> names;
};

/// One row of the table as help and command line need it.
struct Knob {
  std::string name;  // also the TOML key
  std::string flag;
  std::string environment;
  std::string unit;   // empty for a yes/no
  std::string group;  // section of the help
  std::string help;
  std::string default_text;  // empty = unset
  Allowed allowed;
  uint32_t commands = 0;
  bool is_switch = false;  // a yes/no: the flag needs no value
  bool is_list = false;    // the flag may be repeated; the environment variable separates by comma
};

/// The table, in the order of settings.def.
const std::vector<Knob>& knobs();

/// Where values come from. A later source yields to an earlier one.
struct SettingSources {
  std::vector<std::pair<std::string, std::vector<std::string>>>
      flags;  // knob name, values as typed
  std::map<std::string, std::string> environment = {};
  std::optional<std::string> config_file = {};  // --config: must exist
  // Who asks: variables and keys of other commands are checked, but set nothing.
  uint32_t commands = ~0u;
};

/// Resolves every knob: flag > environment > TOML file > default.
///   file    config_file, else $COHORT_CONFIG if that is not empty, which must exist, too; else
///           $XDG_CONFIG_HOME/cohort/config.toml or ~/.config/cohort/config.toml if that exists
///   throws  Error{kInvalidRequest} naming the source (flag, variable or file:key), the value and
///           what is allowed, or a variable COHORT_... that nobody reads and the nearest known
///           ones (COHORT_TEST_... are the tests'); Error{kNotFound} for a file that does not exist
Settings load_settings(const SettingSources& sources);

/// The variables of this process.
std::map<std::string, std::string> process_environment();

/// Replaces a leading "~" by $HOME.
std::string expand_home(const std::string& path, const char* home);

}  // namespace cohort
