#include "text/chat_template.h"

#include "text/template_process.h"
#include "text/textkit_calls.h"

namespace cohort::text {

struct ChatTemplate::Handle {
  Handle(std::string_view template_source, std::string_view bos, std::string_view eos)
      : source(template_source), bos_token(bos), eos_token(eos), process(source) {}

  const std::string source, bos_token, eos_token;
  TemplateProcess process;
};

ChatTemplate::ChatTemplate(std::string_view source, std::string_view bos_token,
                           std::string_view eos_token)
    : handle_(std::make_unique<Handle>(source, bos_token, eos_token)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

ChatTemplate::Rendered ChatTemplate::render(const Tokenizer& tokenizer,
                                            std::string_view messages_json,
                                            bool add_generation_prompt,
                                            std::string_view kwargs_json,
                                            std::string_view tools_json) const {
  const TkChatInputs inputs{
      .source = to_tk(handle_->source),
      .bos_token = to_tk(handle_->bos_token),
      .eos_token = to_tk(handle_->eos_token),
      .messages = to_tk(messages_json),
      .tools = to_tk(tools_json),
      .kwargs = to_tk(kwargs_json),
      .add_generation_prompt = add_generation_prompt,
  };
  const TkTokenizer* tk_tokenizer = tokenizer.handle_->tokenizer;
  TkText variables{}, error{}, text{};
  TkMarks marks{};
  throw_unless_done(tk_chat_prepare(tk_tokenizer, &inputs, &variables, &marks, &error), error);
  const std::string written = handle_->process.render(take(variables));

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
