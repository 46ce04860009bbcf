// Parses and renders a chat template through the installed library, and asks for a model that is not there.
#include <cstdio>

#include "assay/chat.h"
#include "assay/error.h"
#include "assay/tokenizer.h"

int main() {
  assay::TemplateInput input;
  input.messages_json = R"([{"role":"user","content":"hello"}])";
  const auto chat = assay::ChatTemplate::parse("{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}");
  const std::string text = chat->render(input);
  std::puts(text.c_str());
  if (text != "[user] hello") return 1;
  try {
    assay::Tokenizer::load("/nowhere/model.gguf");
  } catch (const assay::Error& error) {
    std::puts(error.what());
    return error.code == assay::Errc::io ? 0 : 1;
  }
  return 1;
}
