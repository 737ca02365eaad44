#include "app/command_line.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace cohort::app {
namespace {

using Flags = std::vector<std::pair<std::string, std::vector<std::string>>>;

Invocation parse(std::vector<std::string> arguments) {
  return std::get<Invocation>(parse_command_line(std::move(arguments)));
}

std::string help(std::vector<std::string> arguments) {
  return std::get<HelpText>(parse_command_line(std::move(arguments))).text;
}

std::string error(std::vector<std::string> arguments) {
  try {
    parse_command_line(std::move(arguments));
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(CommandLine, ServeTakesAnOptionalModelAndFlags) {
  EXPECT_TRUE(parse({"serve"}).sources.flags.empty());
  const Invocation given = parse({"serve", "org/name", "--port", "0", "--host", "::1"});
  EXPECT_TRUE(std::holds_alternative<ServeOptions>(given.options));
  EXPECT_EQ(given.sources.flags,
            (Flags{{"host", {"::1"}}, {"port", {"0"}}, {"model", {"org/name"}}}));
}

TEST(CommandLine, AListFlagMayBeRepeatedAndLeavesPositionalsAlone) {
  const Invocation given =
      parse({"serve", "--served-model-name", "a", "--served-model-name", "b", "org/name"});
  EXPECT_EQ(given.sources.flags,
            (Flags{{"served_model_name", {"a", "b"}}, {"model", {"org/name"}}}));
}

TEST(CommandLine, ASwitchNeedsNoValueAndTakesOne) {
  EXPECT_EQ(parse({"serve", "--exact"}).sources.flags, (Flags{{"exact", {"true"}}}));
  EXPECT_EQ(parse({"serve", "--exact=false"}).sources.flags, (Flags{{"exact", {"false"}}}));
}

TEST(CommandLine, ALoneTextOfRunIsAPromptUnlessItLooksLikeAModel) {
  const auto prompt_of = [](const Invocation& i) { return std::get<RunOptions>(i.options).prompt; };
  EXPECT_EQ(prompt_of(parse({"run"})), std::nullopt);
  EXPECT_EQ(prompt_of(parse({"run", "Why is the sky blue?"})), "Why is the sky blue?");
  EXPECT_EQ(prompt_of(parse({"run", "smollm2"})), std::nullopt);
  EXPECT_EQ(parse({"run", "smollm2"}).sources.flags, (Flags{{"model", {"smollm2"}}}));
  const auto guessed = [](const Invocation& i) {
    return std::get<RunOptions>(i.options).prompt_is_a_guess;
  };
  EXPECT_TRUE(guessed(parse({"run", "smolm2"})));
  EXPECT_FALSE(guessed(parse({"run", "What now?"})));
  EXPECT_FALSE(guessed(parse({"run", "smollm2", "Hello"})));
  EXPECT_FALSE(guessed(parse({"run", "--model", "smollm2", "gemma3-270m"})));
  EXPECT_EQ(parse({"run", "org/name"}).sources.flags, (Flags{{"model", {"org/name"}}}));
  EXPECT_EQ(prompt_of(parse({"run", "--model", "smollm2", "gemma3-270m"})), "gemma3-270m");
  const Invocation both = parse({"run", "org/name", "hello"});
  EXPECT_EQ(both.sources.flags, (Flags{{"model", {"org/name"}}}));
  EXPECT_EQ(prompt_of(both), "hello");
}

TEST(CommandLine, APromptIsTakenAsItIs) {
  for (const char* text : {"[a, b]", "[]", "serve", "{x}", "a,b", "%%", "/help", "\"q\"", " "}) {
    EXPECT_EQ(std::get<RunOptions>(parse({"run", text}).options).prompt, text);
    EXPECT_EQ(std::get<RunOptions>(parse({"run", "smollm2", text}).options).prompt, text);
  }
  EXPECT_EQ(std::get<RunOptions>(parse({"run", "--", "-5 + 3?"}).options).prompt, "-5 + 3?");
}

TEST(CommandLine, RunWithIdsTakesTheModelOnly) {
  const Invocation given = parse({"run", "./m", "--ids", "ids.json", "--json", "--seed", "7"});
  const auto& options = std::get<RunOptions>(given.options);
  EXPECT_EQ(given.sources.flags, (Flags{{"model", {"./m"}}}));
  EXPECT_EQ(options.ids_file, "ids.json");
  EXPECT_TRUE(options.json);
  EXPECT_EQ(options.seed, 7U);
  EXPECT_NE(error({"run", "m", "text", "--ids", "f"}).find("exclude each other"),
            std::string::npos);
}

TEST(CommandLine, LogitsAndBenchHaveTheContractsForms) {
  const Invocation logits =
      parse({"logits", "m", "--ids", "i", "--out", "o", "--chunk", "7", "--hidden", "--exact"});
  const auto& wanted = std::get<LogitsOptions>(logits.options);
  EXPECT_EQ(wanted.ids_file, "i");
  EXPECT_EQ(wanted.out_file, "o");
  EXPECT_EQ(wanted.chunk_tokens, 7);
  EXPECT_TRUE(wanted.hidden);
  const Invocation bench =
      parse({"bench", "m", "--threads", "2", "--prefill", "0", "--depth", "64", "--json"});
  EXPECT_EQ(std::get<BenchOptions>(bench.options).prefill_tokens, 0);
  EXPECT_EQ(std::get<BenchOptions>(bench.options).decode_tokens, 128);
  EXPECT_EQ(std::get<BenchOptions>(bench.options).depth_tokens, 64);
  EXPECT_EQ(std::get<BenchOptions>(bench.options).batch_rows, 1);
  EXPECT_TRUE(std::get<BenchOptions>(bench.options).json);
  EXPECT_EQ(bench.sources.flags, (Flags{{"threads", {"2"}}, {"model", {"m"}}}));
}

TEST(CommandLine, CacheTakesOneOfItsActions) {
  const Invocation given = parse({"cache", "gc", "--ssd-cache", "d", "--ssd-cache-max", "8"});
  EXPECT_EQ(std::get<CacheOptions>(given.options).action, "gc");
  EXPECT_EQ(given.sources.flags, (Flags{{"ssd_cache", {"d"}}, {"ssd_cache_max", {"8"}}}));
  EXPECT_NE(error({"cache"}).find("ACTION"), std::string::npos);
  EXPECT_NE(error({"cache", "rm"}).find("cohort cache --help"), std::string::npos);
}

TEST(CommandLine, UsageErrorsSayWhatToTry) {
  EXPECT_EQ(error({"serv"}), "unknown command 'serv'\nTry: cohort --help");
  EXPECT_EQ(error({"pull"}), "MODEL is required\nTry: cohort pull --help");
  EXPECT_NE(error({"serve", "--prot", "1"}).find("Try: cohort serve --help"), std::string::npos);
  EXPECT_NE(error({"ls", "--port", "1"}).find("--port"), std::string::npos);
  EXPECT_NE(error({"bench", "m", "--prefill", "-1"}).find("--prefill"), std::string::npos);
  EXPECT_NE(error({"bench", "m", "--batch", "0"}).find("--batch"), std::string::npos);
  for (const char* seed : {"-1", "18446744073709551616", "1e3", "0x10", ""}) {
    EXPECT_NE(error({"run", "a", "--seed", seed}).find("--seed"), std::string::npos) << seed;
  }
  EXPECT_NE(error({"run", "--model", "a", "b", "c"}).find("given twice"), std::string::npos);
}

TEST(CommandLine, HelpShowsEveryKnobOfTheCommandWithItsDefault) {
  EXPECT_EQ(help({}), help({"--help"}));
  const std::vector<std::pair<const char*, Command>> commands = {
      {"serve", kServe}, {"run", kRun}, {"logits", kLogits}, {"bench", kBench},
      {"pull", kPull},   {"ls", kLs},   {"fit", kFit},       {"cache", kCache}};
  for (const auto& [name, bit] : commands) {
    const std::string text = help({name, "--help"});
    for (const Knob& knob : knobs()) {
      const bool shown = text.find(knob.flag + " ") != std::string::npos;
      EXPECT_EQ(shown, (knob.commands & bit) != 0) << name << " " << knob.flag;
    }
    EXPECT_NE(text.find("Example"), std::string::npos);
    for (size_t begin = 0; begin < text.size(); begin = text.find('\n', begin) + 1) {
      EXPECT_LE(text.find('\n', begin) - begin, 105U) << text.substr(begin, 120);
    }
  }
  EXPECT_NE(help({"serve", "-h"}).find("[8080]"), std::string::npos);
  EXPECT_EQ(help({"--version"}), version_line() + "\n");
}

}  // namespace
}  // namespace cohort::app
