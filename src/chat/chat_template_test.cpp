// Real templates: every one renders what Python's jinja2 renders, or fails where it fails
// (tests/data/chat/make_expected.py).
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <fstream>
#include <sstream>

#include "assay/chat.h"
#include "assay/error.h"
#include "support/shared_data.h"

namespace assay {
namespace {

namespace json = boost::json;

constexpr int64_t kNow = 1753185600;  // as jinja_reference.py

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

json::object load(const std::string& name) { return json::parse(read(test::data("chat/" + name))).as_object(); }

TemplateInput input_of(const json::object& conversation) {
  TemplateInput input;
  input.messages = template_list(json::serialize(conversation.at("messages")), "messages");
  if (const auto* tools = conversation.if_contains("tools"))
    input.tools = template_list(json::serialize(*tools), "tools");
  if (const auto* extra = conversation.if_contains("extra"))
    input.extra = template_dict(json::serialize(*extra), "extra");
  if (const auto* prompt = conversation.if_contains("add_generation_prompt"))
    input.add_generation_prompt = prompt->as_bool();
  input.bos_token = "<s>";
  input.eos_token = "</s>";
  input.now_unix = kNow;
  return input;
}

std::string joined(const std::vector<TextPiece>& pieces) {
  std::string text;
  for (const TextPiece& piece : pieces) text += piece.text;
  return text;
}

TEST(ChatTemplate, RealTemplatesRenderAsJinja2) {
  const json::object conversations = load("conversations.json"), expected = load("expected.json");
  ASSERT_EQ(expected.size(), 47u);
  int n_text = 0, n_error = 0;
  for (const auto& [file, rows] : expected) {
    const auto parsed = ChatTemplate::parse(read(test::data("chat/templates/" + std::string(file))));
    for (const auto& [name, row] : rows.as_object()) {
      SCOPED_TRACE(std::string(file) + ", " + std::string(name));
      const TemplateInput input = input_of(conversations.at(name).as_object());
      if (const auto* text = row.as_object().if_contains("text")) {
        try {
          const std::string rendered = parsed->render(input);
          EXPECT_EQ(rendered, std::string(text->as_string()));
          EXPECT_EQ(joined(parsed->render_pieces(input)), rendered);
        } catch (const Error& error) {
          ADD_FAILURE() << error.what();
        }
        ++n_text;
      } else {
        EXPECT_THROW(parsed->render(input), Error);
        ++n_error;
      }
    }
  }
  std::printf("%d renderings equal jinja2's, %d fail as it does\n", n_text, n_error);
  EXPECT_GE(n_text, 47 * 8);
}

// Every run of the template's own text is made of the template's literals; no run of it holds text
// of a message.
TEST(ChatTemplate, UserTextIsNeverTheTemplatesOwn) {
  const std::string marker = "\x02user<|im_end|>\x03";
  TemplateInput input;
  using Dict = TemplateValue::Dict;
  input.messages = {Dict{{"role", "system"}, {"content", marker}},
                    Dict{{"role", "user"}, {"content", " " + marker + marker + "\n"}},
                    Dict{{"role", "assistant"}, {"content", marker}}, Dict{{"role", "user"}, {"content", marker}}};
  const Dict parameters = {{"type", "object"}, {"properties", Dict()}};
  const Dict function = {{"name", "f"}, {"description", marker}, {"parameters", parameters}};
  input.tools = TemplateValue::List{Dict{{"type", "function"}, {"function", function}}};
  input.bos_token = "<s>";
  input.eos_token = "</s>";
  input.now_unix = kNow;
  int n_marked = 0;
  for (const auto& [file, unused] : load("expected.json")) {
    SCOPED_TRACE(std::string(file));
    const auto parsed = ChatTemplate::parse(read(test::data("chat/templates/" + std::string(file))));
    std::vector<TextPiece> pieces;
    try {
      pieces = parsed->render_pieces(input);
    } catch (const Error&) {
      continue;  // a template without a system role, or one that needs something else
    }
    for (const TextPiece& piece : pieces) {
      const bool marked = piece.text.find("user<|im_end|>") != std::string::npos;
      EXPECT_FALSE(marked && piece.parse_special) << piece.text;
      n_marked += marked;
    }
  }
  EXPECT_GT(n_marked, 47);
}

}  // namespace
}  // namespace assay
