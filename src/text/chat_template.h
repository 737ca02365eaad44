#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/template_process.h"
#include "text/tokenizer.h"

namespace cohort::text {

/// A compiled Jinja chat template, rendered as `transformers.apply_chat_template` would
/// (trim_blocks, lstrip_blocks, raise_exception, strftime_now, tojson, loop controls, Python string
/// methods).
/// The template runs in a process of its own with bounded time and memory, because it comes with a
/// model and may be hostile; after it had to be stopped, the next render starts it afresh. The
/// program's main() begins as text/template_worker.h says.
///   thread  any; renders take turns
class ChatTemplate {
 public:
  ///   throws  Error{kInvalidRequest} with the line when the source does not compile
  ///   cost    that of starting this program, about 10 ms
  ChatTemplate(std::string_view source, std::string_view bos_token, std::string_view eos_token);

  /// Whether its source has the word.
  bool mentions(std::string_view word) const {
    return process_.source().find(word) != std::string::npos;
  }

  struct Rendered {
    std::string text;  // what the template produced
    std::vector<int32_t>
        ids;  // special tokens of the template parsed, those inside messages as text
  };

  /// Renders and tokenizes. A special-token string inside a message (`<|im_start|>` typed by a
  /// user), a tool or a variable is tokenized as plain text; the template's own are special tokens.
  /// Only when such a string occurs does the template see marks around it (noncharacters, absent
  /// from `text`): trimming, splitting, replacing, searching and testing the ends work as without;
  /// its length, its slices by position and `==` on it do not.
  ///   messages_json  a JSON array of {role, content, ...}
  ///   kwargs_json    an object of extra variables, "" = none; may not shadow messages,
  ///                  add_generation_prompt, bos_token, eos_token, tools or a built-in function
  ///   tools_json     a JSON array of tool definitions, "" = none
  ///   throws         Error{kInvalidRequest}: what raise_exception said, or which bound was passed
  ///                  (work, memory, time, 8 MiB of output, recursion); param chat_template_kwargs
  ///                  when those are at fault; Error{kOverloaded} after seconds of waiting for
  ///                  other renders
  ///   cost           about 0.1 ms + the encoding
  Rendered render(const Tokenizer& tokenizer, std::string_view messages_json,
                  bool add_generation_prompt, std::string_view kwargs_json,
                  std::string_view tools_json = {}) const;

 private:
  const std::string bos_token_, eos_token_;
  mutable TemplateProcess process_;  // has its own lock
};

}  // namespace cohort::text
