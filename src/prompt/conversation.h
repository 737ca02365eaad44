#pragma once

#include <string>
#include <vector>

namespace cohort::prompt {

/// One turn in the neutral form that every API translates into.
struct Message {
  std::string role;     // "system", "developer", "user" or "assistant"
  std::string content;  // text parts joined in order
  std::string name;     // optional; empty = absent
};

/// What a chat API asks to be rendered by the model's chat template.
struct Conversation {
  std::vector<Message> messages;
  bool add_generation_prompt = true;
  std::string template_kwargs_json;  // extra template variables as a JSON object; empty = none
};

}  // namespace cohort::prompt
