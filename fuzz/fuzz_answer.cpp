// Answers with reasoning and calls: whatever the bytes are, nothing is thrown, nothing is lost but marks and blanks,
// and the pieces that they come in change nothing. The first byte says which format they are read in, the second where
// they are cut.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "assay/tools.h"
#include "target.h"
#include "tools/format.h"

namespace {

std::shared_ptr<const assay::ToolFormat> format_of(uint8_t which) {
  assay::tools::Format f;
  switch (which % 7) {
    case 0: assay::tools::make_generic(f); break;
    case 1: assay::tools::find_by_mark("<|/tool|>", f); break;
    case 2: assay::tools::find_by_mark("<|channel|> commentary <|message|>", f); break;
    case 3:  // only at the beginning, one call
      assay::tools::make_generic(f);
      f.before = f.between = "{\"name\": \"";
      f.n_opening = f.before.size();
      f.after = "}";
      f.anchored = true;
      f.parallel = false;
      break;
    case 4:  // arguments one after the other
    case 5:  // in a notation of their own
      f.form = assay::tools::Format::Form::named;
      f.before = "<tool_call>";
      f.n_opening = f.before.size();
      f.call = {{assay::tools::Part::Kind::name}, {assay::tools::Part::Kind::arguments}};
      if (which % 7 == 4) {
        f.arguments = {"", "<k>", "</k>", "</v>", "\n", "", "</tool_call>", which & 32 ? "</t>" : "</k>", ""};
      } else {
        f.arguments = {"{", "", ":", "", "", ",", "}</tool_call>", ":", "<|\"|>"};
      }
      f.between = "<tool_call>";
      f.after = "";
      f.parallel = true;
      break;
    default:  // ids and counts
      assay::tools::make_generic(f);
      f.before = "[CALLS]";
      f.n_opening = f.before.size();
      f.call = {{assay::tools::Part::Kind::index},    {assay::tools::Part::Kind::literal, ","},
                {assay::tools::Part::Kind::name},     {assay::tools::Part::Kind::literal, "["},
                {assay::tools::Part::Kind::id},       {assay::tools::Part::Kind::literal, "]"},
                {assay::tools::Part::Kind::arguments}};
      f.between = ";";
      f.after = "";
  }
  return std::make_shared<const assay::ToolFormat>(std::make_unique<const assay::tools::Format>(std::move(f)));
}

bool same(const assay::ReadAnswer& a, const assay::ReadAnswer& b) {
  if (a.text != b.text || a.reasoning != b.reasoning || a.calls.size() != b.calls.size()) return false;
  for (size_t i = 0; i < a.calls.size(); ++i) {
    if (a.calls[i].name != b.calls[i].name || a.calls[i].arguments != b.calls[i].arguments) return false;
  }
  return true;
}

}  // namespace

ASSAY_FUZZ_TARGET(answer) {
  if (size < 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  assay::AnswerReader::Options options;
  options.format = format_of(data[0]);
  if (data[0] >= 128) options.marks = assay::ReasoningMarks{"<think>", "</think>", false};
  options.reasoning_is_open = (data[0] & 64) != 0;
  if ((data[1] & 64) != 0) {
    options.tools = {{"f", "", R"({"properties": {"a": {"type": "string"}, "b": {"type": ["string", "null"]},
                              "c": {"type": "integer"}, "d": {"type": "array"}}})"}};
  }
  const assay::ReadAnswer whole = assay::read_answer(options, text);
  size_t n_bytes = whole.text.size() + whole.reasoning.size();
  for (const assay::ToolCall& call : whole.calls) n_bytes += call.name.size() + call.arguments.size();
  // Escapes and names in quotes are longer than what they stand for: at most six bytes for one, and four more for a
  // mark.
  const bool is_written_anew = options.format->format().form == assay::tools::Format::Form::named;
  if (n_bytes > text.size() * (is_written_anew ? 10 : 1)) std::abort();
  assay::AnswerReader reader(options);
  assay::ReadAnswer parts;
  const auto take = [&](const std::vector<assay::AnswerPiece>& pieces) {
    for (const assay::AnswerPiece& p : pieces) {
      switch (p.kind) {
        case assay::AnswerPiece::Kind::reasoning: parts.reasoning += p.text; break;
        case assay::AnswerPiece::Kind::text: parts.text += p.text; break;
        case assay::AnswerPiece::Kind::call: parts.calls.push_back({p.id, p.text, ""}); break;
        case assay::AnswerPiece::Kind::arguments: parts.calls.at(p.i_call).arguments += p.text; break;
      }
    }
  };
  const size_t step = 1 + data[1] % 7;
  for (size_t at = 0; at < text.size(); at += step) take(reader.push(text.substr(at, step)));
  take(reader.finish());
  if (!same(whole, parts)) std::abort();
  return 0;
}
