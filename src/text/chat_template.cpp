#include "text/chat_template.h"

#include "text/textkit_calls.h"

namespace cohort::text {

ChatTemplate::ChatTemplate(std::string_view source, std::string_view bos_token,
                           std::string_view eos_token)
    : bos_token_(bos_token), eos_token_(eos_token), process_(std::string(source)) {}

ChatTemplate::Rendered ChatTemplate::render(const Tokenizer& tokenizer,
                                            std::string_view messages_json,
                                            bool add_generation_prompt,
                                            std::string_view kwargs_json,
                                            std::string_view tools_json) const {
  const TkChatInputs inputs{
      .source = to_tk(process_.source()),
      .bos_token = to_tk(bos_token_),
      .eos_token = to_tk(eos_token_),
      .messages = to_tk(messages_json),
      .tools = to_tk(tools_json),
      .kwargs = to_tk(kwargs_json),
      .add_generation_prompt = add_generation_prompt,
  };
  const TkTokenizer* tk_tokenizer = tokenizer.handle_->tokenizer;
  TkText variables{}, error{}, text{};
  TkMarks marks{};
  throw_unless_done(tk_chat_prepare(tk_tokenizer, &inputs, &variables, &marks, &error), error);
  const std::string written = process_.render(take(variables));

  TkIds ids{};
  throw_unless_done(tk_chat_finish(tk_tokenizer, to_tk(written), &marks, &text, &ids, &error),
                    error);
  Rendered rendered;
  try {
    rendered.text = take(text);
  } catch (...) {
    tk_ids_free(ids);
    throw;
  }
  rendered.ids = take(ids);
  return rendered;
}

}  // namespace cohort::text
