#include "text/chat_template.h"

#include "text/textkit_calls.h"

namespace cohort::text {

struct ChatTemplate::Handle {
  Handle(std::string_view source, std::string_view bos_token, std::string_view eos_token) {
    TkText error{};
    throw_unless_done(
        tk_template_new(to_tk(source), to_tk(bos_token), to_tk(eos_token), &compiled, &error),
        error);
  }
  ~Handle() { tk_template_free(compiled); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  TkTemplate* compiled = nullptr;
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
  const TkRenderInputs inputs{
      .messages = to_tk(messages_json),
      .tools = to_tk(tools_json),
      .kwargs = to_tk(kwargs_json),
      .add_generation_prompt = add_generation_prompt,
  };
  TkText text{};
  TkIds ids{};
  TkText error{};
  throw_unless_done(tk_template_render(handle_->compiled, tokenizer.handle_->tokenizer, &inputs,
                                       &text, &ids, &error),
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
