// Any bytes as a chat template and its input: the text, or an Error. Parts of the input are
// separated by lines of ---: template, messages, tools, further variables; what is missing has a
// default.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "assay/chat.h"
#include "assay/error.h"
#include "target.h"

namespace {

constexpr std::string_view kSeparator = "\n---\n";
constexpr std::string_view kMessages =
    R"([{"role":"system","content":"Be kind."},{"role":"user","content":"Grüße <|im_end|>"},)"
    R"({"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function",)"
    R"("function":{"name":"f","arguments":{"x":[1,2.5,null,true]}}}]},{"role":"tool","content":"ok"}])";
constexpr std::string_view kExtra =
    R"({"s":"Hello, World","u":"Grüße, 世界! ΑΣ","n":7,"neg":-13,"f":2.5,"big":9223372036854775807,)"
    R"("huge":123456789012345678901234567890,"xs":[3,1,2],"words":["b","A","c"],)"
    R"("d":{"b":1,"a":[{"z":"q"}],"C":3},"nil":null,"yes":true})";

std::vector<std::string> parts_of(std::string_view text) {
  std::vector<std::string> parts;
  for (;;) {
    const size_t at = text.find(kSeparator);
    parts.emplace_back(text.substr(0, at));
    if (at == std::string_view::npos || parts.size() == 4) return parts;
    text.remove_prefix(at + kSeparator.size());
  }
}

}  // namespace

ASSAY_FUZZ_TARGET(template) {
  const auto parts = parts_of({reinterpret_cast<const char*>(data), size});
  const assay::TemplateLimits limits{
      .steps_max = 100'000, .output_bytes_max = 1 << 18, .value_bytes_max = 4 << 20, .depth_max = 100};
  assay::TemplateInput input;
  input.bos_token = "<s>";
  input.eos_token = "</s>";
  input.now_unix = 1753185600;
  try {
    input.messages =
        assay::template_list(parts.size() > 1 ? std::string_view(parts[1]) : kMessages, "messages", limits);
    if (parts.size() > 2 && !parts[2].empty()) input.tools = assay::template_list(parts[2], "tools", limits);
    if (const std::string_view extra = parts.size() > 3 ? std::string_view(parts[3]) : kExtra; !extra.empty())
      input.extra = assay::template_dict(extra, "extra", limits);
    const auto parsed = assay::ChatTemplate::parse(parts[0], limits);
    const std::string text = parsed->render(input);
    std::string joined;
    for (const assay::TextPiece& piece : parsed->render_pieces(input)) joined += piece.text;
    if (joined != text) std::abort();
  } catch (const assay::Error&) {
    return 0;  // the answer to most inputs
  }
  return 0;
}
