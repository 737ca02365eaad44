#include "base/settings.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "base/error.h"
#include "base/sha256.h"

namespace cohort {
namespace {

class SettingsTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "cohort_settings_" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(folder_ + "/cohort");
    environment_["XDG_CONFIG_HOME"] = folder_;
    environment_["HOME"] = "/home/ada";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void write_config(const std::string& text) { std::ofstream(config_path()) << text; }
  std::string config_path() const { return folder_ + "/cohort/config.toml"; }

  Settings load() const {
    return load_settings({.flags = flags_,
                          .environment = environment_,
                          .config_file = config_file_,
                          .commands = commands_});
  }

  std::string error() const {
    try {
      load();
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  }

  std::string folder_;
  std::map<std::string, std::string> environment_;
  std::vector<std::pair<std::string, std::vector<std::string>>> flags_;
  std::optional<std::string> config_file_;
  uint32_t commands_ = ~0u;
};

TEST_F(SettingsTest, OfOtherCommandsAreCheckedButSetNothing) {
  write_config("ssd_cache = \"/somewhere\"\ntemperature = 0.5\n");
  environment_["COHORT_PORT"] = "9000";
  commands_ = kRun;
  EXPECT_EQ(load().ssd_cache, "");
  EXPECT_EQ(load().port, 8080);
  EXPECT_EQ(load().temperature, 0.5F);
  environment_["COHORT_PORT"] = "none";
  EXPECT_NE(error().find("COHORT_PORT"), std::string::npos);
}

TEST_F(SettingsTest, OfSecretsTellNothingAndCannotBeEmptiedByAVariable) {
  write_config("api_key = \"sk-secret\"\n");
  EXPECT_NE(error().find("api_key: this is not valid; allowed: a list"), std::string::npos);
  EXPECT_EQ(error().find("sk-secret"), std::string::npos);
  write_config("api_key = [\"sk-secret\"]\n");
  for (const char* nothing : {"", ",", ",,"}) {
    environment_["COHORT_API_KEY"] = nothing;
    EXPECT_NE(error().find("COHORT_API_KEY is empty"), std::string::npos) << nothing;
  }
  environment_["COHORT_API_KEY"] = "one,two";
  EXPECT_EQ(load().api_key, (std::vector<std::string>{"one", "two"}));
}

TEST_F(SettingsTest, DefaultsComeFromTheTable) {
  const Settings settings = load();
  EXPECT_EQ(settings.host, "127.0.0.1");
  EXPECT_EQ(settings.port, 8080);
  EXPECT_EQ(settings.model, "smollm2");
  EXPECT_FALSE(settings.kv_dtype.has_value());
  EXPECT_FALSE(settings.exact);
  EXPECT_FALSE(settings.temperature.has_value());
  EXPECT_EQ(settings.cache_dir, "/home/ada/.cache/cohort");
}

TEST_F(SettingsTest, FlagBeatsEnvironmentBeatsFileBeatsDefault) {
  write_config("port = 1\nhost = \"a\"\nmax_rows = 3\n");
  environment_["COHORT_PORT"] = "2";
  environment_["COHORT_HOST"] = "b";
  flags_ = {{"port", {"0"}}};
  const Settings settings = load();
  EXPECT_EQ(settings.port, 0);
  EXPECT_EQ(settings.host, "b");
  EXPECT_EQ(settings.max_rows, 3);
  EXPECT_EQ(settings.threads, 0);
}

TEST_F(SettingsTest, EveryTypeIsReadFromEverySource) {
  write_config(
      "temperature = 0\ntop_p = 0.5\nexact = true\nkv_dtype = \"f32\"\n"
      "served_model_name = [\"a\", \"b\"]\nmax_tokens = 7\n");
  environment_["COHORT_ALLOWED_ORIGIN"] = "http://x,http://y";
  environment_["COHORT_TOP_K"] = "40";
  flags_ = {{"repetition_penalty", {"1.1"}}, {"log_level", {"debug"}}};
  const Settings settings = load();
  EXPECT_EQ(settings.temperature, 0.0F);
  EXPECT_EQ(settings.top_p, 0.5F);
  EXPECT_TRUE(settings.exact);
  EXPECT_EQ(settings.kv_dtype, KvDtype::kF32);
  EXPECT_EQ(settings.served_model_name, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(settings.max_tokens, 7);
  EXPECT_EQ(settings.allowed_origin, (std::vector<std::string>{"http://x", "http://y"}));
  EXPECT_EQ(settings.top_k, 40);
  EXPECT_EQ(settings.repetition_penalty, 1.1F);
  EXPECT_EQ(settings.log_level, LogLevel::kDebug);
}

TEST_F(SettingsTest, AnErrorNamesSourceValueAndWhatIsAllowed) {
  flags_ = {{"port", {"65536"}}};
  EXPECT_EQ(error(), "--port: '65536' is not valid; allowed: a whole number from 0 up to 65535");
  flags_ = {{"kv_dtype", {"int8"}}};
  EXPECT_EQ(error(), "--kv-dtype: 'int8' is not valid; allowed: one of bf16, f32");
  flags_.clear();
  environment_["COHORT_TOP_P"] = "0";
  EXPECT_EQ(error(), "COHORT_TOP_P: '0' is not valid; allowed: a number above 0 up to 1");
  environment_.erase("COHORT_TOP_P");
  write_config("\nexact = 1\n");
  EXPECT_EQ(error(), config_path() + ":2: exact: '1' is not valid; allowed: true or false");
}

TEST_F(SettingsTest, HostileNumbersAreRefused) {
  for (const char* text :
       {"", " 1", "1 ", "1e3", "0x10", "99999999999999999999", "nan", "-1", "+1"}) {
    flags_ = {{"max_rows", {text}}};
    EXPECT_NE(error().find("--max-rows: "), std::string::npos) << text;
  }
  for (const char* text : {"", "nan", "inf", "1e308", "-0.1", "0.5x"}) {
    flags_ = {{"temperature", {text}}};
    EXPECT_NE(error().find("--temperature: "), std::string::npos) << text;
  }
}

TEST_F(SettingsTest, AnUnknownKeyListsTheKnownOnes) {
  write_config("prot = 1\n");
  const std::string text = error();
  EXPECT_EQ(text.find(config_path() + ":1: unknown key 'prot'; allowed: host, port,"), 0) << text;
}

TEST_F(SettingsTest, ABrokenFileNamesTheLine) {
  write_config("port = 1\nhost = \n");
  EXPECT_EQ(error().find(config_path() + ":2: "), 0) << error();
}

TEST_F(SettingsTest, WrongTomlTypesAreRefused) {
  for (const char* text :
       {"port = '1'", "port = 1.0", "host = 1", "served_model_name = \"a\"",
        "served_model_name = [1]", "[port]", "port = 2020-01-01", "host = \"a\\u0000b\""}) {
    write_config(text);
    EXPECT_EQ(error().find(config_path() + ":1: "), 0) << text << " gave " << error();
  }
}

TEST_F(SettingsTest, ANamedFileMustExistAndReplacesTheUsualOne) {
  config_file_ = folder_ + "/absent.toml";
  EXPECT_NE(error().find("absent.toml"), std::string::npos);
  config_file_ = folder_ + "/other.toml";
  std::ofstream(*config_file_) << "port = 5\n";
  write_config("port = 6\nmax_rows = 6\n");
  EXPECT_EQ(load().port, 5);
  EXPECT_EQ(load().max_rows, 32);
}

TEST_F(SettingsTest, AVariableMayNameTheFileWhichMustExist) {
  environment_["COHORT_CONFIG"] = folder_ + "/absent.toml";
  EXPECT_EQ(error(), "COHORT_CONFIG: there is no file '" + folder_ + "/absent.toml'");
  environment_["COHORT_CONFIG"] = folder_;
  EXPECT_EQ(error(), "cannot read the configuration file " + folder_);
  environment_["COHORT_CONFIG"] = folder_ + "/other.toml";
  std::ofstream(folder_ + "/other.toml") << "port = 5\n";
  write_config("port = 6\n");
  EXPECT_EQ(load().port, 5);
  environment_["COHORT_CONFIG"] = "";  // as if it were not set
  EXPECT_EQ(load().port, 6);
  environment_["COHORT_CONFIG"] = folder_ + "/other.toml";
  config_file_ = config_path();
  EXPECT_EQ(load().port, 6);
}

TEST_F(SettingsTest, AnUnknownVariableIsRefusedWithTheNearestKnownOnes) {
  for (const char* known :
       {"COHORT_ISA", "COHORT_BINARY", "COHORT_TEST_MODEL", "COHORT_TEST_ROUNDS", "cohort_x"}) {
    environment_[known] = "x";
  }
  EXPECT_EQ(error(), "no error");
  environment_["COHORT_PROT"] = "1";
  EXPECT_EQ(error(),
            "'COHORT_PROT': there is no such variable; the nearest are COHORT_PORT, COHORT_HOST, "
            "COHORT_ISA");
  environment_.erase("COHORT_PROT");
  environment_["COHORT_MAX_ROW"] = "1";
  EXPECT_EQ(error().find("'COHORT_MAX_ROW': there is no such variable; the nearest are "
                         "COHORT_MAX_ROWS, "),
            0)
      << error();
  environment_.erase("COHORT_MAX_ROW");
  environment_[std::string("COHORT_\x1b\n") + std::string(5000, 'x')] = "1";
  EXPECT_EQ(error().find("'COHORT_\\x1b\\x0a"), 0) << error();
}

TEST(Knobs, NamesFlagsAndVariablesAreUnique) {
  std::set<std::string> names, flags, variables;
  for (const Knob& knob : knobs()) {
    EXPECT_TRUE(names.insert(knob.name).second) << knob.name;
    EXPECT_TRUE(flags.insert(knob.flag).second) << knob.flag;
    EXPECT_TRUE(variables.insert(knob.environment).second) << knob.environment;
    EXPECT_NE(knob.commands, 0U) << knob.name;
    EXPECT_FALSE(knob.help.empty() || knob.group.empty()) << knob.name;
    EXPECT_EQ(knob.unit.empty(), knob.is_switch) << knob.name;
  }
}

TEST(Sha256, EqualsThePublishedVectors) {
  Sha256 sha256;
  const std::string text = "abc";
  sha256.update(std::as_bytes(std::span(text)));
  EXPECT_EQ(sha256.hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace cohort
