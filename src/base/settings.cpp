#include "base/settings.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <type_traits>

#include "base/error.h"
#include "base/printable.h"
#include "base/settings_file.h"

namespace cohort {
namespace {

Allowed any() {
  return {};
}
Allowed secret() {
  return {.secret = true, .names = {}};
}
Allowed range(double least, double most) {
  return {.least = least, .most = most, .names = {}};
}
Allowed above(double bound, double most) {
  return {.least = bound, .most = most, .least_excluded = true, .names = {}};
}
template <class... Names>
Allowed one_of(Names... names) {
  return {.least = {}, .most = {}, .names = {names...}};
}

/// A value on its way in: its texts, what to call its source, and its type if that was a TOML file.
struct Input {
  const std::vector<std::string>& texts;
  std::string source;
  std::optional<FileEntry::Kind> kind;
};

template <class T>
struct Unwrap {
  using Type = T;
};
template <class T>
struct Unwrap<std::optional<T>> {
  using Type = T;
};

template <class T>
constexpr bool is_list_type = std::is_same_v<T, std::vector<std::string>>;

std::string describe(const Allowed& allowed, const char* what) {
  if (!allowed.names.empty()) return fmt::format("one of {}", fmt::join(allowed.names, ", "));
  if (!allowed.least) return what;
  return fmt::format("{} {} {} up to {}", what, allowed.least_excluded ? "above" : "from",
                     *allowed.least, *allowed.most);
}

[[noreturn]] void reject(const Input& input, const Allowed& allowed, const char* what) {
  const std::string value =
      allowed.secret ? "this" : printable(fmt::to_string(fmt::join(input.texts, ",")));
  fail(ErrorKind::kInvalidRequest, "{}: {} is not valid; allowed: {}", input.source, value,
       describe(allowed, what));
}

bool within(double value, const Allowed& allowed) {
  if (std::isnan(value)) return false;
  if (!allowed.least) return true;
  const bool above = allowed.least_excluded ? value > *allowed.least : value >= *allowed.least;
  return above && value <= *allowed.most;
}

template <class T>
T parse_number(const Input& input, const Allowed& allowed) {
  using Kind = FileEntry::Kind;
  const char* what = std::is_integral_v<T> ? "a whole number" : "a number";
  const bool kind_fits = !input.kind || *input.kind == Kind::kInteger ||
                         (!std::is_integral_v<T> && *input.kind == Kind::kFloat);
  if (!kind_fits) reject(input, allowed, what);
  const std::string& text = input.texts.front();
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool complete = error == std::errc() && end == text.data() + text.size();
  if (!complete || !within(static_cast<double>(value), allowed)) reject(input, allowed, what);
  return value;
}

bool parse_bool(const Input& input, const Allowed& allowed) {
  const std::string& text = input.texts.front();
  const bool kind_fits = !input.kind || *input.kind == FileEntry::Kind::kBool;
  if (kind_fits && (text == "true" || text == "1")) return true;
  if (kind_fits && (text == "false" || text == "0")) return false;
  reject(input, allowed, "true or false");
}

std::string parse_text(const Input& input, const Allowed& allowed, const char* what = "a text") {
  if (input.kind && *input.kind != FileEntry::Kind::kString) reject(input, allowed, what);
  const std::string& text = input.texts.front();
  const bool is_control =
      std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < 32; });
  if (is_control) reject(input, allowed, "a text without control characters");
  return text;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> items;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) items.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return items;
}

template <class T>
T parse(const Input& input, const Allowed& allowed) {
  using Value = typename Unwrap<T>::Type;
  if constexpr (is_list_type<T>) {
    if (input.kind && *input.kind != FileEntry::Kind::kList) {
      reject(input, allowed, "a list of texts");
    }
    return input.texts;
  } else if constexpr (std::is_same_v<Value, std::string>) {
    return parse_text(input, allowed);
  } else if constexpr (std::is_same_v<Value, bool>) {
    return parse_bool(input, allowed);
  } else if constexpr (std::is_enum_v<Value>) {
    const auto at =
        std::find(allowed.names.begin(), allowed.names.end(), parse_text(input, allowed));
    if (at == allowed.names.end()) reject(input, allowed, "");
    return static_cast<Value>(at - allowed.names.begin());
  } else {
    return parse_number<Value>(input, allowed);
  }
}

template <class T>
std::string default_text(const T& value, const Allowed& allowed) {
  if constexpr (is_list_type<T>) {
    return fmt::to_string(fmt::join(value, ","));
  } else if constexpr (std::is_same_v<T, std::string>) {
    return value;
  } else if constexpr (std::is_enum_v<T>) {
    return allowed.names.at(static_cast<size_t>(value));
  } else if constexpr (std::is_same_v<T, typename Unwrap<T>::Type>) {
    return fmt::to_string(value);
  } else {
    return value ? default_text(*value, allowed) : "";
  }
}

/// A row of the table and how to set its member.
struct Row {
  Knob knob;
  void (*assign)(Settings&, const Input&, const Allowed&);
};

template <class T>
Row make_row(const char* name, const T& default_value, const char* unit, Allowed allowed,
             uint32_t commands, const char* group, const char* help,
             void (*assign)(Settings&, const Input&, const Allowed&)) {
  std::string environment = fmt::format("COHORT_{}", name);
  for (char& c : environment) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  std::string flag = fmt::format("--{}", name);
  std::ranges::replace(flag, '_', '-');
  std::string shown = default_text(default_value, allowed);
  return {.knob = {.name = name,
                   .flag = std::move(flag),
                   .environment = std::move(environment),
                   .unit = unit,
                   .group = group,
                   .help = help,
                   .default_text = std::move(shown),
                   .allowed = std::move(allowed),
                   .commands = commands,
                   .is_switch = std::is_same_v<T, bool>,
                   .is_list = is_list_type<T>},
          .assign = assign};
}

std::vector<Row> make_rows() {
  const Settings defaults;
  std::vector<Row> table;
  const char* group = "";
#define GROUP(title) group = title;
#define SETTING(type, name, default_value, unit, allowed, commands, help)                        \
  table.push_back(make_row(#name, defaults.name, unit, allowed, static_cast<uint32_t>(commands), \
                           group, help,                                                          \
                           [](Settings& out, const Input& input, const Allowed& values) {        \
                             out.name = parse<type>(input, values);                              \
                           }));
#include "base/settings.def"
#undef SETTING
#undef GROUP
  return table;
}

/// The table; immutable after its first use.
const std::vector<Row>& rows() {
  static const std::vector<Row> table = make_rows();
  return table;
}

const Row* find_row(const std::string& name) {
  for (const Row& row : rows()) {
    if (row.knob.name == name) return &row;
  }
  return nullptr;
}

/// Settings of the command that asks, and of the others, whose values are only checked.
struct Resolved {
  uint32_t commands;
  Settings settings = {}, unused = {};

  Settings& of(const Row& row) { return (row.knob.commands & commands) != 0 ? settings : unused; }
};

void apply_file(Resolved& resolved, const std::string& path) {
  for (const FileEntry& entry : read_settings_file(path)) {
    const Row* row = find_row(entry.key);
    if (!row) {
      std::vector<std::string> names;
      for (const Row& known : rows()) names.push_back(known.knob.name);
      fail(ErrorKind::kInvalidRequest, "{}:{}: unknown key {}; allowed: {}", path, entry.line,
           printable(entry.key), fmt::join(names, ", "));
    }
    const std::vector<std::string> none = {"a table or date"};
    const Input input{.texts = entry.texts.empty() && !row->knob.is_list ? none : entry.texts,
                      .source = fmt::format("{}:{}: {}", path, entry.line, entry.key),
                      .kind = entry.kind};
    row->assign(resolved.of(*row), input, row->knob.allowed);
  }
}

constexpr std::string_view kConfigVariable = "COHORT_CONFIG";  // as --config

/// Variables that are no knob but have their readers.
constexpr std::string_view kOtherVariables[] = {
    kConfigVariable,
    "COHORT_ISA",     // kernels/cpu/dispatch.cpp: the instruction set
    "COHORT_BINARY",  // tests/client: the program, which inherits it
};
constexpr std::string_view kTestPrefix = "COHORT_TEST_";  // tests only

using Environment = std::map<std::string, std::string>;

std::optional<std::string> find_variable(const Environment& environment, std::string_view name) {
  const auto at = environment.find(std::string(name));
  if (at == environment.end()) return std::nullopt;
  return at->second;
}

/// How many characters must be added, removed or replaced to get from one text to the other.
///   source  Levenshtein
size_t edit_distance(std::string_view from, std::string_view to) {
  std::vector<size_t> row(to.size() + 1);  // distances from what was read of `from`
  std::iota(row.begin(), row.end(), size_t{0});
  for (const char c : from) {
    size_t diagonal = row[0]++;
    for (size_t i = 0; i < to.size(); ++i) {
      const size_t replaced = diagonal + (c == to[i] ? 0 : 1);
      diagonal = row[i + 1];
      row[i + 1] = std::min({replaced, row[i] + 1, row[i + 1] + 1});
    }
  }
  return row.back();
}

/// A misspelled variable would be a setting that is silently not made.
void refuse_unknown_variables(const Environment& environment) {
  std::vector<std::string_view> known(std::begin(kOtherVariables), std::end(kOtherVariables));
  for (const Row& row : rows()) known.push_back(row.knob.environment);
  for (const auto& [name, value] : environment) {
    if (!name.starts_with("COHORT_") || name.starts_with(kTestPrefix)) continue;
    if (std::ranges::find(known, name) != known.end()) continue;
    std::ranges::stable_sort(
        known, {}, [&name = name](std::string_view other) { return edit_distance(name, other); });
    known.resize(3);
    fail(ErrorKind::kInvalidRequest, "{}: there is no such variable; the nearest are {}",
         printable(name), fmt::join(known, ", "));
  }
}

void apply_environment(Resolved& resolved, const Environment& environment) {
  refuse_unknown_variables(environment);
  for (const Row& row : rows()) {
    const auto text = find_variable(environment, row.knob.environment);
    if (!text) continue;
    const std::vector<std::string> texts =
        row.knob.is_list ? split(*text) : std::vector<std::string>{*text};
    if (texts.empty()) {  // what was to be there may be missing, such as a key
      fail(ErrorKind::kInvalidRequest, "{} is empty: set it to something, or unset it",
           row.knob.environment);
    }
    row.assign(resolved.of(row), {.texts = texts, .source = row.knob.environment, .kind = {}},
               row.knob.allowed);
  }
}

std::optional<std::string> find_config_file(const SettingSources& sources) {
  if (sources.config_file) return sources.config_file;
  std::error_code ignored;
  auto named = find_variable(sources.environment, kConfigVariable);
  if (named && !named->empty()) {
    if (std::filesystem::exists(*named, ignored)) return named;
    fail(ErrorKind::kNotFound, "{}: there is no file {}", kConfigVariable, printable(*named));
  }
  const std::string xdg = find_variable(sources.environment, "XDG_CONFIG_HOME").value_or("");
  const std::string home = find_variable(sources.environment, "HOME").value_or("");
  std::string path;
  if (!xdg.empty()) {
    path = fmt::format("{}/cohort/config.toml", xdg);
  } else if (!home.empty()) {
    path = fmt::format("{}/.config/cohort/config.toml", home);
  }
  if (path.empty() || !std::filesystem::exists(path, ignored)) return std::nullopt;
  return path;
}

}  // namespace

const std::vector<Knob>& knobs() {
  static const std::vector<Knob> table = [] {
    std::vector<Knob> all;
    for (const Row& row : rows()) all.push_back(row.knob);
    return all;
  }();
  return table;
}

Settings load_settings(const SettingSources& sources) {
  Resolved resolved{.commands = sources.commands};
  if (const auto path = find_config_file(sources)) apply_file(resolved, *path);
  apply_environment(resolved, sources.environment);
  Settings& settings = resolved.settings;
  for (const auto& [name, texts] : sources.flags) {
    const Row* row = find_row(name);
    check(row && !texts.empty(), "a flag names a knob and has a value");
    row->assign(settings, {.texts = texts, .source = row->knob.flag, .kind = {}},
                row->knob.allowed);
  }
  const auto home = find_variable(sources.environment, "HOME");
  settings.cache_dir = expand_home(settings.cache_dir, home ? home->c_str() : nullptr);
  settings.ssd_cache = expand_home(settings.ssd_cache, home ? home->c_str() : nullptr);
  return settings;
}

std::map<std::string, std::string> process_environment() {
  std::map<std::string, std::string> variables;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string_view entry = *at;
    const size_t equals = entry.find('=');
    if (equals == std::string_view::npos) continue;
    variables.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return variables;
}

std::string expand_home(const std::string& path, const char* home) {
  const bool has_tilde = path == "~" || path.starts_with("~/");
  return has_tilde && home ? home + path.substr(1) : path;
}

}  // namespace cohort
