// Structured answers, tool calls and reasoning through the socket, on a small random model: what comes holds, streams
// and whole answers say the same, and the bits are those of the library alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <boost/json.hpp>
#include <map>
#include <set>
#include <thread>

#include "assay/constraint.h"
#include "assay/tools.h"
#include "programs/running_server.h"
#include "support/rounds.h"

namespace assay {
namespace {

namespace json = boost::json;
using test::events;
using test::get;
using test::post;
using test::Reply;
using ::testing::HasSubstr;

constexpr const char* kSchema =
    R"({"type": "object", "properties": {"a": {"enum": ["ab", "ba"]}, "b": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["a", "b"]})";
constexpr const char* kTools =
    R"([{"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {"type": "object", "properties": {"at": {"enum": ["a", "b"]}}, "required": ["at"]}}},
  {"type": "function", "function": {"name": "wait", "parameters": {"type": "object", "properties": {"s": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["s"]}}}])";

// A delta stream put together again, as clients do.
struct Told {
  std::string content, reasoning, finish;
  std::vector<ToolCall> calls;
};
Told told(const std::string& body) {
  Told t;
  for (const std::string& event : events(body)) {
    if (event == "[DONE]") break;
    const json::value v = json::parse(event);
    if (v.at("choices").as_array().empty()) continue;
    const json::value& choice = v.at("choices").at(0);
    const json::object& delta = choice.at("delta").as_object();
    if (const auto* x = delta.if_contains("content")) t.content += x->as_string().c_str();
    if (const auto* x = delta.if_contains("reasoning_content")) t.reasoning += x->as_string().c_str();
    if (const auto* x = delta.if_contains("tool_calls")) {
      const json::object& call = x->at(0).as_object();
      const auto i = static_cast<size_t>(call.at("index").as_int64());
      if (i == t.calls.size()) {  // id and name come first, and once
        t.calls.push_back({call.at("id").as_string().c_str(), call.at("function").at("name").as_string().c_str(), ""});
      }
      t.calls.at(i).arguments += call.at("function").at("arguments").as_string().c_str();
    }
    if (!choice.at("finish_reason").is_null()) t.finish = choice.at("finish_reason").as_string().c_str();
  }
  return t;
}

class FormTest : public test::RunningServer {
 protected:
  FormTest() { options_.scheduler.context.n_ctx = 2048; }  // a vocabulary of bytes makes long prompts
  std::string chat(const std::string& rest) {
    return R"({"messages": [{"role": "user", "content": "ab"}], "temperature": 1.5, "seed": 3, )" + rest + "}";
  }
  std::string refusal(const std::string& path, const std::string& body) {
    const Reply r = ask(post(path, body));
    if (r.status != 400) return std::to_string(r.status) + " " + r.body;
    const json::value v = json::parse(r.body);
    const json::value& error = v.at("error");
    return std::string(error.at("param").is_null() ? "" : error.at("param").as_string().c_str()) + ": " +
           error.at("message").as_string().c_str();
  }
};

TEST_F(FormTest, AnswersAreWhatTheirSchemaSays) {
  start();
  const auto schema = Constraint::from_schema(kSchema);
  for (const char* form :
       {R"("response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": true, "schema": )",
        R"("json_schema": )"}) {
    const bool is_openai = std::string(form).find("format") != std::string::npos;
    const Reply r = ask(post("/v1/chat/completions", chat(form + std::string(kSchema) + (is_openai ? "}}" : ""))));
    ASSERT_EQ(r.status, 200) << r.body;
    const json::value choice = json::parse(r.body).at("choices").at(0);
    EXPECT_TRUE(schema->accepts(choice.at("message").at("content").as_string().c_str())) << r.body;
    EXPECT_EQ(choice.at("finish_reason"), "stop");
  }
  const Reply object =
      ask(post("/v1/chat/completions", chat(R"("response_format": {"type": "json_object"}, "max_tokens": 200)")));
  EXPECT_THAT(json::parse(object.body).at("choices").at(0).at("message").at("content").as_string().c_str(),
              ::testing::StartsWith("{"));
  const Reply text =
      ask(post("/v1/completions", R"({"prompt": "a", "grammar": "root ::= \"ab\" [0-9] \"b\"", "seed": 1})"));
  EXPECT_TRUE(Constraint::from_grammar("root ::= \"ab\" [0-9] \"b\"")
                  ->accepts(json::parse(text.body).at("choices").at(0).at("text").as_string().c_str()))
      << text.body;
  EXPECT_EQ(ask(post("/v1/chat/completions", chat(R"("response_format": {"type": "text"}, "max_tokens": 3)"))).status,
            200);
}

TEST_F(FormTest, ThirtyTwoAtOnceHaveTheBitsTheyHaveAlone) {
  options_.scheduler.n_waiting_max = 64;
  start();
  std::vector<std::thread> clients;
  std::vector<Reply> replies(32);
  const auto body_of = [&](size_t i) {
    std::string body = R"({"prompt": ")" + std::string(1 + i % 5, 'a') +
                       R"(", "max_tokens": 40, "temperature": 1.5, "seed": )" + std::to_string(i);
    if (i % 3 != 0) body += std::string(R"(, "json_schema": )") + kSchema;  // the others are free
    return body + "}";
  };
  for (size_t i = 0; i < replies.size(); ++i) {
    clients.emplace_back([&, i] { replies[i] = ask(post("/v1/completions", body_of(i))); });
  }
  for (std::thread& t : clients) t.join();
  const auto tree = std::make_shared<const TokenTree>(*model_);
  const auto schema = Constraint::from_schema(kSchema);
  for (size_t i = 0; i < replies.size(); ++i) {
    SCOPED_TRACE(i);
    ContextOptions o;
    o.n_threads = 1;
    o.n_ctx = 256;
    Context context(model_, o);
    GenerateOptions g;
    g.n_predict = 40;
    g.sampling.seed = i;
    g.sampling.temperature = 1.5;
    if (i % 3 != 0) g.mask = constrain(schema, tree);
    const Generation alone =
        Generator(context).run(model_->tokenizer()->encode(std::string(1 + i % 5, 'a'),
                                                           {.parse_special = true, .add_bos = {}, .add_eos = false}),
                               g);
    ASSERT_EQ(replies[i].status, 200) << replies[i].body;
    EXPECT_EQ(json::parse(replies[i].body).at("choices").at(0).at("text").as_string().c_str(), alone.text);
  }
}

// Calls of tools and answers by schemas, among others of their kind and free ones: what each has when nobody else asks
// and nothing is kept of earlier prompts, to the last bit of its logprobs.
TEST_F(FormTest, CallsAmongThirtyTwoHaveTheBitsTheyHaveAlone) {
  options_.scheduler.caches_prompts = false;
  start();
  const auto body_of = [](size_t i) {
    std::string asked =
        R"({"messages": [{"role": "user", "content": "ab"}], "max_tokens": 60, "temperature": 1.5, "logprobs": true, "top_logprobs": 2, "seed": )" +
        std::to_string(i);
    if (i % 4 != 3)
      asked += std::string(R"(, "tools": )") + kTools + R"(, "tool_choice": )" +
               (i % 4 == 0 ? R"("auto")" : R"("required")");
    if (i % 8 == 3)
      asked += R"(, "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": )" +
               std::string(kSchema) + "}}";
    return asked + "}";
  };
  const auto choice_of = [](const Reply& r) {
    EXPECT_EQ(r.status, 200) << r.body;
    json::value v = json::parse(r.body).at("choices").at(0);
    if (json::value* calls = v.at("message").as_object().if_contains("tool_calls")) {
      for (json::value& call : calls->as_array()) call.as_object().erase("id");  // of each answer its own
    }
    return json::serialize(v);
  };
  std::vector<std::thread> clients;
  std::vector<Reply> replies(32);
  for (size_t i = 0; i < replies.size(); ++i) {
    clients.emplace_back([&, i] { replies[i] = ask(post("/v1/chat/completions", body_of(i))); });
  }
  for (std::thread& t : clients) t.join();
  size_t n_calls = 0;
  for (size_t i = 0; i < replies.size(); ++i) {
    SCOPED_TRACE(i);
    const std::string choice = choice_of(replies[i]);
    EXPECT_EQ(choice, choice_of(ask(post("/v1/chat/completions", body_of(i)))));
    n_calls += choice.find("tool_calls") != std::string::npos;
  }
  EXPECT_GE(n_calls, 16u);
}

TEST_F(FormTest, CallsAreHeldAndStreamed) {
  start();
  for (const char* choice : {R"("required")", R"({"type": "function", "function": {"name": "wait"}})"}) {
    for (const char* parallel : {"true", "false"}) {
      const std::string asked = std::string(R"("tools": )") + kTools + R"(, "max_tokens": 200, "tool_choice": )" +
                                choice + R"(, "parallel_tool_calls": )" + parallel;
      const Reply whole = ask(post("/v1/chat/completions", chat(asked)));
      ASSERT_EQ(whole.status, 200) << whole.body;
      const json::value v = json::parse(whole.body).at("choices").at(0);
      const json::array& calls = v.at("message").at("tool_calls").as_array();
      ASSERT_FALSE(calls.empty()) << whole.body;
      if (std::string(parallel) == "false") {
        EXPECT_EQ(calls.size(), 1u);
        EXPECT_EQ(v.at("finish_reason"), "tool_calls");
        EXPECT_TRUE(v.at("message").at("content").is_null());
      }
      const Told stream = told(ask(post("/v1/chat/completions", chat(asked + R"(, "stream": true)"))).body);
      ASSERT_EQ(stream.calls.size(), calls.size());
      EXPECT_EQ(stream.finish, v.at("finish_reason").as_string().c_str());
      std::set<std::string> ids;
      for (size_t i = 0; i < calls.size(); ++i) {
        const json::value& function = calls[i].at("function");
        const std::string name = function.at("name").as_string().c_str();
        if (choice[0] == '{') {
          EXPECT_EQ(name, "wait");
        }
        EXPECT_EQ(stream.calls[i].name, name);
        EXPECT_EQ(stream.calls[i].arguments, function.at("arguments").as_string().c_str());
        ids.insert(stream.calls[i].id);
        if (i + 1 == calls.size() && v.at("finish_reason") == "length") continue;  // cut by max_tokens
        const json::value arguments = json::parse(function.at("arguments").as_string());
        EXPECT_TRUE(name == "look" ? arguments.at("at").is_string() : arguments.at("s").to_number<int>() > 0);
      }
      EXPECT_EQ(ids.size(), calls.size());
    }
  }
}

// A stop string of the request's ends a call where it stands: the reason says so, and that the call is none to run.
TEST_F(FormTest, AStopStringInsideACallIsToldApart) {
  start();
  const std::string asked = std::string(R"("tools": )") + kTools +
                            R"(, "max_tokens": 200, "parallel_tool_calls": false, "stop": ["\"s\""], "tool_choice": )";
  const std::string named = R"({"type": "function", "function": {"name": "wait"}})";
  const Reply r = ask(post("/v1/chat/completions", chat(asked + named)));
  ASSERT_EQ(r.status, 200) << r.body;
  EXPECT_EQ(json::parse(r.body).at("choices").at(0).at("finish_reason"), "stop") << r.body;
  EXPECT_EQ(told(ask(post("/v1/chat/completions", chat(asked + named + R"(, "stream": true)"))).body).finish, "stop");
}

TEST_F(FormTest, ConversationsWithCallsGoOn) {
  start();
  const std::string messages =
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": null, "tool_calls": [{"id": "x1", "type": "function", "function": {"name": "look", "arguments": ")";
  for (const char* arguments : {R"({\"at\": \"a\"})", "", "{", "[1]"}) {  // B61: broken ones too
    const std::string rest =
        R"("}}]}, {"role": "tool", "tool_call_id": "x1", "content": "<|im_end|> b"}], "max_tokens": 4, "tools": )" +
        std::string(kTools) + "}";
    const Reply r = ask(post("/v1/chat/completions", messages + arguments + rest));
    EXPECT_EQ(r.status, 200) << r.body;
    const Reply prompt = ask(post("/apply-template", R"({"messages": [{"role": "user", "content": "a"}], "tools": )" +
                                                         std::string(kTools) + "}"));
    EXPECT_THAT(prompt.body, HasSubstr("<tools>"));
  }
  const json::value props = json::parse(ask(get("/props")).body);
  EXPECT_EQ(props.at("tool_calls").at("format"), "generic");
  EXPECT_TRUE(props.at("reasoning").is_null());
}

TEST_F(FormTest, WhatIsNotServedIsNamed) {
  start();
  const std::string path = "/v1/chat/completions";
  EXPECT_THAT(
      refusal(
          path,
          chat(
              R"("response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "array", "uniqueItems": true}}})")),
      ::testing::AllOf(HasSubstr("response_format.json_schema.schema: "), HasSubstr("\"/uniqueItems\"")));
  EXPECT_THAT(refusal(path, chat(R"("response_format": {"type": "json_schema"})")),
              HasSubstr("response_format.json_schema: "));
  EXPECT_THAT(refusal(path, chat(R"("response_format": {"type": "xml"})")), HasSubstr("response_format.type: "));
  EXPECT_THAT(
      refusal(path, chat(R"("response_format": {"type": "json_object", "json_schema": {"name": "x", "schema": {}}})")),
      HasSubstr("needs type json_schema"));
  EXPECT_THAT(refusal(path, chat(R"("response_format": {"type": "json_schema", "schema": {}})")),
              HasSubstr("response_format.schema: there is no field"));  // B54
  EXPECT_THAT(refusal(path, chat(R"("grammar": "root ::= ((((")")), HasSubstr("grammar: "));
  EXPECT_THAT(refusal(path, chat(R"("grammar": "root ::= \"a\"", "json_schema": {})")),
              HasSubstr("exclude each other"));
  EXPECT_THAT(refusal(path, chat(R"("tool_choice": "required")")), HasSubstr("tool_choice: needs tools"));
  EXPECT_THAT(
      refusal(path, chat(std::string(R"("tool_choice": {"type": "function", "function": {"name": "no"}}, "tools": )") +
                         kTools)),
      HasSubstr("tool_choice.function.name: there is no tool"));
  EXPECT_THAT(refusal(path, chat(R"("tools": [{"type": "function", "function": {"name": "a b"}}])")),
              HasSubstr("tools[0].function.name: needs letters"));
  EXPECT_THAT(
      refusal(
          path,
          chat(
              R"("tools": [{"type": "function", "function": {"name": "a"}}, {"type": "function", "function": {"name": "a"}}])")),
      HasSubstr("tools[1].function.name: "));
  EXPECT_THAT(
      refusal(
          path,
          chat(
              R"("tools": [{"type": "function", "function": {"name": "a", "parameters": {"properties": {"x": {"not": {}}}}}}])")),
      HasSubstr("tools[0].function.parameters.properties.x.not: "));
  EXPECT_THAT(refusal(path, chat(R"("tools": [{"type": "web_search"}])")), HasSubstr("tools[0].type: "));
  EXPECT_THAT(refusal(path, chat(R"("chat_template_kwargs": {"enable_thinking": false})")),
              HasSubstr("chat_template_kwargs.enable_thinking: the model's chat template does not know"));
  EXPECT_THAT(refusal(path, chat(R"("reasoning_effort": "low")")), HasSubstr("reasoning_effort: "));
  EXPECT_THAT(refusal(path, chat(R"("enable_thinking": false)")),
              HasSubstr("enable_thinking: the model's chat template does not know"));
  EXPECT_THAT(refusal(path, R"({"messages": [{"role": "user"}]})"), HasSubstr("messages[0].content is missing"));
  EXPECT_THAT(refusal(path, R"({"messages": [{"role": "tool", "content": "x"}]})"),
              HasSubstr("messages[0].tool_call_id is missing"));
  EXPECT_THAT(refusal(path, R"({"messages": [{"role": "user", "content": "x", "tool_calls": []}]})"),
              HasSubstr("messages[0].tool_calls: stands in messages of role assistant"));
}

// Of the whole process, the client of the test among it.
std::pair<double, int64_t> spent_ms_and_most_kib() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto ms = [](const timeval& t) {
    return 1e3 * static_cast<double>(t.tv_sec) + 1e-3 * static_cast<double>(t.tv_usec);
  };
  return {ms(usage.ru_utime) + ms(usage.ru_stime), usage.ru_maxrss};
}

// B46 to B56: each is refused or served, soon, and the server goes on.
TEST_F(FormTest, HostileSchemasAndGrammars) {
  start();
  ask(post("/v1/chat/completions", chat(R"("max_tokens": 2, "json_schema": {"type": "string"})")));
  const int64_t usual_kib = spent_ms_and_most_kib().second;
  const auto repeat = [](std::string_view text, size_t n) {
    std::string all;
    for (size_t i = 0; i < n; ++i) all += text;
    return all;
  };
  const auto schema = [&](const std::string& text) { return chat(R"("max_tokens": 2, "json_schema": )" + text); };
  const auto grammar = [&](const std::string& text) { return chat(R"("max_tokens": 2, "grammar": ")" + text + "\""); };
  std::string chain = "root ::= r0\\n", options = "{\"properties\": {", list = "{\"enum\": [";
  for (int i = 0; i < 9000; ++i) chain += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + "\\n";
  for (int i = 0; i < 3000; ++i)
    options += (i ? ", " : "") + ("\"p" + std::to_string(i)) + "\": {\"type\": \"integer\"}";
  for (int i = 0; i < 20000; ++i) list += (i ? ", " : "") + std::to_string(i);
  std::string doubled = "{\"$defs\": {\"d0\": {\"type\": \"null\"}";
  for (int i = 1; i < 40; ++i)
    doubled += ", \"d" + std::to_string(i) + "\": {\"anyOf\": [{\"$ref\": \"#/$defs/d" + std::to_string(i - 1) +
               "\"}, {\"$ref\": \"#/$defs/d" + std::to_string(i - 1) + "\"}]}";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"nested groups", grammar("root ::= " + repeat("(", 60000))},
      {"a chain of rules", grammar(chain)},
      {"left recursion", grammar("root ::= root \\\"a\\\" | \\\"b\\\"")},
      {"nested repetitions", grammar("root ::= ((\\\"a\\\"{0,1000}){0,1000}){0,1000}")},
      {"no grammar", grammar("root ::= \\\"")},
      {"a long text", schema(R"({"type": "string", "minLength": 1000000000})")},
      {"a deep schema", schema(repeat("{\"items\": ", 60) + "{}" + repeat("}", 60))},
      {"groups in a pattern", schema("{\"pattern\": \"" + repeat("(", 50000) + "\"}")},
      {"patterns that are none", schema(R"({"pattern": "^+[a-z]$"})")},
      {"a repetition of nothing", schema(R"({"pattern": "^{2}x$"})")},
      {"look-behind", schema(R"({"pattern": "(?<=a)b"})")},
      {"foo**", schema(R"({"pattern": "foo**"})")},
      {"many options", schema(options + "}}")},
      {"an unknown keyword", schema(R"({"type": "string", "colour": "red"})")},
      {"a reference to itself", schema(R"({"$ref": "#"})")},
      {"a reference to nothing", schema(R"({"$ref": "#/no"})")},
      {"references that double", schema(doubled + "}, \"$ref\": \"#/$defs/d39\"}")},
      {"a long list", schema(list + "]}")},
      {"no number", schema(R"({"type": "integer", "minimum": 9, "maximum": 1})")},
      {"wide bounds",
       schema(R"({"type": "integer", "minimum": -9223372036854775808, "maximum": 9223372036854775807})")},
      {"two members of one name", schema(R"({"type": "string", "type": "null"})")},
      {"a value of another type", schema(R"({"type": 5})")},
  };
  for (const auto& [name, body] : cases) {
    SCOPED_TRACE(name);
    const double before_ms = spent_ms_and_most_kib().first;
    const Reply r = ask(post("/v1/chat/completions", body));
    EXPECT_TRUE(r.status == 200 || r.status == 400) << r.status << " " << r.body.substr(0, 300);
    // 100 ms for what is compiled; the rest is for the text of the request, sent, read and answered.
    EXPECT_LT(spent_ms_and_most_kib().first - before_ms, test::unless_slow(250.0, 5'000.0));
  }
  EXPECT_LT(spent_ms_and_most_kib().second - usual_kib, test::unless_slow<int64_t>(64 << 10, 1024 << 10));
  EXPECT_EQ(ask(get("/health")).status, 200);
}

// The same template with marks of reasoning, and a model whose text has them by a grammar.
TEST_F(FormTest, ReasoningIsApart) {
  options_.chat_template = std::string(test::kTinyTemplate) + "{# <think> #}{% if enable_thinking %}T{% endif %}";
  start();
  const std::string grammar = R"("max_tokens": 60, "grammar": "root ::= \"<think>ab\" [ab] \"</think>\" \"ba\"")";
  const Reply whole = ask(post("/v1/chat/completions", chat(grammar)));
  const json::value v = json::parse(whole.body);
  const json::value& message = v.at("choices").at(0).at("message");
  EXPECT_THAT(message.at("reasoning_content").as_string().c_str(), ::testing::StartsWith("ab"));
  EXPECT_EQ(message.at("content"), "ba");
  EXPECT_GT(v.at("usage").at("completion_tokens_details").at("reasoning_tokens").as_int64(), 0);
  const Told stream = told(ask(post("/v1/chat/completions", chat(grammar + R"(, "stream": true)"))).body);
  EXPECT_EQ(stream.reasoning, message.at("reasoning_content").as_string().c_str());
  EXPECT_EQ(stream.content, "ba");
  const auto n_prompt = [&](const std::string& rest) {
    const Reply r = ask(post("/v1/chat/completions", chat(R"("max_tokens": 1)" + rest)));
    EXPECT_EQ(r.status, 200) << r.body;
    return json::parse(r.body).at("usage").at("prompt_tokens").as_int64();
  };
  const int64_t usual = n_prompt(""), on = n_prompt(R"(, "chat_template_kwargs": {"enable_thinking": true})");
  EXPECT_GT(on, usual);
  EXPECT_EQ(n_prompt(R"(, "enable_thinking": true)"), on);
  EXPECT_EQ(n_prompt(R"(, "enable_thinking": false)"), usual);
}

TEST_F(FormTest, ThePageComesWithItsPolicy) {
  options_.keys = {{"sesame", "ali", 1}};
  start();
  for (const auto& [path, part] :
       std::map<std::string, std::string>{{"/", "<main>"}, {"/app.js", "'use strict'"}, {"/style.css", ":root"}}) {
    const Reply r = ask(get(path));
    EXPECT_EQ(r.status, 200);
    EXPECT_THAT(r.body, HasSubstr(part));
    EXPECT_THAT(r.head, HasSubstr("default-src 'none'; script-src 'self'"));
    EXPECT_THAT(r.head, HasSubstr("frame-ancestors 'none'"));
    EXPECT_THAT(r.head, HasSubstr("nosniff"));
    for (const char* word : {"innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "http://",
                             "https://", "style=", "onclick="}) {
      EXPECT_EQ(r.body.find(word), std::string::npos) << path << " has " << word;
    }
  }
  EXPECT_EQ(ask(get("/props")).status, 401);
}

}  // namespace
}  // namespace assay
