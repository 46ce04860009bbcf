// Every template of tests/data: its format by name, and calls that come back as they were: written by the template,
// read again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <fstream>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <sstream>

#include "assay/error.h"
#include "assay/tools.h"
#include "constraint/automaton.h"
#include "constraint/constraint_state.h"
#include "constraint/json_parts.h"
#include "support/rounds.h"
#include "support/shared_data.h"
#include "tools/format.h"

namespace assay {
namespace {

namespace json = boost::json;
using ::testing::HasSubstr;

const std::vector<std::string> kEnds = {"</s>",
                                        "<|im_end|>",
                                        "<|eot_id|>",
                                        "<|eom_id|>",
                                        "<|end_of_text|>",
                                        "<|call|>",
                                        "<|calls|>",
                                        "<｜end▁of▁sentence｜>",
                                        "<|END_OF_TURN_TOKEN|>",
                                        "<|message_sep|>",
                                        "<|end|>",
                                        "<SPECIAL_12>",
                                        "<end_of_sentence>",
                                        "<turn|>"};

// What docs/tool-calls.md says of each.
const std::map<std::string, std::string> kNames = {
    {"Apertus-8B-Instruct", "apertus"},
    {"Apriel-1.6-15b-Thinker-fixed", "apriel"},
    {"ByteDance-Seed-OSS", "seed oss"},
    {"Cohere2MoE", "command-r"},
    {"CohereForAI-c4ai-command-r7b-12-2024-tool_use", "command-r"},
    {"GLM-4.6", "glm 4"},
    {"GigaChat3-10B-A1.8B", "generic"},
    {"GigaChat3.1-10B-A1.8B", "gigachat 3"},
    {"Kimi-K2-Instruct", "generic"},
    {"Kimi-K2-Thinking", "generic"},
    {"LFM2-8B-A1B", "generic"},
    {"LFM2.5-8B-A1B", "generic"},
    {"MiMo-VL", "hermes"},
    {"MiniMax-M1", "minimax m1"},
    {"MiniMax-M3", "generic"},
    {"Mistral-Small-3.2-24B-Instruct-2506", "mistral small 3"},
    {"NVIDIA-Nemotron-Nano-v2", "nemotron"},
    {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "hermes"},
    {"Qwen-QwQ-32B", "hermes"},
    {"Qwen-Qwen2.5-7B-Instruct", "hermes"},
    {"Qwen3-Coder", "qwen3 coder"},
    {"Qwen3.5-4B", "qwen3 coder"},
    {"Spark2.5", "glm 4"},
    {"StepFun3.5-Flash", "qwen3 coder"},
    {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "deepseek r1"},
    {"deepseek-ai-DeepSeek-V3.1", "deepseek v3.1"},
    {"deepseek-ai-DeepSeek-V4-Flash-0731", "deepseek v4"},
    {"deepseek-ai-DeepSeek-V4", "deepseek v4"},
    {"google-gemma-2-2b-it", "generic"},
    {"google-gemma-4-31B-it-interleaved", "gemma 4"},
    {"ibm-granite-granite-3.3-2B-Instruct", "granite 3"},
    {"ibm-granite-granite-4.0", "hermes"},
    {"inclusionai-ling-3.0-flash", "glm 4"},
    {"llama-cpp-deepseek-r1", "generic"},
    {"meetkai-functionary-medium-v3.1", "functionary 3.1"},
    {"meetkai-functionary-medium-v3.2", "generic"},
    {"meta-llama-Llama-3.2-3B-Instruct", "llama 3"},
    {"meta-llama-Llama-3.3-70B-Instruct", "llama 3"},
    {"mistralai-Ministral-3-14B-Reasoning-2512", "mistral args"},
    {"mistralai-Mistral-Nemo-Instruct-2407", "mistral nemo"},
    {"muse-glimmer", "generic"},
    {"openai-gpt-oss-120b", "harmony"},
    {"phi-4-mini", "phi 4"},
    {"poolside-Laguna-S-2.1", "glm 4"},
    {"poolside-Laguna-XS-2.1", "glm 4"},
    {"tencent-Hy3", "hunyuan 3"},
    {"functiongemma", "functiongemma"},
    {"unsloth-Apriel-1.5", "apriel"},
    {"upstage-Solar-Open-100B", "solar open"},
};

// FunctionGemma's notation, in a template of our own.
constexpr const char* kFunctionGemma = R"({%- macro value(v) -%}
{%- if v is string -%}{{ '<escape>' + v + '<escape>' }}
{%- elif v is boolean -%}{{ 'true' if v else 'false' }}
{%- elif v is mapping -%}
{{ '{' }}{% for k, x in v | dictsort %}{{ ',' if not loop.first }}{{ k }}:{{ value(x) }}{% endfor %}{{ '}' }}
{%- elif v is sequence -%}[{% for x in v %}{{ ',' if not loop.first }}{{ value(x) }}{% endfor %}]
{%- else -%}{{ v }}{%- endif -%}
{%- endmacro -%}
{{ bos_token }}<start_of_turn>developer
{% for tool in tools %}<start_function_declaration>declaration:{{ tool.function.name }}{description:{{ value(tool.function.description) }}}<end_function_declaration>{% endfor %}
{%- for m in messages -%}
{%- if m.role == 'system' -%}{{ m.content }}<end_of_turn>
{% elif m.role == 'tool' -%}<start_of_turn>tool
<start_function_response>response:{{ m.name }}{value:<escape>{{ m.content }}<escape>}<end_function_response><end_of_turn>
{% else -%}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}
{{ m.content }}
{%- for c in m.tool_calls or [] -%}
<start_function_call>call:{{ c.function.name }}{{ value(c.function.arguments) }}<end_function_call>
{%- endfor %}<end_of_turn>
{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}<start_of_turn>model
{% endif -%})";

// Phi-4-mini's notation: tools stand in a member of the system message, calls in no place of the template's.
constexpr const char* kPhi4Mini = R"({%- for m in messages -%}
{%- if m.role == 'system' and m.tools is defined and m.tools is not none -%}
<|system|>{{ m.content }}<|tool|>{{ m.tools }}<|/tool|><|end|>
{%- else -%}<|{{ m.role }}|>{{ m.content }}<|end|>{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|assistant|>{%- endif -%})";

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

Tool tool(const std::string& name, const std::string& parameters) {
  return {name,
          R"({"type": "function", "function": {"name": ")" + name + R"(", "description": "does it", "parameters": )" +
              parameters + "}}",
          parameters};
}

std::string joined(const std::vector<TextPiece>& pieces) {
  std::string text;
  for (const TextPiece& piece : pieces) text += piece.text;
  return text;
}

struct Known {
  std::string name, source;
  std::shared_ptr<const ChatTemplate> chat_template;
  std::shared_ptr<const ToolFormat> format;
};

std::vector<Known> read_templates() {
  std::vector<Known> all;
  for (const auto& [name, format] : kNames) {
    const std::string source = name == "functiongemma" ? kFunctionGemma
                               : name == "phi-4-mini"  ? kPhi4Mini
                                                       : contents(test::data("chat/templates/" + name + ".jinja"));
    Known k{name, source, nullptr, nullptr};
    k.chat_template = ChatTemplate::parse(k.source);
    k.format = ToolFormat::find(*k.chat_template, k.source, "<s>", "</s>", kEnds);
    all.push_back(std::move(k));
  }
  return all;
}

const std::vector<Known>& all_templates() {
  static const std::vector<Known> kAll = read_templates();
  return kAll;
}

PromptExtras two_tools() {
  PromptExtras extras;
  extras.tools = {
      tool(
          "get_weather",
          R"({"type": "object", "properties": {"city": {"type": "string", "description": "which"}, "days": {"type": "integer"}}, "required": ["city"]})"),
      tool(
          "add-up",
          R"({"type": "object", "properties": {"values": {"type": "array", "items": {"type": "number"}}}, "required": ["values"]})")};
  return extras;
}

std::vector<ToolCall> two_calls() {
  return {{"abcdefgh1", "get_weather", R"({"city": "S\u00e3o \"Paulo\" </tool_call> \n{", "days": 3})"},
          {"abcdefgh2", "add-up", R"({"values": [1, -2.5, []]})"}};
}

void expect_same(const std::vector<ToolCall>& found, std::span<const ToolCall> calls) {
  ASSERT_EQ(found.size(), calls.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].name, calls[i].name);
    EXPECT_EQ(json::parse(found[i].arguments), json::parse(calls[i].arguments)) << found[i].arguments;
  }
}

TEST(ToolFormat, EveryTemplateIsInTheTableOrOnTheGenericList) {
  for (const Known& k : all_templates()) {
    SCOPED_TRACE(k.name);
    EXPECT_EQ(k.format->name(), kNames.at(k.name)) << k.format->example();
    EXPECT_EQ(k.format->is_generic(), kNames.at(k.name) == "generic");
    EXPECT_NE(k.format->is_generic(), k.format->is_known());
  }
}

// The template's own text of an answer with calls, read as an answer.
TEST(ToolFormat, CallsThatATemplateWritesAreReadAsTheyWere) {
  for (const Known& k : all_templates()) {
    SCOPED_TRACE(k.name);
    const size_t n = k.format->is_parallel() ? 2 : 1;
    Message answer{"assistant", ""};
    answer.tool_calls = two_calls();
    answer.tool_calls.resize(n);
    Message result{"tool", "4"};
    result.tool_call_id = "abcdefgh1";
    result.name = "get_weather";
    // Where the last message is an answer some templates leave it out, and where a result follows some write more of a
    // call.
    size_t begin = std::string::npos;
    std::string written;
    for (const bool with_result : {false, true}) {
      std::vector<Message> messages = {{"user", "What now?"}, answer};
      if (with_result) messages.push_back(result);
      written = joined(k.format->render(*k.chat_template, messages, two_tools(), "<s>", "</s>"));
      const size_t asked = written.rfind("What now?");
      ASSERT_NE(asked, std::string::npos) << written;
      begin = written.find(k.format->has_channels() ? "<|start|>assistant" : k.format->format().before, asked);
      if (begin != std::string::npos && written.find("add-up", begin) != std::string::npos) break;
      if (begin != std::string::npos && n == 1) break;
    }
    ASSERT_NE(begin, std::string::npos) << written;
    const std::string text = written.substr(begin);
    const ReadAnswer whole = read_answer({k.format, {}, false, {"get_weather", "add-up"}}, text);
    expect_same(whole.calls, answer.tool_calls);
    // In pieces of one byte it is the same.
    AnswerReader reader({k.format, {}, false, {"get_weather", "add-up"}});
    std::vector<ToolCall> calls;
    const auto take = [&](const std::vector<AnswerPiece>& pieces) {
      for (const AnswerPiece& p : pieces) {
        if (p.kind == AnswerPiece::Kind::call) calls.push_back({p.id, p.text, ""});
        if (p.kind == AnswerPiece::Kind::arguments) calls.at(p.i_call).arguments += p.text;
      }
    };
    for (const char c : text) take(reader.push(std::string_view(&c, 1)));
    take(reader.finish());
    expect_same(calls, answer.tool_calls);
    EXPECT_TRUE(reader.calls_are_whole());
  }
}

// What we write of calls for the model to see is what we read, and what an answer is held to.
TEST(ToolFormat, CallsThatAreWrittenAreHeldAndReadTheSame) {
  std::set<std::string_view> seen;
  for (const Known& k : all_templates()) {
    SCOPED_TRACE(k.name);
    if (!seen.insert(k.format->name()).second) continue;
    CallRules rules{two_tools().tools, false, true, ""};
    rules.tools[1].parameters =
        R"({"type": "object", "properties": {"values": {"type": "array"}}, "required": ["values"]})";
    std::vector<ToolCall> calls = two_calls();
    if (!k.format->is_parallel()) calls.resize(1);
    const std::string text = tools::write_calls(k.format->format(), calls);
    expect_same(read_answer({k.format, {}, false, {}}, text).calls, calls);
    EXPECT_TRUE(call_constraint(*k.format, rules)->accepts(text)) << text;
    std::string wrong = text;
    wrong.replace(wrong.find("days"), 4, "dayz");
    EXPECT_FALSE(call_constraint(*k.format, rules)->accepts(wrong));
    rules.must = true;
    EXPECT_TRUE(call_constraint(*k.format, rules)->accepts(text)) << text;
    EXPECT_FALSE(call_constraint(*k.format, rules)->accepts("It rains."));
    if (!k.format->has_channels()) {
      rules.must = false;
      EXPECT_TRUE(call_constraint(*k.format, rules)->accepts("It rains."));
      if (!k.format->format().anchored) {
        EXPECT_TRUE(call_constraint(*k.format, rules)->accepts("I look. \n" + text));
        EXPECT_EQ(read_answer({k.format, {}, false, {}}, "I look. \n" + text).text, "I look.");
      }
      rules.content_schema = R"({"type": "integer"})";
      EXPECT_TRUE(call_constraint(*k.format, rules)->accepts("42"));
      EXPECT_TRUE(call_constraint(*k.format, rules)->accepts(text));
      EXPECT_FALSE(call_constraint(*k.format, rules)->accepts("It rains."));
    }
    rules.parallel = false;
    rules.content_schema.clear();
    EXPECT_EQ(call_constraint(*k.format, rules)->accepts(text), calls.size() == 1);
  }
}

TEST(ToolFormat, WholeConversationsAreRendered) {
  for (const Known& k : all_templates()) {
    SCOPED_TRACE(k.name);
    Message call{"assistant", ""};
    call.tool_calls = {{"call_1", "get_weather", R"({"city": "Ulm"})"}};
    Message result{"tool", "sunny <|im_end|>"};
    result.tool_call_id = "call_1";
    result.name = "get_weather";
    const std::vector<Message> messages = {{"system", "Be brief."}, {"user", "Weather?"}, call, result};
    try {
      const auto pieces = k.format->render(*k.chat_template, messages, two_tools(), "<s>", "</s>");
      const std::string text = joined(pieces);
      if (k.format->name() != "mistral nemo") {  // it has the system's message beside a last one of the user only
        EXPECT_THAT(text, HasSubstr("Be brief."));
      }
      for (const char* part : {"Weather?", "get_weather", "Ulm", "sunny", "add-up"}) EXPECT_THAT(text, HasSubstr(part));
      for (const TextPiece& p : pieces)
        EXPECT_FALSE(p.parse_special && p.text.find("sunny") != std::string::npos) << "what a tool says stays text";
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

TEST(ToolFormat, BrokenArgumentsOfEarlierCallsAreTextOrRefused) {  // B61
  for (const Known& k : all_templates()) {
    for (const char* arguments : {"", "{\"city\": ", "[1]", "null", "{} {}"}) {
      SCOPED_TRACE(k.name + " " + arguments);
      Message call{"assistant", ""};
      call.tool_calls = {{"call_1", "get_weather", arguments}};
      Message result{"tool", "?"};
      result.tool_call_id = "call_1";
      try {
        k.format->render(*k.chat_template, {{"user", "Weather?"}, call, result, {"user", "And?"}}, two_tools(), "<s>",
                         "</s>");
      } catch (const Error& error) {
        EXPECT_EQ(error.code, Errc::bad_request) << error.what();
      }
    }
  }
}

// Texts that an answer may be, drawn byte by byte: what closes something is often taken whole where it may come.
std::optional<std::string> drawn(const Constraint& constraint, const tools::Format& format, std::mt19937_64& random) {
  constraint::Automaton automaton(constraint.state().network);
  const tools::ArgumentMarks& a = format.arguments;
  const std::vector<std::string> closings = {a.close, a.quote, a.end, "\"", "]", "}", "<", "null", "true", "7"};
  auto place = automaton.begin();
  std::string text;
  while (text.size() < 5'000) {
    std::string may;
    for (int b = 0; b < 256; ++b) {
      if (automaton.step(place, static_cast<uint8_t>(b)) != automaton.kDead) may += static_cast<char>(b);
    }
    if (may.empty()) return automaton.accepts(place) ? std::optional(text) : std::nullopt;
    std::string next = random() % 2 == 0 ? closings[random() % closings.size()] : std::string();
    auto behind = place;
    for (const char c : next) behind = automaton.step(behind, static_cast<uint8_t>(c));
    if (next.empty() || behind == automaton.kDead) {
      next = may.substr(random() % may.size(), 1);
      behind = automaton.step(place, static_cast<uint8_t>(next[0]));
    }
    place = behind;
    text += next;
  }
  return std::nullopt;
}

// What an answer is held to, read again, is what the tool's schema says: judged by the schema as plain JSON.
TEST(ToolFormat, HeldArgumentsThatAreNoJsonAreReadAsWhatTheSchemaAllows) {
  const std::string parameters =
      R"({"type": "object", "$defs": {"name": {"type": "string", "minLength": 1}}, "properties": {
      "city": {"$ref": "#/$defs/name"}, "unit": {"enum": ["c", "f", "null"]}, "note": {"anyOf": [{"type": "string", "maxLength": 9}, {"type": "null"}]},
      "code": {"type": "string", "pattern": "^[<>/a-z_|\"\\n ]{0,30}$"}, "n": {"type": "integer"}, "flag": {"type": "boolean"},
      "mixed": {"type": ["string", "integer"], "maxLength": 4}, "tags": {"type": "array", "items": {"type": "string", "maxLength": 8}, "maxItems": 3},
      "place": {"type": "object", "properties": {"name": {"type": "string"}, "ok": {"type": ["boolean", "null"]}}, "required": ["name", "ok"]}},
      "required": ["city", "code", "flag", "mixed", "tags"], "additionalProperties": {"type": "string", "maxLength": 3}})";
  const auto judge = Constraint::from_schema(parameters);
  std::mt19937_64 random(26);
  for (const Known& k : all_templates()) {
    if (k.format->format().form != tools::Format::Form::named) continue;
    SCOPED_TRACE(k.name);
    const std::vector<Tool> tools = {tool("f", parameters)};
    const auto held = call_constraint(*k.format, {tools, true, false, ""});
    int n_drawn = 0;
    const int n_draws = test::unless_sanitized(40, 10);
    for (int i = 0; i < n_draws; ++i) {
      const auto text = drawn(*held, k.format->format(), random);
      if (!text) continue;
      ++n_drawn;
      const ReadAnswer answer = read_answer({k.format, {}, false, {"f"}, tools}, *text);
      ASSERT_EQ(answer.calls.size(), 1u) << *text;
      const json::value arguments = json::parse(answer.calls[0].arguments);
      EXPECT_TRUE(judge->accepts(constraint::json_dumps(arguments))) << *text << "\n" << answer.calls[0].arguments;
      EXPECT_EQ(answer.text, "");
    }
    EXPECT_GT(2 * n_drawn, n_draws);
  }
}

// A text that looks like something else stays a text where the schema says so, and nothing else does.
TEST(ToolFormat, SchemasTellTextsFromOtherValues) {
  const std::string parameters =
      R"({"properties": {"a": {"type": "string"}, "b": {"type": ["string", "null"]}, "c": {"type": "array"}, "d": {"type": "boolean"}}})";
  const std::vector<Tool> tools = {tool("f", parameters)};
  for (const Known& k : all_templates()) {
    const tools::Format& f = k.format->format();
    if (f.form != tools::Format::Form::named) continue;
    SCOPED_TRACE(k.name);
    for (const char* arguments :
         {R"({"a": "7", "b": "x", "c": ["</tool_call>", "it's", {"k": null}], "d": true})",
          R"({"a": "null", "b": null, "c": [], "d": false})", R"({"a": "", "b": "", "c": [1.5]})",
          R"({"a": "{\"b\": 1}"})", R"({"a": " \n<b>\n "})", R"({})"}) {
      const std::string text = tools::write_calls(f, std::vector<ToolCall>{{"", "f", arguments}});
      const ReadAnswer answer = read_answer({k.format, {}, false, {}, tools}, text);
      ASSERT_EQ(answer.calls.size(), 1u) << text;
      EXPECT_EQ(json::parse(answer.calls[0].arguments), json::parse(arguments)) << text;
      EXPECT_TRUE(call_constraint(*k.format, {tools, true, true, ""})->accepts(text)) << text;
    }
  }
}

TEST(ToolFormat, NamesThatCannotBeWrittenAreRefused) {
  for (const Known& k : all_templates()) {
    const tools::Format& f = k.format->format();
    if (f.form != tools::Format::Form::named) continue;
    json::object properties = {{"x" + f.arguments.middle, json::object{{"type", "integer"}}}};
    const std::string parameters = json::serialize(json::object{{"properties", std::move(properties)}});
    EXPECT_THROW(call_constraint(*k.format, {{tool("f", parameters)}, true, true, ""}), SchemaError) << k.name;
    if (!f.arguments.quote.empty()) continue;
    EXPECT_THROW(call_constraint(*k.format, {{tool("f", R"({"anyOf": [{"type": "object"}]})")}, true, true, ""}),
                 SchemaError)
        << k.name;
  }
}

// Of values that are listed too: one with such a name could not be read again.
TEST(ToolFormat, ListedObjectsWithNamesThatCannotBeWrittenAreLeftOut) {
  const std::vector<Tool> tools = {tool(
      "f",
      R"({"properties": {"v": {"enum": [{"": 1}, [{"a b": 2}], {"ok": {"é": 3}}, {"ok": 4}]}}, "required": ["v"]})")};
  std::mt19937_64 random(27);
  int n_bare = 0;
  for (const Known& k : all_templates()) {
    if (k.format->format().form != tools::Format::Form::named || k.format->format().arguments.quote.empty()) continue;
    SCOPED_TRACE(k.name);
    ++n_bare;
    const auto held = call_constraint(*k.format, {tools, true, false, ""});
    for (int i = 0; i < 8; ++i) {
      const auto text = drawn(*held, k.format->format(), random);
      if (!text) continue;
      const ReadAnswer answer = read_answer({k.format, {}, false, {"f"}, tools}, *text);
      ASSERT_EQ(answer.calls.size(), 1u) << *text;
      EXPECT_EQ(json::parse(answer.calls[0].arguments), json::parse(R"({"v": {"ok": 4}})")) << *text;
    }
  }
  EXPECT_GE(n_bare, 2);
}

TEST(AnswerReader, TextThatOnlyBeginsAsACallStaysText) {
  const Known k = all_templates()[std::distance(kNames.begin(), kNames.find("Qwen-Qwen2.5-7B-Instruct"))];
  const auto read = [&](std::string_view text) { return read_answer({k.format, {}, false, {"get_weather"}}, text); };
  for (const char* text : {"", "a < b", "<tool_cal", "a <tool_call>\n{\"name\": \"other\", \"arguments\": {}}",
                           "<tool_call>\nno", "x  \n "}) {
    const ReadAnswer answer = read(text);
    EXPECT_TRUE(answer.calls.empty()) << text;
    EXPECT_THAT(std::string(text), HasSubstr(answer.text));
    EXPECT_GE(answer.text.size() + 1, std::string(text).size()) << answer.text;
  }
  const ReadAnswer cut = read("<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Ul");
  ASSERT_EQ(cut.calls.size(), 1u);
  EXPECT_EQ(cut.calls[0].arguments, "{\"city\": \"Ul");
}

// What came of a second call whose name is not known yet is told as it stands, from its own opening on.
TEST(AnswerReader, ASecondCallThatIsCutBeforeItsNameStaysText) {
  for (const Known& k : all_templates()) {
    if (!k.format->is_parallel()) continue;
    SCOPED_TRACE(k.name);
    const std::string all = tools::write_calls(k.format->format(), two_calls());
    const std::string text = all.substr(0, all.find("add-up") + 3);
    const ReadAnswer answer = read_answer({k.format, {}, false, {"get_weather", "add-up"}}, text);
    EXPECT_EQ(answer.calls.size(), 1u);
    EXPECT_TRUE(text.ends_with(answer.text)) << answer.text;
    EXPECT_GT(answer.text.size(), std::string("add").size()) << answer.text;
  }
  const Known k = all_templates()[std::distance(kNames.begin(), kNames.find("Qwen-Qwen2.5-7B-Instruct"))];
  const std::string call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
  const std::string other = "<tool_call>\n{\"name\": \"other\", \"arguments\": {}}\n</tool_call>";
  EXPECT_EQ(read_answer({k.format, {}, false, {"f"}}, call + "\n" + other).text, other);
}

TEST(AnswerReader, ReasoningComesFirst) {
  const Known k = all_templates()[std::distance(kNames.begin(), kNames.find("Qwen-QwQ-32B"))];
  const ReasoningMarks marks{"<think>", "</think>", false};
  const ReadAnswer a = read_answer(
      {k.format, marks, true, {}},
      "I <tool_call> think\n</think>\n\nYes.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>");
  EXPECT_EQ(a.reasoning, "I <tool_call> think");
  EXPECT_EQ(a.text, "Yes.");
  ASSERT_EQ(a.calls.size(), 1u);
  EXPECT_EQ(a.calls[0].arguments, "{}");
}

TEST(AnswerReader, ChannelsOfGptOss) {
  const Known k = all_templates()[std::distance(kNames.begin(), kNames.find("openai-gpt-oss-120b"))];
  const ReadAnswer a = read_answer({k.format, {}, false, {"f"}},
                                   "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary "
                                   "to=functions.f <|constrain|>json<|message|>{\"a\": 1}<|call|>");
  EXPECT_EQ(a.reasoning, "Hm.");
  EXPECT_EQ(a.text, "");
  ASSERT_EQ(a.calls.size(), 1u);
  EXPECT_EQ(a.calls[0].arguments, "{\"a\": 1}");
  EXPECT_EQ(read_answer({k.format, {}, false, {}}, "<|channel|>final<|message|>Hello <b").text, "Hello <b");
}

TEST(CallConstraint, WhatIsNotEnforcedIsRefusedWithItsPointer) {
  const Known k = all_templates()[std::distance(kNames.begin(), kNames.find("Qwen-Qwen2.5-7B-Instruct"))];
  const auto refusal = [&](const std::string& parameters) -> std::string {
    try {
      call_constraint(*k.format, {{tool("f", "{}"), tool("g", parameters)}, false, true, ""});
    } catch (const SchemaError& error) {
      return error.problems.at(0).pointer;
    }
    return "no error";
  };
  EXPECT_EQ(refusal(R"({"type": "object", "properties": {"a": {"type": "array", "uniqueItems": true}}})"),
            "/tools/1/function/parameters/properties/a/uniqueItems");
  EXPECT_EQ(refusal(R"({"type": "string"})"), "/tools/1/function/parameters/type");
  EXPECT_EQ(refusal("[]"), "/tools/1/function/parameters");
  EXPECT_EQ(refusal(R"({"properties": {"a": {"type": "string"}}})"), "no error");
}

}  // namespace
}  // namespace assay
