// The public face of the room: assay/chat.h.
#include "assay/chat.h"
#include "assay/error.h"
#include "base/utf8.h"
#include "chat/interpreter.h"
#include "chat/parser.h"

namespace assay {

struct ChatTemplate::State {
  std::shared_ptr<const chat::Program> program;
};

ChatTemplate::ChatTemplate(std::unique_ptr<const State> state) : state_(std::move(state)) {}
ChatTemplate::~ChatTemplate() = default;

std::shared_ptr<const ChatTemplate> ChatTemplate::parse(std::string_view source, const TemplateLimits& limits) {
  auto state = std::make_unique<State>();
  state->program = chat::parse_program(source, limits);
  return std::make_shared<const ChatTemplate>(std::move(state));
}

namespace {

template <class Finish>
auto render_with(const chat::Program& program, const TemplateInput& input, Finish&& finish) {
  for (const auto& [name, text] :
       {std::pair<const char*, const std::string&>{"bos_token", input.bos_token}, {"eos_token", input.eos_token}})
    if (!base::is_utf8(text))
      throw Error(Errc::bad_request, std::string("chat input: ") + name + " is not valid UTF-8");
  chat::Interpreter interpreter(program, input);
  chat::TextBuilder out(interpreter.heap(), program.limits.output_bytes_max);
  interpreter.run(out);
  return finish(out);
}

}  // namespace

std::string ChatTemplate::render(const TemplateInput& input) const {
  return render_with(*state_->program, input, [](const chat::TextBuilder& out) { return out.bytes(); });
}

std::vector<TextPiece> ChatTemplate::render_pieces(const TemplateInput& input) const {
  return render_with(*state_->program, input, [](const chat::TextBuilder& out) {
    std::vector<TextPiece> pieces;
    size_t from = 0;
    for (const chat::Run& run : out.runs()) {
      pieces.push_back({out.bytes().substr(from, run.end - from), run.own});
      from = run.end;
    }
    return pieces;
  });
}

}  // namespace assay
