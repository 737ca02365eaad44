#include "app/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/printable.h"
#include "store/hub/model_source.h"

namespace cohort::app {
namespace {

/// What the flags of one subcommand were given, before it is known what is valid.
struct Flags {
  std::map<std::string, std::string> texts;
  std::map<std::string, std::vector<std::string>> lists;
  std::string config_file;
  std::string model;   // the first positional
  std::string prompt;  // the second, of `run`
};

struct Subcommand {
  CLI::App* app;
  Command command;
  Flags flags;
};

std::string option_line(const CLI::Option& option) {
  std::string left = option.get_positional() ? option.get_name(true) : option.get_name(false, true);
  if (left.starts_with("-h,")) left.insert(3, " ");
  const bool is_lone_long = !option.get_positional() && left.starts_with("--");
  left = is_lone_long ? "      " + left : "  " + left;
  if (!option.get_positional() && !option.get_type_name().empty()) {
    left += " " + option.get_type_name();
  }
  std::string line = fmt::format("{:<36}{}", left, option.get_description());
  if (left.size() > 34) {
    line = fmt::format("{}\n{:<36}{}", left, "", option.get_description());
  }
  if (!option.get_default_str().empty()) line += fmt::format(" [{}]", option.get_default_str());
  return line + "\n";
}

/// Usage, what it does, options by group, examples: the help of one subcommand.
std::string format_help(const CLI::App* app, const std::string&, CLI::AppFormatMode) {
  std::string text = app->get_description() + "\n";
  for (const std::string& group : app->get_groups()) {
    std::string lines;
    for (const CLI::Option* option :
         app->get_options([&](const CLI::Option* o) { return o->get_group() == group; })) {
      lines += option_line(*option);
    }
    if (!lines.empty()) text += fmt::format("\n{}:\n{}", group, lines);
  }
  return text + "\n" + app->get_footer() + "\n";
}

constexpr const char* kOverview =
    R"(Cohort serves a language model to several people or agents at once.

Usage: cohort COMMAND [OPTIONS]

Commands:
  serve [MODEL]             serve the OpenAI-compatible API over HTTP
  run [MODEL] ["PROMPT"]    answer one prompt, or chat, in the terminal
  logits MODEL              write the logits of every position, to check parity
  bench MODEL               measure prefill and decode speed
  fit MODEL                 say which context fits, for each way to store keys and values
  pull MODEL                download a model and print its path
  ls                        list the models on this machine
  cache ls|verify|gc        list, check or clear the folder of --ssd-cache

MODEL is a folder with safetensors, a .gguf file, a hub id org/name[@revision][:file.gguf], or
smollm2 (what serve and run take without one) or gemma3-270m.

Examples:
  cohort serve
  cohort run "Why is the sky blue?"
  cohort serve org/name --port 9000

  -h, --help       show this help; also of a command: cohort serve --help
  -V, --version    show the version

Every option is also an environment variable (--max-rows: COHORT_MAX_ROWS) and a key of
~/.config/cohort/config.toml (max_rows); flags win over the environment, the environment over
the file. COHORT_CONFIG, as --config, names another file.
)";

void add_knobs(Subcommand& sub) {
  for (const Knob& knob : knobs()) {
    if (!(knob.commands & sub.command)) continue;
    CLI::Option* option = nullptr;
    if (knob.is_switch) {
      option = sub.app->add_flag(knob.flag, sub.flags.texts[knob.name], knob.help);
    } else if (knob.is_list) {
      option = sub.app->add_option(knob.flag, sub.flags.lists[knob.name], knob.help);
      option->allow_extra_args(false);
    } else {
      option = sub.app->add_option(knob.flag, sub.flags.texts[knob.name], knob.help);
    }
    std::string unit = knob.unit;
    if (!knob.allowed.names.empty()) unit = fmt::to_string(fmt::join(knob.allowed.names, "|"));
    option->type_name(unit);
    if (!knob.is_switch) option->default_str(knob.default_text);
    option->group(knob.group);
  }
  sub.app->add_option("--config", sub.flags.config_file, "TOML file to read settings from")
      ->type_name("FILE")
      ->group("Files and messages");
  sub.app->set_help_flag("-h,--help", "show this help")->group("Files and messages");
}

/// The flags that were given, and MODEL if `model` is not empty.
SettingSources to_sources(const Subcommand& sub, const std::optional<std::string>& model) {
  SettingSources sources{.flags = {}, .commands = sub.command};
  for (const Knob& knob : knobs()) {
    const bool given = (knob.commands & sub.command) && sub.app->count(knob.flag) > 0;
    if (!given) continue;
    if (knob.is_list) {
      sources.flags.emplace_back(knob.name, sub.flags.lists.at(knob.name));
    } else {
      sources.flags.emplace_back(knob.name, std::vector{sub.flags.texts.at(knob.name)});
    }
    if (knob.name == "model" && model) {
      fail(ErrorKind::kInvalidRequest, "the model is given twice: {} and --model {}",
           printable(*model), printable(sub.flags.texts.at(knob.name)));
    }
  }
  if (model) sources.flags.emplace_back("model", std::vector{*model});
  if (!sub.flags.config_file.empty()) sources.config_file = sub.flags.config_file;
  return sources;
}

std::optional<std::string> model_of(const Subcommand& sub) {
  if (sub.app->count("MODEL") == 0) return std::nullopt;
  return sub.flags.model;
}

/// CLI11 would take the largest number for one that is larger.
std::string is_seed(const std::string& text) {
  uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole ? "" : fmt::format("--seed must be a whole number from 0 to {}", UINT64_MAX);
}

/// The whole command line: the subcommands and where their values go.
class CommandLine {
 public:
  CommandLine() {
    app_.set_help_flag("-h,--help");
    app_.set_version_flag("-V,--version", version_line());
    app_.formatter_fn([](const CLI::App*, const std::string&, CLI::AppFormatMode) {
      return std::string(kOverview);
    });
    app_.require_subcommand(1);
    define_serve();
    define_run();
    define_logits();
    define_bench();
    define_pull();
    define_ls();
    define_fit();
    define_cache();
    for (Subcommand* sub : {&serve_, &run_, &logits_, &bench_, &pull_, &ls_, &fit_, &cache_})
      add_knobs(*sub);
  }

  std::variant<Invocation, HelpText> parse(std::vector<std::string> arguments);

 private:
  CLI::App* add(const char* name, const std::string& usage, const std::string& summary,
                const std::string& examples) {
    CLI::App* sub =
        app_.add_subcommand(name, fmt::format("{}\n\nUsage: cohort {} {}", summary, name, usage));
    sub->set_help_flag();  // comes back as the last option
    sub->formatter_fn(format_help);
    sub->footer(examples);
    return sub;
  }
  // Positionals are plain strings: CLI11 would take a list "[a, b]" given to a vector apart.
  CLI::Option* add_model(Subcommand& sub) {
    return sub.app
        ->add_option("MODEL", sub.flags.model,
                     "folder, .gguf file, hub id or alias: see cohort --help")
        ->group("Arguments");
  }
  void define_serve();
  void define_run();
  void define_logits();
  void define_bench();
  void define_pull();
  void define_ls();
  void define_fit();
  void define_cache();
  Invocation invocation() const;
  Invocation run_invocation() const;

  CLI::App app_{"", "cohort"};
  Subcommand serve_{nullptr, kServe, {}};
  Subcommand run_{nullptr, kRun, {}};
  Subcommand logits_{nullptr, kLogits, {}};
  Subcommand bench_{nullptr, kBench, {}};
  Subcommand pull_{nullptr, kPull, {}};
  Subcommand ls_{nullptr, kLs, {}};
  Subcommand fit_{nullptr, kFit, {}};
  Subcommand cache_{nullptr, kCache, {}};
  RunOptions run_options_;
  LogitsOptions logits_options_;
  BenchOptions bench_options_;
  PullOptions pull_options_;
  FitOptions fit_options_;
  CacheOptions cache_options_;
};

void CommandLine::define_serve() {
  serve_.app =
      add("serve", "[MODEL] [OPTIONS]", "Serves the OpenAI-compatible API over HTTP.",
          "Examples:\n  cohort serve\n  cohort serve ./model.gguf --port 9000 --max-rows 8");
  add_model(serve_)->default_str("smollm2");
}

void CommandLine::define_run() {
  run_.app = add("run", "[MODEL] [\"PROMPT\"] [OPTIONS]",
                 "Answers one prompt in the terminal; without a prompt, starts a chat.",
                 "Examples:\n  cohort run \"Why is the sky blue?\"\n"
                 "  cohort run org/name \"Hello\" --temperature 0 --json\n"
                 "  cohort run smollm2 --ids prompt.json --max-tokens 16");
  add_model(run_)->default_str("smollm2");
  run_.app->add_option("PROMPT", run_.flags.prompt, "text to answer")->group("Arguments");
  run_.app->add_flag("--json", run_options_.json, "print one JSON object instead of streaming")
      ->group("Command");
  run_.app
      ->add_option("--ids", run_options_.ids_file, "JSON list of prompt token ids to use as prompt")
      ->type_name("FILE")
      ->group("Command");
  run_.app->add_option("--seed", run_options_.seed, "makes sampling repeatable")
      ->check(is_seed)
      ->type_name("N")
      ->group("Command");
}

void CommandLine::define_logits() {
  logits_.app =
      add("logits", "MODEL --ids FILE --out FILE [OPTIONS]",
          "Writes the f32 logits of every position as safetensors.",
          "The file holds logits [tokens, vocab]. With --hidden also embeddings, the input of the\n"
          "first layer, and hidden.0, hidden.1, ..., the outputs of the layers before the final\n"
          "norm, all [tokens, hidden].\n\n"
          "Example:\n  cohort logits ./model --ids ids.json --out logits.safetensors --exact");
  add_model(logits_)->required();
  logits_.app->add_option("--ids", logits_options_.ids_file, "JSON list of token ids (required)")
      ->required()
      ->type_name("FILE")
      ->group("Command");
  logits_.app->add_option("--out", logits_options_.out_file, "file to write (required)")
      ->required()
      ->type_name("FILE")
      ->group("Command");
  logits_.app->add_option("--chunk", logits_options_.chunk_tokens, "feed the tokens N at a time")
      ->check(CLI::Range(1, 1 << 30).description(""))
      ->type_name("N")
      ->group("Command");
  logits_.app
      ->add_flag("--hidden", logits_options_.hidden,
                 "also write hidden.N, the output of layer N (from 0), and embeddings")
      ->group("Command");
}

void CommandLine::define_bench() {
  bench_.app =
      add("bench", "MODEL [OPTIONS]", "Measures prefill of one row and decode of one or more rows.",
          "Examples:\n  cohort bench smollm2 --threads 2 --prefill 512 --decode 128 --json\n"
          "  cohort bench smollm2 --prefill 0 --depth 2048 --batch 8");
  add_model(bench_)->required();
  BenchOptions& options = bench_options_;
  for (auto [flag, target, least, help] :
       {std::tuple("--prefill", &options.prefill_tokens, 0, "prompt tokens; 0 leaves prefill out"),
        std::tuple("--decode", &options.decode_tokens, 0,
                   "generated tokens of each row; 0 leaves decode out"),
        std::tuple("--depth", &options.depth_tokens, 0, "tokens before those that are generated"),
        std::tuple("--batch", &options.batch_rows, 1, "rows that decode together")}) {
    bench_.app->add_option(flag, *target, help)
        ->check(CLI::Range(least, 1 << 20).description(""))
        ->type_name("N")
        ->default_str(fmt::to_string(*target))
        ->group("Command");
  }
  bench_.app->add_flag("--json", bench_options_.json, "print one JSON object")->group("Command");
}

void CommandLine::define_pull() {
  pull_.app =
      add("pull", "MODEL [OPTIONS]", "Downloads a model and prints its path.",
          "Examples:\n  cohort pull smollm2\n  cohort pull org/name@v1.0\n"
          "  cohort pull org/name:model-Q4_0.gguf\n\n"
          "Hub downloads use HF_ENDPOINT, HF_TOKEN, HF_HOME, HF_HUB_CACHE and HF_HUB_OFFLINE.");
  add_model(pull_)->required();
  pull_.app->add_flag("--update", pull_options_.update, "ask the hub even if complete here")
      ->group("Command");
}

void CommandLine::define_ls() {
  ls_.app = add("ls", "[OPTIONS]", "Lists the models on this machine with size and path.",
                "Example:\n  cohort ls");
}

void CommandLine::define_fit() {
  fit_.app = add("fit", "MODEL [OPTIONS]",
                 "Says how much context fits into memory, for each way to store keys and values.",
                 "Examples:\n  cohort fit smollm2\n  cohort fit ./model --memory-mb 16000 --json");
  add_model(fit_)->required();
  fit_.app
      ->add_option("--memory-mb", fit_options_.memory_mb,
                   "memory for weights and context; unset is 75 % of this machine's")
      ->check(CLI::Range(1, 1 << 30).description(""))
      ->type_name("MB")
      ->group("Command");
  fit_.app->add_flag("--json", fit_options_.json, "print one JSON object")->group("Command");
}

void CommandLine::define_cache() {
  cache_.app = add(
      "cache", "ls|verify|gc --ssd-cache DIR [OPTIONS]", "Looks after the SSD cache.",
      "ls lists the files, verify reads all of them and fails if one is damaged, gc removes what\n"
      "killed servers left, damaged files and, if --ssd-cache-max is given, the least recently "
      "used\n"
      "beyond that.\n"
      "Servers that use the folder go on meanwhile.\n\n"
      "Example:\n  cohort cache gc --ssd-cache /var/cache/cohort --ssd-cache-max 8");
  cache_.app->add_option("ACTION", cache_options_.action, "ls, verify or gc")
      ->required()
      ->check(CLI::IsMember({"ls", "verify", "gc"}).description(""))
      ->group("Arguments");
}

/// A lone text is the model if it looks like one, else the prompt; --model and --ids settle it.
Invocation CommandLine::run_invocation() const {
  RunOptions options = run_options_;
  std::optional<std::string> model = model_of(run_);
  const bool is_lone = model && run_.app->count("PROMPT") == 0 && !options.ids_file;
  if (is_lone && (run_.app->count("--model") > 0 || !store::looks_like_model(*model))) {
    options.prompt_is_a_guess =
        run_.app->count("--model") == 0 && model->find_first_of(" \t\n") == std::string::npos;
    options.prompt = std::exchange(model, std::nullopt);
  } else if (run_.app->count("PROMPT") > 0) {
    options.prompt = run_.flags.prompt;
  }
  if (options.prompt && options.ids_file) {
    fail(ErrorKind::kInvalidRequest, "a prompt and --ids exclude each other");
  }
  if (options.json && !options.prompt && !options.ids_file) {
    fail(ErrorKind::kInvalidRequest, "--json needs a prompt or --ids: a chat has no single answer");
  }
  return {.sources = to_sources(run_, model), .options = options};
}

Invocation CommandLine::invocation() const {
  if (run_.app->parsed()) return run_invocation();
  if (serve_.app->parsed()) return {to_sources(serve_, model_of(serve_)), ServeOptions{}};
  if (logits_.app->parsed()) return {to_sources(logits_, model_of(logits_)), logits_options_};
  if (bench_.app->parsed()) return {to_sources(bench_, model_of(bench_)), bench_options_};
  if (fit_.app->parsed()) return {to_sources(fit_, model_of(fit_)), fit_options_};
  if (cache_.app->parsed()) return {to_sources(cache_, std::nullopt), cache_options_};
  if (pull_.app->parsed()) return {to_sources(pull_, model_of(pull_)), pull_options_};
  return {to_sources(ls_, std::nullopt), LsOptions{}};
}

std::variant<Invocation, HelpText> CommandLine::parse(std::vector<std::string> arguments) {
  if (arguments.empty()) return HelpText{kOverview};
  const std::string first = arguments.front();
  const auto is_first = [&](CLI::App* sub) { return sub->get_name() == first; };
  if (!first.starts_with('-') && app_.get_subcommands(is_first).empty()) {
    fail(ErrorKind::kInvalidRequest, "unknown command {}\nTry: cohort --help", printable(first));
  }
  if (first.starts_with('-') && app_.get_option_no_throw(first) == nullptr) {
    fail(ErrorKind::kInvalidRequest, "unknown option {}\nTry: cohort --help", printable(first));
  }
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
  try {
    app_.parse(std::move(arguments));
  } catch (const CLI::CallForHelp&) {
    return HelpText{app_.help("", CLI::AppFormatMode::Normal)};
  } catch (const CLI::CallForVersion&) {
    return HelpText{version_line() + "\n"};
  } catch (const CLI::ParseError& error) {
    const auto parsed = app_.get_subcommands();
    fail(ErrorKind::kInvalidRequest, "{}\nTry: cohort {}{}--help", error.what(),
         parsed.empty() ? "" : parsed.front()->get_name(), parsed.empty() ? "" : " ");
  }
  return invocation();
}

}  // namespace

std::variant<Invocation, HelpText> parse_command_line(std::vector<std::string> arguments) {
  return CommandLine().parse(std::move(arguments));
}

}  // namespace cohort::app
