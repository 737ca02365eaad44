#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>

#include "tests/text/golden_files.h"

namespace cohort::text {
namespace {

const Tokenizer& qwen() {
  static const Tokenizer tokenizer =
      Tokenizer::from_json(read_file(golden("qwen3") / "tokenizer.json"));
  return tokenizer;
}

/// Renders with messages [{"role": "user", "content": content}].
std::string render(const std::string& source, const std::string& content = "hi",
                   const std::string& kwargs = "", const std::string& tools = "") {
  const boost::json::value messages = {{{"role", "user"}, {"content", content}}};
  return ChatTemplate(source, "<s>", "</s>")
      .render(qwen(), boost::json::serialize(messages), true, kwargs, tools)
      .text;
}

Error failure(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "did not throw";
  return {ErrorKind::kInternal, "did not throw"};
}

TEST(ChatTemplate, TrimsBlocksAsTransformers) {
  EXPECT_EQ(render("a\n  {% if true %}\nb\n  {% endif %}\nc\n"), "a\nb\nc");
  EXPECT_EQ(render("{{ bos_token }}{{ eos_token }}{{ add_generation_prompt }}"), "<s></s>True");
}

TEST(ChatTemplate, KnowsWhatPythonTemplatesUse) {
  EXPECT_EQ(render("{{ messages[0]['content'].strip().upper() }}", " a "), "A");
  EXPECT_EQ(render("{{ messages[0].content.split('-')[-1] }}", "a-b"), "b");
  EXPECT_EQ(render("{% for k, v in messages[0].items() %}{{ k }}={{ v }};{% endfor %}"),
            "role=user;content=hi;");
  EXPECT_EQ(render("{% set ns = namespace(n=0) %}{% for i in range(9) %}{% if i == 3 %}"
                   "{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}"
                   "{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}"),
            "7");
  EXPECT_EQ(render("{{ messages[::-1][0].role }}{{ messages[-1]['role'] }}"), "useruser");
  EXPECT_EQ(render("{{ none is iterable }}{{ 'a' is iterable }}{{ tools is none }}"),
            "FalseTrueTrue");
  EXPECT_EQ(render("{{ '<a href=\"/x\">' | e }}"), "&lt;a href=&#34;/x&#34;&gt;");
  EXPECT_EQ(render("{{ 'aXbX' | replace('X', '-', 1) }}{{ 'aX' | replace('X', 1) }}"), "a-bXa1");
  EXPECT_EQ(render("{% generation %}x{%- endgeneration -%} y"), "xy");
  EXPECT_EQ(render("{{ strftime_now('%Y') | length }}{{ strftime_now('') }}"), "4");
}

TEST(ChatTemplate, WritesJsonAsPython) {
  const std::string value = R"({"v": {"b": [1, 2.0, 1e22, 1.5e-7, true, null],)"
                            R"( "a": "é<'\"\n\u0001", "e": {}, "l": []}})";
  EXPECT_EQ(render("{{ v | tojson }}", "", value), R"({"b": [1, 2.0, 1e+22, 1.5e-07, true, null],)"
                                                   R"( "a": "é<'\"\n\u0001", "e": {}, "l": []})");
  EXPECT_EQ(render("{{ v.b[:2] | tojson(indent=2) }}", "", value), "[\n  1,\n  2.0\n]");
  EXPECT_EQ(render("{{ v.a | tojson(ensure_ascii=true) }}", "", value), R"("\u00e9<'\"\n\u0001")");
  EXPECT_EQ(render("{{ {'b': 1, 'a': 2} | tojson(sort_keys=True, separators=(',', ':')) }}"),
            R"({"a":2,"b":1})");
  EXPECT_EQ(render("{{ tools[0] | tojson }}", "", "", R"([{"type":"function"}])"),
            R"({"type": "function"})");
}

TEST(ChatTemplate, SaysWhatTheTemplateRefused) {
  const Error error = failure([] { render("{{ raise_exception('Roles must alternate') }}"); });
  EXPECT_EQ(error.kind(), ErrorKind::kInvalidRequest);
  EXPECT_STREQ(error.what(), "the chat template refused the messages: Roles must alternate");
}

TEST(ChatTemplate, ZeroBytesCutNothing) {
  const std::string text("a\0b\0", 4);
  const boost::json::value messages = {{{"role", "user"}, {"content", text}}};
  const std::string json = boost::json::serialize(messages);
  const auto rendered =
      ChatTemplate("{{ messages[0].content }}.", "", "").render(qwen(), json, true, "");
  EXPECT_EQ(rendered.text, text + ".");
  EXPECT_EQ(rendered.ids, qwen().encode(text + ".", SpecialTokens::kParse));
  EXPECT_EQ(qwen().decode(rendered.ids, SpecialTokens::kAsText), text + ".");
  const Error error = failure([&] { render("{{ raise_exception(messages[0].content) }}", text); });
  EXPECT_STREQ(error.what(), "the chat template refused the messages: a\\x00b\\x00");
}

TEST(ChatTemplate, WhatItSaysIsFitForATerminal) {
  const std::string text = "\x1b[2J\r\n\t\x7f \u009b1m é🎉";
  const Error error = failure([&] { render("{{ raise_exception(messages[0].content) }}", text); });
  EXPECT_STREQ(error.what(),
               "the chat template refused the messages: "
               "\\x1b[2J\\x0d\\x0a\\x09\\x7f \\x9b1m é🎉");
  const std::string compiled = failure([] { render("{% \x1b]0;x\a %}"); }).what();
  EXPECT_EQ(compiled.find_first_of("\x1b\a"), std::string::npos) << compiled;
}

TEST(ChatTemplate, NumbersArriveAsTheyWere) {
  for (const char* number :
       {"0.1", "5e-324", "1.7976931348623157e+308", "123456789.12345679", "0.30000000000000004",
        "9007199254740993", "18446744073709551615", "-9223372036854775808"}) {
    EXPECT_EQ(render("{{ v | tojson }}", "", "{\"v\": " + std::string(number) + "}"), number);
  }
}

TEST(ChatTemplate, NamesTheLineThatDoesNotCompile) {
  const Error error = failure([] { render("a\n{{ b }}\n{% if %}"); });
  EXPECT_EQ(error.kind(), ErrorKind::kInvalidRequest);
  EXPECT_NE(std::string(error.what()).find("line 3"), std::string::npos) << error.what();
}

TEST(ChatTemplate, ExtraVariablesMayNotShadowReservedNames) {
  EXPECT_EQ(render("{{ enable_thinking }}", "", R"({"enable_thinking": false})"), "False");
  for (const char* name : {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token",
                           "raise_exception", "strftime_now", "range", "namespace"}) {
    const Error error = failure([&] { render("x", "", "{\"" + std::string(name) + "\": 1}"); });
    EXPECT_EQ(error.kind(), ErrorKind::kInvalidRequest);
    EXPECT_EQ(error.param(), "chat_template_kwargs");
    EXPECT_NE(std::string(error.what()).find(name), std::string::npos);
  }
  for (const char* kwargs : {"[]", "3", "{", "null"}) {
    EXPECT_EQ(failure([&] { render("x", "", kwargs); }).param(), "chat_template_kwargs");
  }
}

TEST(ChatTemplate, MessagesMustBeAJsonArray) {
  const ChatTemplate chat("x", "", "");
  for (const char* messages : {"", "{}", "null", "[", "\xFF", "[\"\xFF\"]"}) {
    EXPECT_EQ(failure([&] { chat.render(qwen(), messages, true, ""); }).kind(),
              ErrorKind::kInvalidRequest);
  }
  const std::string deep = std::string(5000, '[') + std::string(5000, ']');
  EXPECT_EQ(failure([&] { chat.render(qwen(), deep, true, ""); }).kind(),
            ErrorKind::kInvalidRequest);
}

const std::pair<const char*, const char*> kHostile[] = {
    {"endless work",
     "{% for a in range(90000) %}{% for b in range(90000) %}{{ '' }}{% endfor %}"
     "{% endfor %}"},
    {"a huge range", "{% for a in range(10**9) %}x{% endfor %}"},
    {"a huge repeat", "{{ 'x' * 10**9 }}"},
    {"a huge list", "{% set l = [1] * 10**9 %}{{ l | length }}{{ l | list | length }}"},
    {"doubling",
     "{% set ns = namespace(x='xxxxxxxx') %}{% for i in range(60) %}"
     "{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x | length }}"},
    {"doubling by replace",
     "{% set ns = namespace(x='xxxxxxxx') %}{% for i in range(60) %}"
     "{% set ns.x = ns.x.replace('x', 'xxxx') %}{% endfor %}{{ ns.x }}"},
    {"doubling by join",
     "{% set ns = namespace(x='x') %}{% for i in range(60) %}"
     "{% set ns.x = [ns.x, ns.x] | join(ns.x) %}{% endfor %}{{ ns.x }}"},
    {"doubling by format",
     "{% set ns = namespace(x='x') %}{% for i in range(60) %}"
     "{% set ns.x = '%s%s' | format(ns.x, ns.x) %}{% endfor %}{{ ns.x }}"},
    {"doubling in blocks",
     "{% set ns = namespace(x='x') %}{% for i in range(60) %}"
     "{% set a %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = a %}"
     "{% endfor %}"},
    {"a huge indent", "{{ 'a\nb' | indent(10**9) }}"},
    {"a huge width", "{{ '%1000000000d' | format(1) }}"},
    {"much output", "{% for a in range(90000) %}{{ 'x' * 1000 }}{% endfor %}"},
    {"an endless macro", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"},
    {"endless call blocks",
     "{% macro m() %}{% if false %}{{ caller() }}{% endif %}"
     "{% call m() %}x{% endcall %}{% endmacro %}{{ m() }}"},
    {"including itself", "{% include 'chat_template' %}"},
    {"extending itself", "{% extends 'chat_template' %}"},
    {"another file", "{% include '/etc/passwd' %}"},
    {"shared lists as JSON",
     "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}"
     "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x | tojson }}"},
    {"shared lists as text",
     "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}"
     "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}"},
    {"deep JSON",
     "{% set ns = namespace(x=[1]) %}{% for i in range(5000) %}"
     "{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x | tojson }}"},
    {"a function as JSON", "{{ range | tojson }}"},
    {"an undefined name as JSON", "{{ nothing | tojson }}"},
    {"a zero byte in a date", "{{ strftime_now('a\\x00b') }}"},
    {"a long date", "{{ strftime_now('%c' * 1000) }}"},
};

TEST(HostileTemplate, IsStoppedWithAnError) {
  for (const auto& [what, source] : kHostile) {
    const auto begin = std::chrono::steady_clock::now();
    const Error error = failure([&] { render(source); });
    EXPECT_EQ(error.kind(), ErrorKind::kInvalidRequest) << what << ": " << error.what();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5)) << what;
  }
}

TEST(HostileTemplate, DeepAndLongSourcesAreCompiledOrRefused) {
  const auto repeat = [](const std::string& text) {
    std::string result;
    while (result.size() < 10'000) result += text;
    return result;
  };
  for (const std::string& source :
       {"{{ " + repeat("(") + "1" + repeat(")") + " }}", "{{ " + repeat("[") + repeat("]") + " }}",
        "{{ " + repeat("not ") + "x }}", "{{ " + repeat("-") + "1 }}",
        repeat("{% if x %}") + repeat("{% endif %}"), "{{ x" + repeat("(1") + repeat(")") + " }}",
        repeat("{% for a in b %}") + repeat("{% endfor %}"), "{{ 1" + repeat("+1") + " }}",
        "{{ 'x'" + repeat("|string") + " }}", "{{ x" + repeat(".a") + " }}",
        "{{ 1" + repeat(" and 1") + " }}", "{{ " + repeat("1 if x else ") + "2 }}",
        "{% if x %}" + repeat("{% elif x %}") + "{% endif %}", "{{ 1" + repeat("~1") + " }}",
        "{{ 1" + repeat(" == 1") + " }}", repeat("{% set x = 1 %}"), repeat("{{ x }}")}) {
    try {
      render(source);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInvalidRequest) << source.substr(0, 40);
    }
  }
  EXPECT_EQ(failure([] { render(std::string((64 << 10) + 1, 'x')); }).kind(),
            ErrorKind::kInvalidRequest);
}

}  // namespace
}  // namespace cohort::text
