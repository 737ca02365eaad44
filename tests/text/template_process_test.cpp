// A template that crashes, hangs or eats memory takes down only its own process.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <map>
#include <thread>

#include "tests/text/golden_files.h"
#include "text/chat_template.h"
#include "text/template_worker.h"

namespace cohort::text {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// What the template below does when the variable `deed` has this name.
const std::map<std::string, std::string> kDeeds = {
    {"print itself", "{% set n.a = n %}{{ n }}"},
    {"compare itself", "{% set m.s = n.s %}{% set n.a = n %}{% set m.a = m %}{{ n == m }}"},
    {"print deep lists",
     "{% for i in range(99999) %}{% set n.a = [[[n.a]]] %}{% endfor %}{{ n.a }}"},
    {"print deep dicts",
     "{% for i in range(99999) %}{% set n.a = {1: {1: n.a}} %}{% endfor %}{{ n.a }}"},
    {"drop deep lists", "{% for i in range(99999) %}{% set n.a = [[[n.a]]] %}{% endfor %}"},
    {"double a string", "{% for i in range(64) %}{% set n.s = n.s ~ n.s %}{% endfor %}"},
    {"double a list for ever",
     "{% set n.a = [1] %}{% for i in range(64) %}{% set n.a = n.a + n.a %}{% endfor %}{{ n.a }}"},
    {"refuse", "{{ raise_exception(n.s * 1000000) }}"},
    {"write much", "{% for i in range(99999) %}{{ n.s * 1000 }}{% endfor %}"},
    {"loop long", "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"},
};

std::string source_of_deeds() {
  std::string source =
      "{% set n = namespace(s='xxxxxxxx') %}{% set m = namespace() %}"
      "{% if not deed %}{{ messages[0].content }}";
  for (const auto& [name, text] : kDeeds) source += "{% elif deed == '" + name + "' %}" + text;
  return source + "{% endif %}";
}

const Tokenizer& qwen() {
  static const Tokenizer tokenizer =
      Tokenizer::from_json(read_file(golden("qwen3") / "tokenizer.json"));
  return tokenizer;
}

std::string say(const ChatTemplate& chat, const std::string& content) {
  const boost::json::value messages = {{{"role", "user"}, {"content", content}}};
  return chat.render(qwen(), boost::json::serialize(messages), true, "").text;
}

/// As often as it takes on a machine where others have the processor.
template <class Act>
auto patiently(const Act& act) {
  while (true) {
    try {
      return act();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kOverloaded) throw;
    }
  }
}

/// What the error of a deed says; "" if there was none.
std::string failure(const ChatTemplate& chat, const std::string& deed,
                    ErrorKind kind = ErrorKind::kInvalidRequest) {
  try {
    const boost::json::value kwargs = {{"deed", deed}};
    chat.render(qwen(), "[]", true, boost::json::serialize(kwargs));
  } catch (const Error& error) {
    EXPECT_TRUE(error.kind() == kind || error.kind() == ErrorKind::kInvalidRequest) << error.what();
    return error.what();
  }
  return "";
}

/// The state of each process whose parent we are: R, S, Z...
std::map<pid_t, char> children() {
  std::map<pid_t, char> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    std::ifstream file(entry.path() / "stat");
    std::string stat;
    if (pid == 0 || !std::getline(file, stat)) continue;
    const size_t end = stat.rfind(')');  // "PID (NAME) STATE PARENT ..."
    if (std::atoi(stat.c_str() + end + 4) == ::getpid()) found[pid] = stat[end + 2];
  }
  return found;
}

TEST(TemplateProcess, OutlivesEveryDeed) {
  const ChatTemplate chat(source_of_deeds(), "", "");
  for (const auto& [deed, text] : kDeeds) {
    const auto begin = Clock::now();
    const std::string message = failure(chat, deed);
    EXPECT_LT(Clock::now() - begin, kRenderTime + std::chrono::seconds(2)) << deed;
    EXPECT_FALSE(message.empty()) << deed;
    EXPECT_LT(message.size(), 5000U) << deed;
    EXPECT_EQ(say(chat, "still here"), "still here") << deed << ": " << message;
  }
  EXPECT_EQ(failure(chat, "print itself"), "the chat template was stopped: it crashed");
}

TEST(TemplateProcess, MemoryIsBounded) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs address space without a bound";
#endif
  const ChatTemplate chat(
      "{% set n = namespace(s=messages[0].content) %}{% if n.s | length > 99 %}"
      "{% for i in range(9) %}{% set n.s = n.s ~ n.s %}{% endfor %}{% endif %}{{ n.s }}",
      "", "");
  try {
    say(chat, std::string(24 << 20, 'x'));  // the more input, the more work is allowed
    ADD_FAILURE() << "did not throw";
  } catch (const Error& error) {
    const std::string message = error.what();
    // On a busy machine time may be up before a gigabyte is filled.
    EXPECT_TRUE(message == "the chat template was stopped: it needs more than 1024 MiB" ||
                message == "the chat template was stopped: it took longer than 3 s")
        << message;
    EXPECT_EQ(error.kind(), ErrorKind::kInvalidRequest);
  }
  EXPECT_EQ(say(chat, "still here"), "still here");
}

TEST(TemplateProcess, NobodyWaitsForEver) {
  const ChatTemplate chat(source_of_deeds(), "", "");
  const auto begin = Clock::now();
  std::atomic<int> ended = 0;
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] {
      const std::string message = failure(chat, "double a list for ever", ErrorKind::kOverloaded);
      ended += message == "the chat template was stopped: it took longer than 3 s" ||
               message == "the chat template is busy with other requests: try again later";
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(ended, 4);
  EXPECT_LT(Clock::now() - begin, 2 * kRenderTime + std::chrono::seconds(3));
  EXPECT_EQ(say(chat, "still here"), "still here");
}

TEST(TemplateProcess, ServesManyThreads) {
  const ChatTemplate chat(source_of_deeds(), "", "");
  std::vector<std::thread> callers;
  for (int i = 0; i < 8; ++i) {
    callers.emplace_back([&chat, i] {
      for (int j = 0; j < 40; ++j) {
        const std::string text = std::to_string(i) + " says " + std::string(j * 1000, 'x');
        EXPECT_EQ(patiently([&] { return say(chat, text); }), text);
        if (j % 20 == i) {
          EXPECT_NE(failure(chat, "print itself", ErrorKind::kOverloaded), "");
        }
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

TEST(TemplateProcess, IsReplacedWhenSomethingKilledIt) {
  const ChatTemplate chat(source_of_deeds(), "", "");
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(children().size(), 1U);
    const pid_t worker = children().begin()->first;
    ASSERT_EQ(::kill(worker, SIGKILL), 0);
    while (children()[worker] != 'Z') std::this_thread::yield();
    EXPECT_EQ(say(chat, "still here"), "still here");
    EXPECT_FALSE(children().contains(worker));
  }
}

TEST(TemplateProcess, LeavesNoZombie) {
  {
    const ChatTemplate chat(source_of_deeds(), "", "");
    EXPECT_NE(failure(chat, "print itself"), "");
    EXPECT_TRUE(children().empty());
    say(chat, "again");
    EXPECT_EQ(children().size(), 1U);
  }
  EXPECT_THROW(ChatTemplate("{% if %}", "", ""), Error);
  EXPECT_THROW(ChatTemplate("{{ " + std::string(60000, '-') + "1 }}", "", ""), Error);
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(TemplateProcess, WorksWhereTheSystemReapsChildren) {
  const auto before = std::signal(SIGCHLD, SIG_IGN);
  const ChatTemplate chat(source_of_deeds(), "", "");
  EXPECT_EQ(failure(chat, "print itself"), "the chat template was stopped: it crashed");
  EXPECT_EQ(say(chat, "still here"), "still here");
  std::signal(SIGCHLD, before);
}

TEST(TemplateProcess, HoldsNothingOfOurs) {
  const int secret = ::open(COHORT_GOLDENS, O_RDONLY);  // without O_CLOEXEC
  const ChatTemplate chat(source_of_deeds(), "", "");
  ASSERT_EQ(children().size(), 1U);
  const pid_t worker = children().begin()->first;
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(fmt::format("/proc/{}/fd", worker))) {
    files[entry.path().filename()] = fs::read_symlink(entry.path());
  }
  EXPECT_EQ(files.size(), 3U);
  EXPECT_EQ(files["0"].substr(0, 8), "socket:[");
  EXPECT_EQ(files["1"], "/dev/null");
  EXPECT_EQ(files["2"], "/dev/null");
  EXPECT_NE(::getpgid(worker), ::getpgrp());
  ::close(secret);
}

TEST(TemplateProcess, GetsOnlyTheVariablesThatItNeeds) {
  const std::map<std::string, std::string> needed = {
      {"TZ", "UTC"}, {"LANG", "C"}, {"LC_TIME", "C"}, {"ANYSAN_OPTIONS", ""}};
  const std::map<std::string, std::string> others = {
      {"HF_TOKEN", "secret"}, {"COHORT_MODEL", "x"}, {"LD_PRELOAD_NOT", "x"}, {"TZ_NOT", "x"}};
  for (const auto& variables : {needed, others}) {  // what is set already stays
    for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 0);
  }
  const ChatTemplate chat(source_of_deeds(), "", "");
  ASSERT_EQ(children().size(), 1U);
  const std::string path = fmt::format("/proc/{}/environ", children().begin()->first);
  std::map<std::string, std::string> found;
  std::ifstream file(path);
  for (std::string entry; std::getline(file, entry, '\0');) {
    const size_t equals = entry.find('=');
    found[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  for (const auto& [name, value] : needed) EXPECT_TRUE(found.contains(name)) << name;
  for (const auto& [name, value] : found) {
    EXPECT_TRUE(needed.contains(name) || name == "LD_LIBRARY_PATH" || name.starts_with("LC_") ||
                name.ends_with("SAN_OPTIONS"))
        << name;
    EXPECT_EQ(value, std::getenv(name.c_str())) << name;
  }
  for (const auto& [name, value] : others) ::unsetenv(name.c_str());
}

}  // namespace
}  // namespace cohort::text
