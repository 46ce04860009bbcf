// Schemas and grammars: what they let through, what they keep out, and what is refused, by whole texts; masks against
// the plain way of making them, token by token; and inputs that mean harm.
#include "assay/constraint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <string>
#include <vector>

#include "constraint/automaton.h"
#include "constraint/constraint_state.h"
#include "constraint/token_tree.h"
#include "support/rounds.h"
#include "support/shared_data.h"

namespace assay {
namespace {

using ::testing::HasSubstr;

struct Judged {
  const char* schema;
  std::vector<const char*> yes, no;
};

std::string all_problems(const std::string& schema) {
  std::string text;
  for (const SchemaProblem& p : check_schema(schema)) text += p.pointer + ": " + p.message + "\n";
  return text;
}

template <class F>
std::string refusal(const F& f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.code, Errc::bad_request);
    return error.what();
  }
  return "nothing was refused";
}
std::string schema_refusal(const std::string& schema) {
  return refusal([&] { Constraint::from_schema(schema); });
}
std::string grammar_refusal(const std::string& gbnf) {
  return refusal([&] { Constraint::from_grammar(gbnf); });
}

void judge(const std::vector<Judged>& list,
           const std::function<std::shared_ptr<const Constraint>(const char*)>& compile) {
  for (const Judged& j : list) {
    SCOPED_TRACE(j.schema);
    const auto constraint = compile(j.schema);
    for (const char* text : j.yes) EXPECT_TRUE(constraint->accepts(text)) << text;
    for (const char* text : j.no) EXPECT_FALSE(constraint->accepts(text)) << text;
  }
}

TEST(Schema, LetsThroughWhatItSaysAndNothingElse) {
  const std::vector<Judged> list = {
      {R"({"type": "null"})", {"null"}, {"", "nul", "nulll", "true", " null"}},
      {R"({"type": ["boolean", "null"]})", {"true", "false", "null"}, {"0", "\"true\""}},
      {R"({"type": "integer"})",
       {"0", "-0", "7", "-120", "12345678901234567"},
       {"01", "+1", "1.0", "1e3", "123456789012345678", "", "-"}},
      {R"({"type": "number"})",
       {"0", "0.5", "-1.25e-7", "1E+99", "12345678.901234567"},
       {".5", "1.", "1e", "1e100", "00", "NaN", "12345678.9012345678"}},
      {R"({"type": "integer", "minimum": -12, "maximum": 205})",
       {"-12", "-9", "0", "7", "99", "199", "205"},
       {"-13", "206", "1000", "-100", "-0"}},
      {R"({"type": "integer", "exclusiveMinimum": 9, "exclusiveMaximum": 12})", {"10", "11"}, {"9", "12", "1", "100"}},
      {R"({"type": "integer", "minimum": 0.5, "maximum": 2.5})", {"1", "2"}, {"0", "3"}},
      {R"({"type": "integer", "minimum": -9223372036854775808})", {"-12345678901234567", "5"}, {"-123456789012345678"}},
      {R"({"type": "number", "minimum": 0.25, "exclusiveMaximum": 1})",
       {"0.25", "0.250", "0.3", "0.99", "0.999999"},
       {"0.2", "0.249", "1", "1.0", "0", "-0.5"}},
      {R"({"type": "number", "maximum": -1.5})", {"-1.5", "-1.50", "-1.51", "-2", "-10"}, {"-1.4", "-1", "0", "1.5"}},
      {R"({"type": "string"})",
       {R"("")", R"("a\n\u00e9é😀\ud83d\ude00")", R"("\/")"},
       {R"(")", "\"\n\"", R"("\x")", R"("\ud83d")", R"("\udc00")", "\"\xC3\"", "\"\xED\xA0\x80\""}},
      {R"({"type": "string", "minLength": 2, "maxLength": 3})",
       {R"("ab")", R"("éé😀")", R"("\n\u0041")"},
       {R"("a")", R"("abcd")", R"("")"}},
      {R"({"type": "string", "minLength": 2})", {R"("ab")", R"("abcdefgh")"}, {R"("a")"}},
      {R"({"enum": ["a", "ab", 1, null, {"k": [1, true]}]})",
       {R"("a")", R"("ab")", "1", "null", R"({"k": [1, true]})"},
       {R"("b")", "2", R"({"k":[1,true]})"}},
      {R"({"type": "string", "enum": ["a", 1]})", {R"("a")"}, {"1"}},
      {R"({"const": "x\"y"})", {R"("x\"y")"}, {R"("xy")"}},
      {R"({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3})",
       {"[1]", "[1, 2, 3]"},
       {"[]", "[1, 2, 3, 4]", "[1,2]", "[1, ]", R"(["a"])"}},
      {R"({"type": "array", "prefixItems": [{"type": "null"}, {"type": "boolean"}], "items": {"type": "integer"}})",
       {"[]", "[null]", "[null, true, 5, 6]"},
       {"[1]", "[null, 5]"}},
      {R"({"type": "array", "prefixItems": [{"type": "null"}], "items": false})", {"[]", "[null]"}, {"[null, null]"}},
      {R"({"type": "array", "items": {"type": "boolean"}})",
       {"[]", "[true]", "[true, false, true]"},
       {"[true, ]", "[, true]", "[true"}},
      {R"({"type": "array"})", {"[]", R"([1, "a", [null], {"b": {}}])"}, {"{}"}},
      {R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {}, "c": {"type": "null"}}, "required": ["b"]})",
       {R"({"b": 1})", R"({"a": 1, "b": [{}]})", R"({"b": "x", "c": null})", R"({"a": 1, "b": 2, "c": null})"},
       {"{}", R"({"a": 1})", R"({"b": 1, "a": 1})", R"({"b": 1, "d": 1})", R"({"a": 1, })", R"({"a": "x", "b": 1})",
        R"({"b":1})"}},
      {R"({"type": "object", "properties": {"a": {"type": "null"}}})",
       {"{}", R"({"a": null})"},
       {R"({"b": 1})", R"({"a": null, })"}},
      {R"({"type": "object", "properties": {"ab": {"type": "null"}}, "additionalProperties": {"type": "integer"}})",
       {"{}", R"({"a": 1})", R"({"abc": 1, "": 2})", R"({"ab": null, "é": 3})"},
       {R"({"ab": 1})", R"({"a": null})", R"({"a": 1, "ab": null})"}},
      {R"({"type": "object", "additionalProperties": false})", {"{}"}, {R"({"a": 1})"}},
      {R"({"required": ["x"], "additionalProperties": true})",
       {R"({"x": 1})", R"({"x": 1, "y": 2})"},
       {R"({"y": 2})", "1"}},
      {R"({"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 1}]})", {"5", R"("a")"}, {R"("ab")", "null"}},
      {R"({"oneOf": [{"type": "object", "properties": {"k": {"const": "a"}, "v": {"type": "integer"}}, "required": ["k", "v"]},
                     {"type": "object", "properties": {"k": {"const": "b"}}, "required": ["k"]}]})",
       {R"({"k": "a", "v": 1})", R"({"k": "b"})"},
       {R"({"k": "a"})", R"({"k": "c"})"}},
      {R"({"allOf": [{"$ref": "#/$defs/n"}], "title": "t", "$defs": {"n": {"type": "null"}}})", {"null"}, {"1"}},
      {R"({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "array", "items": {"$ref": "#"}}}})",
       {"[]", "[[], [[]]]"},
       {"[1]", "[[]"}},
      {R"({"type": "object", "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["v", "next"]})",
       {R"({"v": 1, "next": {"v": 2, "next": null}})"},
       {R"({"v": 1, "next": {"v": 2}})"}},
      {R"({"x-mine": 1, "description": "any"})", {"1", R"({"a": [null]})", R"("")"}, {"", "x"}},
  };
  judge(list, [](const char* s) { return Constraint::from_schema(s); });
}

TEST(Schema, PatternsAndFormats) {
  const std::vector<Judged> list = {
      {R"({"pattern": "^[a-c]+$"})", {R"("abc")"}, {R"("")", R"("abd")", "5"}},
      {R"({"pattern": "b"})", {R"("b")", R"("abc")", R"("\nb\"")"}, {R"("ac")", R"("")"}},
      {R"({"pattern": "^a|b$"})", {R"("ax")", R"("xb")"}, {R"("xa")", R"("bx")"}},
      {R"({"pattern": "^(ab?){2,3}$"})", {R"("aba")", R"("aaa")", R"("ababab")"}, {R"("ab")", R"("aaaa")"}},
      {R"({"pattern": "^\\d{3}-\\w*\\s\\S$"})", {R"("123-a_9 x")", R"("000-\t\"")"}, {R"("12-a x")", R"("123-a  ")"}},
      {R"({"pattern": "^[^\\s,]\\u00e9\\x41.$"})", {"\"zéAq\""}, {R"("zéA\n")", R"(",éAq")"}},
      {R"({"pattern": "^(?:x|yy)*?$", "minLength": 3, "maxLength": 4})",
       {R"("xxx")", R"("yyx")", R"("yyyy")"},
       {R"("xx")", R"("yyyyx")", R"("yyy")"}},
      {R"({"pattern": "a", "maxLength": 2})", {R"("a")", R"("éa")"}, {R"("éé")", R"("xxa")"}},
      {R"({"format": "date"})",
       {R"("2024-02-29")", R"("1999-12-31")", R"("2000-02-29")"},
       {R"("2023-02-29")", R"("1900-02-29")", R"("2024-04-31")", R"("2024-13-01")", R"("24-01-01")"}},
      {R"({"format": "time"})", {R"("23:59:59Z")", R"("00:00:00.5+02:00")"}, {R"("24:00:00Z")", R"("12:00:00")"}},
      {R"({"format": "date-time"})", {R"("2024-02-29T12:00:00Z")"}, {R"("2024-02-29 12:00:00Z")"}},
      {R"({"format": "uuid"})",
       {R"("123e4567-e89b-12d3-a456-426614174000")"},
       {R"("123e4567e89b12d3a456426614174000")"}},
      {R"({"format": "ipv4"})", {R"("255.0.10.199")"}, {R"("256.0.0.1")", R"("1.2.3")", R"("01.2.3.4")"}},
      {R"({"format": "ipv6"})",
       {R"("::")", R"("::1")", R"("1:2:3:4:5:6:7:8")", R"("fe80::1:2")", R"("1::8")", R"("1:2:3:4:5:6:7::")"},
       {R"("1:2:3")", R"("1::2::3")", R"("12345::")", R"("1:2:3:4:5:6:7:8:9")", R"("1:2:3:4:5:6:7::8")"}},
      {R"({"format": "email"})",
       {R"("a.b+c@example.org")"},
       {R"("a@b")", R"("@example.org")", R"("a..b@example.org")"}},
  };
  judge(list, [](const char* s) { return Constraint::from_schema(s); });
}

TEST(Schema, NamesEverythingThatIsNotEnforced) {
  const std::string text =
      all_problems(R"({"type": "object", "properties": {"a": {"type": "string", "format": "hostname"},
      "b/c": {"not": {}, "uniqueItems": true}, "d": {"type": "text"}, "e": {"pattern": "(?=a)b"}}, "minProperties": 1, "colour": 1, "if": true})");
  for (const char* pointer :
       {"/properties/a/format: ", "/properties/b~1c/not: ", "/properties/b~1c/uniqueItems: ", "/properties/d/type: ",
        "/properties/e/pattern: look-around", "/minProperties: ", "/colour: ", "/if: "}) {
    EXPECT_THAT(text, HasSubstr(pointer));
  }
  EXPECT_EQ(all_problems(R"({"type": "array", "uniqueItems": false, "deprecated": true})"), "");
  const std::pair<const char*, const char*> refused[] = {
      {R"({"$ref": "other.json"})", "\"/$ref\""},
      {R"({"$ref": "#/nowhere"})", "\"/$ref\""},
      {R"({"$ref": "#"})", "begins with itself"},
      {R"({"properties": {"a": {"$ref": "#"}}, "required": ["a"]})", "none comes to an end"},
      {R"({"$ref": "#/$defs/a", "minLength": 3, "$defs": {"a": {}}})", "\"/minLength\""},
      {R"({"minimum": 3, "maximum": 2})", "\"/minimum\""},
      {R"({"minLength": 3, "maxLength": 2})", "\"/maxLength\""},
      {R"({"minItems": 3, "maxItems": 2})", "\"/minItems\""},
      {R"({"enum": []})", "\"/enum\""},
      {R"({"type": "string", "const": 1})", "\"/const\""},
      {R"({"exclusiveMinimum": true})", "\"/exclusiveMinimum\""},
      {R"({"multipleOf": 2})", "\"/multipleOf\""},
      {R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})", "\"/oneOf\""},
      {R"({"allOf": [{}, {}]})", "\"/allOf\""},
      {R"({"anyOf": [{}], "type": "string"})", "\"/type\""},
      {R"({"items": [{}]})", "\"/items\""},
      {R"({"required": "a"})", "\"/required\""},
      {R"({"required": ["a"], "additionalProperties": false})", "\"/required\""},
      {"false", "no value"},
      {"3", "an object or a boolean"},
      {R"({"type": "integer", "minimum": 1e30})", "digits"},
      {R"({"anyOf": [{"type": "number", "minimum": 1e15}, {"type": "null"}]})", "\"/anyOf/0\""},
      {R"({"type": ["number", "null"], "exclusiveMaximum": -1e15})", "the 15 that are written"},
      {"{\"type\": ", "no JSON"},
      {R"({"a": 1, "a": 2})", "twice"}};
  for (const auto& [schema, part] : refused) EXPECT_THAT(schema_refusal(schema), HasSubstr(part)) << schema;
}

TEST(Schema, PatternsThatAreRefused) {
  for (const char* pattern : {"^+[a-z]$",  "^{2}x$",   "(?<=a)b", "(?!a)", "foo**",       "a{2",
                              "a{3,2}",    "(a",       "a)",      "[a",    "[z-a]",       "\\\\1",
                              "\\\\bword", "\\\\p{L}", "(^a)",    "a$b",   "a{1,100000}", "((a{1000}){1000}){1000}",
                              "\\\\ud800", "\\\\"}) {
    EXPECT_THAT(schema_refusal(std::string(R"({"pattern": ")") + pattern + "\"}"), HasSubstr("\"/pattern\""))
        << pattern;
  }
  EXPECT_THAT(schema_refusal(R"({"pattern": ")" + std::string(50'000, '(') + "\"}"), HasSubstr("deeper than 64"));
}

TEST(Schema, InputsThatMeanHarmAreRefusedOrServedQuickly) {
  std::string deep;
  for (int i = 0; i < 2000; ++i) deep += R"({"items": )";
  EXPECT_THAT(schema_refusal(deep + "{}" + std::string(2000, '}')), HasSubstr("nested deeper than 64"));
  EXPECT_THAT(schema_refusal(std::string(300'000, ' ')), HasSubstr("262144"));
  EXPECT_THAT(schema_refusal(R"({"type": "string", "minLength": 1000000000})"), HasSubstr("states"));
  EXPECT_THAT(schema_refusal(R"({"type": "array", "maxItems": 2000000000})"), HasSubstr("states"));
  std::string doubling = R"({"$ref": "#/$defs/d0", "$defs": {)";  // 2^60 texts in a schema of 60 lines
  for (int i = 0; i < 60; ++i)
    doubling += "\"d" + std::to_string(i) + R"(": {"type": "array", "items": {"$ref": "#/$defs/d)" +
                std::to_string(i + 1) + R"("}, "minItems": 2, "maxItems": 2},)";
  EXPECT_TRUE(Constraint::from_schema(doubling + R"("d60": {"type": "null"}}})") != nullptr);
  std::string optional, many;
  for (int i = 0; i < 3000; ++i) {
    optional += (i > 0 ? ", " : "") + std::string("\"property") + std::to_string(i) + R"(": {"type": "null"})";
    many += (i > 0 ? ", " : "") + std::string("\"value ") + std::to_string(i) + "\"";
  }
  const auto wide = Constraint::from_schema(R"({"type": "object", "properties": {)" + optional + "}}");
  EXPECT_TRUE(wide->accepts(R"({"property7": null, "property2999": null})"));
  EXPECT_FALSE(wide->accepts(R"({"property2999": null, "property7": null})"));
  EXPECT_TRUE(Constraint::from_schema("{\"enum\": [" + many + "]}")->accepts("\"value 1234\""));
}

TEST(Schema, JsonObjectIsAnyObjectOfSixteenValues) {
  const auto any = Constraint::any_object();
  EXPECT_TRUE(any->accepts(R"({"a": {"b": [1, true, null, "x"]}, "": {}})"));
  EXPECT_FALSE(any->accepts("[]"));
  const auto nested = [](size_t n) {
    std::string text;
    for (size_t i = 0; i < n; ++i) text += R"({"a": )";
    return text + "{}" + std::string(n, '}');
  };
  EXPECT_TRUE(any->accepts(nested(15)));
  EXPECT_FALSE(any->accepts(nested(16)));
}

TEST(Grammar, LetsThroughWhatItSaysAndNothingElse) {
  const std::vector<Judged> list = {
      {"root ::= \"yes\" | \"no\"", {"yes", "no"}, {"", "ye", "yesno"}},
      {"# words\nroot ::= word (\" \" word)*  # and more\nword ::= [a-zA-Z]+", {"a", "some words"}, {"", "a ", "a  b"}},
      {"root ::= [^\\n\"]{2,3}\n", {"ab", "éé😀"}, {"a", "abcd", "a\n", "\xC3\xA9\xC3"}},
      {"root ::= \"\\x41\\u00e9\\U0001F600\\t\\\\\" .", {"Aé😀\t\\x"}, {"A"}},
      {"root ::= (\n \"a\"\n | \"b\" \n)? [0-9]{3} \"x\"{2,}", {"a123xx", "999xxxx"}, {"ab123xx", "12xx", "123x"}},
      {"root ::= \"(\" root \")\" |\n  \"\"", {"", "()", "((()))"}, {"(", "())", "(()"}},
      {"root ::= x* \"!\"\nx ::= \"a\"* \"b\"?", {"!", "aab!", "bbb!"}, {"", "c!"}},
      {"root ::= list\nlist ::= \"x\" list | \"x\"", {"x", "xxxxx"}, {""}},
      {"root ::= [a\\]z-]+", {"a-z]"}, {"b"}},
  };
  judge(list, [](const char* s) { return Constraint::from_grammar(s); });
}

TEST(Grammar, SaysWhatIsWrongAndWhere) {
  const std::pair<std::string, const char*> refused[] = {
      {"", "no rule root"},
      {"root ::= other", "line 1: the rule other"},
      {"root ::= \"a\"\nroot ::= \"b\"", "line 2: the rule root is defined twice"},
      {"root = \"a\"", "needs ::="},
      {"root ::= \"a", "does not end"},
      {"root ::= [a", "does not end"},
      {"root ::= (\"a\"", "needs )"},
      {"root ::= \"a\")", "needs the end"},
      {"root ::= *", "repetition of nothing"},
      {"root ::= \"a\"**", "repetition of a repetition"},
      {"root ::= \"a\"{2,1}", "at least 2"},
      {"root ::= \"a\"{,3}", "count"},
      {"root ::= \"\\q\"", "escape"},
      {"root ::= [z-a]", "ends before"},
      {"root ::= <token>", "tokens"},
      {"root ::= \"\\ud800\"", "no character"},
      {"root ::= root \"a\" | \"b\"", "begins with itself"},
      {"root ::= a\na ::= \"\" b\nb ::= \"x\"? a \"y\"", "begins with itself"},
      {"root ::= \"a\" root", "none comes to an end"},
      {"root ::= \"\xFF\"", "UTF-8"}};
  for (const auto& [gbnf, part] : refused) EXPECT_THAT(grammar_refusal(gbnf), HasSubstr(part)) << gbnf;
}

TEST(Grammar, InputsThatMeanHarmAreRefusedOrServedQuickly) {
  EXPECT_THAT(grammar_refusal("root ::= " + std::string(30'000, '(')), HasSubstr("deeper than 64"));
  EXPECT_THAT(grammar_refusal("root ::= \"" + std::string(70'000, 'a')), HasSubstr("65536"));
  std::string rules = "root ::= r0\n";
  for (int i = 0; i < 4'000; ++i) rules += "r" + std::to_string(i) + "::=r" + std::to_string(i + 1) + "\n";
  EXPECT_TRUE(Constraint::from_grammar(rules + "r4000 ::= \"x\"")->accepts("x"));
  std::string many = "root ::= ";
  for (int i = 0; i < 10'001; ++i) many += "\"a\"?";
  EXPECT_THAT(grammar_refusal(many), HasSubstr("more than 10000 rules"));
  const auto nested = Constraint::from_grammar("root ::= (((\"a\"{0,1000}){0,1000}){0,1000}) \"!\"");
  EXPECT_THAT(refusal([&] { nested->accepts("aaa!"); }), HasSubstr("too many readings"));
  EXPECT_THAT(grammar_refusal("root ::= \"a\"{0,1000000000}"), HasSubstr("repetition of more"));
  // Two readings for each letter: 2^n of n letters.
  const auto two = Constraint::from_grammar("root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"x\"");
  EXPECT_THAT(refusal([&] { two->accepts(std::string(64, 'a')); }), HasSubstr("too many readings"));
}

std::chrono::milliseconds clock_of_steps() {  // a millisecond passes with each look at it
  static std::chrono::milliseconds now{0};
  return now += std::chrono::milliseconds(1);
}

TEST(CpuBudget, IsLookedAtEveryThousandStepsAndEndsTheWork) {
  constraint::NetworkBuilder net(
      constraint::CpuBudget(std::chrono::milliseconds(5), [] { return std::chrono::nanoseconds(clock_of_steps()); }));
  int n = 0;
  const auto text = refusal([&] {
    for (; n < 50'000; ++n) net.state();
  });
  EXPECT_THAT(text, HasSubstr("more than 5 ms of the processor"));
  EXPECT_GE(n, 5 * 1'024);
  EXPECT_LE(n, 7 * 1'024);
}

// What a request asks for costs its thread no more than the budget and what lies between two looks at it.
TEST(CpuBudget, HoldsForSchemasThatOnlyCostTime) {
  std::string patterns = R"({"properties": {)";
  for (int i = 0; i < 5'000; ++i)
    patterns += (i > 0 ? "," : "") + ("\"p" + std::to_string(i)) + R"(": {"pattern": "((a{99}){99}){99}"})";
  patterns += "}}";
  std::string members, names;
  for (int i = 0; i < 6'000; ++i) {
    const std::string name = "\"m" + std::to_string(10'000 + i) + "\"";
    members += (i > 0 ? "," : "") + name + ":{}";
    names += (i > 0 ? "," : "") + name;
  }
  const std::string object = R"({"type": "object", "properties": {)" + members + R"(}, "required": [)" + names + "]}";
  const std::string one_of = R"({"oneOf": [)" + object + "," + object + "]}";
  for (const std::string& schema : {patterns, one_of}) {
    const auto begin = constraint::CpuBudget::thread_time();
    EXPECT_NE(refusal([&] { Constraint::from_schema(schema); }), "nothing was refused") << schema.substr(0, 80);
    const auto spent = constraint::CpuBudget::thread_time() - begin;
    EXPECT_LT(spent, 3 * constraint::kCpuMost) << std::chrono::duration<double>(spent).count();
  }
}

// Every token of the vocabulary tried alone: the plain way of making a mask.
std::vector<uint64_t> plain_mask(const Constraint& constraint, const TokenTree& tree, const std::string& so_far) {
  constraint::Automaton automaton(constraint.state().network);
  constraint::Automaton::Place here = automaton.begin();
  for (const char c : so_far) here = automaton.step(here, static_cast<uint8_t>(c));
  std::vector<uint64_t> bits(static_cast<size_t>(tree.state().n_words));
  if (automaton.accepts(here)) bits = tree.state().ends;
  for (size_t id = 0; id < tree.state().bytes.size(); ++id) {
    automaton.allow_work(constraint::kWorkMax);
    constraint::Automaton::Place place = tree.state().bytes[id].empty() ? constraint::Automaton::kDead : here;
    for (const char c : tree.state().bytes[id]) place = automaton.step(place, static_cast<uint8_t>(c));
    if (place != constraint::Automaton::kDead) bits[id / 64] |= uint64_t{1} << (id % 64);
  }
  return bits;
}

TEST(Mask, IsThatOfEveryTokenTriedAlone) {
  const std::string path = test::shared("vectors/tokenizers/ggml-vocab-qwen2.gguf").string();
  ASSAY_REQUIRE_FILE(path);
  const auto tokenizer = Tokenizer::load(path);
  const auto tree = std::make_shared<const TokenTree>(*tokenizer, tokenizer->vocab_size());
  const std::string forty = "\"the rain in spain falls mainly on a plain\"";
  const std::pair<const char*, std::string> cases[] = {
      {R"({"pattern": "^[a-z ]{1,44}$"})", forty},
      {R"({"pattern": "^[a-z ]{20,90}$"})", forty},
      {R"({"pattern": "^[^x]{1,60}$", "maxLength": 50})", forty},
      {R"({"pattern": "^([a-z]{1,8} ){3,5}[a-z ]*$"})", forty},
      {R"({"type": "object", "additionalProperties": {"pattern": "^[a-z]{4,40}|[a-z]{1,80}$"}})",
       R"({"the": "wide", "open": "sea"})"},
      {"root ::= \"<\" ([a-z] | \" \"){1,300} \">\"", "<the rain in spain falls mainly on a plain>"},
      {"root ::= line{1,40}\nline ::= [^\\n]{0,45} \"\\n\"", "the rain\nin spain falls\n"},
      {R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}, "age": {"type": "integer", "maximum": 120}, "tags": {"type": "array"}}, "required": ["name"]})",
       R"({"name": "Zoë \n", "age": 98, "tags": [null, {"x": "y"}]})"},
      {R"({"anyOf": [{"const": "open sesame"}, {"type": "string", "minLength": 12}]})", R"("open sesame and more")"},
      {R"({"type": "array", "items": {"format": "date"}})", R"(["2024-02-29"])"},
      {R"({"pattern": "^\\w+( \\w+)*$"})", forty},
      {R"({"pattern": "^ *\\w{1,9}( +\\w{1,9}){0,60}$"})", "\"   the  rain in    spain\""},
      {R"({"pattern": "^([A-Z]?[a-z]+[,;]? ){2,40}[a-z]+$"})", "\"The rain, in Spain; falls mainly\""},
      {R"({"format": "email"})", R"("the.rain+in@spain-and.example.org")"},
      {R"({"format": "ipv6"})", R"("fe80:12::4:5cd:6")"},
  };
  for (const auto& [schema, answer] : cases) {
    SCOPED_TRACE(schema);
    const bool is_grammar = std::string_view(schema).starts_with("root");
    const auto constraint = is_grammar ? Constraint::from_grammar(schema) : Constraint::from_schema(schema);
    const TokenMask mask = constrain(constraint, tree);
    ASSERT_TRUE(constraint->accepts(answer)) << answer;
    const std::vector<TokenId> ids =
        tokenizer->encode(answer, {.parse_special = false, .add_bos = false, .add_eos = false});
    std::string so_far;
    for (size_t i = 0; i <= ids.size(); ++i) {
      const auto bits = mask(std::span(ids).first(i));
      if (i % test::unless_sanitized<size_t>(2, 5) == 0) {
        EXPECT_EQ(std::vector<uint64_t>(bits.begin(), bits.end()), plain_mask(*constraint, *tree, so_far)) << so_far;
      }
      if (i < ids.size()) so_far += tokenizer->piece(ids[i], false);
    }
    EXPECT_EQ(mask({})[0], plain_mask(*constraint, *tree, "")[0]);  // the next answer begins anew
  }
}

constraint::Run run_behind(const char* schema, const std::string& so_far) {
  const auto constraint = Constraint::from_schema(schema);
  constraint::Automaton automaton(constraint->state().network);
  constraint::Automaton::Place here = automaton.begin();
  for (const char c : so_far) here = automaton.step(here, static_cast<uint8_t>(c));
  return automaton.run(here);
}

TEST(Run, IsOfOneClassAsLongAsItsCharactersMayFollow) {
  const char* letters = R"({"pattern": "^[a-z ]{1,300}$"})";
  const constraint::Run run = run_behind(letters, "\"");
  EXPECT_EQ(run.n, constraint::kRunMax);
  for (const char c : {'a', 'z', ' '}) EXPECT_TRUE(run.on.has(static_cast<uint8_t>(c))) << c;
  EXPECT_EQ(run.on.size(), 27);
  for (const char c : {'A', '\n', '\\'}) EXPECT_TRUE(run.never.has(static_cast<uint8_t>(c))) << c;
  EXPECT_FALSE(run.never.has('"'));
  EXPECT_FALSE(run_behind(letters, "\"" + std::string(290, 'a')).never.has('"'));
  EXPECT_EQ(run_behind(letters, "\"" + std::string(290, 'a')).n, 10);
  EXPECT_TRUE(run_behind(letters, "\"" + std::string(290, 'a')).ends);
  EXPECT_EQ(run_behind(letters, "\"" + std::string(300, 'a')).n, 1);  // the quote

  const constraint::Run almost_all = run_behind(R"({"pattern": "^[^x]{1,300}$"})", "\"b");
  EXPECT_EQ(almost_all.n, constraint::kRunMax);
  for (const uint8_t lead : {0x20, 0x7F, 0xC2, 0xDF, 0xE0, 0xED, 0xF0, 0xF4}) EXPECT_TRUE(almost_all.on.has(lead));
  for (const uint8_t lead : {0x1F, int{'x'}, int{'"'}, int{'\\'}, 0x80, 0xC1, 0xF5})
    EXPECT_FALSE(almost_all.on.has(lead)) << int{lead};
  EXPECT_FALSE(run_behind(R"({"pattern": "^.{1,300}$"})", "\"").on.has(0xE2));  // has U+2028
  EXPECT_TRUE(run_behind(R"({"pattern": "^.{1,300}$"})", "\"").on.has(0xE3));

  // Letters that two states read: the end of a label, and what stands before it.
  const constraint::Run label = run_behind(R"({"pattern": "^[a-z]([a-z-]{0,20}[a-z])?$"})", "\"a");
  EXPECT_EQ(label.on.size(), 26);
  EXPECT_EQ(label.n, 21);
  EXPECT_TRUE(label.ends);
  EXPECT_FALSE(label.never.has('-'));
  EXPECT_TRUE(label.never.has('A'));

  // Others go on where this class ends: what more of its characters would be is not known.
  const constraint::Run then = run_behind(R"({"pattern": "^[a-z]{1,9}[a-m]{3}$"})", "\"");
  EXPECT_FALSE(then.is_exact() && then.on.has('z') && then.n > 9);
}

// Counted classes of every kind one after another; the answers are drawn from their own masks.
TEST(Mask, OfRandomFormsIsThatOfEveryTokenTriedAlone) {
  const std::string names[] = {"ggml-vocab-gpt-2.gguf", "ggml-vocab-llama-spm.gguf"};
  const char* classes[] = {"[a-z ]",          "[^x]",  "[A-Za-z0-9_]",    "[^,;]",      "[a-m]", "[ -~]",
                           "[\u0430-\u044f]", "[0-9]", "[\u4e00-\u9fff]", "[^\u00e9 ]", "[ab]",  "[e\u00e9-\u00ff]"};
  std::mt19937_64 random(20);
  const auto below = [&random](size_t n) { return static_cast<size_t>(random() % n); };
  const auto pattern = [&](bool is_grammar) {
    std::string text;
    for (size_t i = 0, n = 1 + below(3); i < n; ++i) {
      const std::string one = classes[below(std::size(classes))];
      const std::string other = below(4) == 0 ? std::string("|") + classes[below(std::size(classes))] : "";
      text += other.empty() ? one : "(" + one + other + ")";
      if (below(4) == 0) {  // words and blanks
        text += "(" + one + "{1,9}" + (is_grammar ? " \" \"){0,12} " : " ){0,12}");
        continue;
      }
      const size_t least = below(3) == 0 ? below(45) : below(3), most = least + 1 + below(60);
      const std::string counts[] = {"{" + std::to_string(least) + "," + std::to_string(most) + "}", "*", "+", ""};
      text += counts[below(8) < 5 ? 0 : 1 + below(3)] + (is_grammar ? " " : "");
    }
    return text;
  };
  size_t n_compared = 0;
  for (const std::string& name : names) {
    const std::string path = test::shared("vectors/tokenizers/" + name).string();
    ASSAY_REQUIRE_FILE(path);
    const auto tokenizer = Tokenizer::load(path);
    const auto tree = std::make_shared<const TokenTree>(*tokenizer, tokenizer->vocab_size());
    for (size_t form = 0; form < test::unless_slow<size_t>(test::rounds<size_t>(80, 14), 4); ++form) {
      const bool is_grammar = form % 3 == 2;
      const std::string text = is_grammar      ? "root ::= \"<\" " + pattern(true) + "\">\""
                               : form % 3 == 1 ? R"({"pattern": "^)" + pattern(false) + R"($", "maxLength": 70})"
                                               : R"({"pattern": "^)" + pattern(false) + R"($"})";
      SCOPED_TRACE(name + ": " + text);
      std::shared_ptr<const Constraint> constraint;
      try {
        constraint = is_grammar ? Constraint::from_grammar(text) : Constraint::from_schema(text);
      } catch (const Error&) {
        continue;  // no text is so long and so short
      }
      const TokenMask mask = constrain(constraint, tree);
      std::vector<TokenId> answer;
      std::string so_far;
      for (int step = 0; step < 30; ++step) {
        const auto words = mask(answer);
        const std::vector<uint64_t> bits(words.begin(), words.end());
        if (step < 2 || below(4) == 0) {
          ++n_compared;
          ASSERT_EQ(bits, plain_mask(*constraint, *tree, so_far)) << so_far;
        }
        std::vector<TokenId> may_come;
        for (size_t id = 0; id < tree->state().bytes.size(); ++id) {
          if ((bits[id / 64] >> (id % 64) & 1) != 0 && !tree->state().bytes[id].empty())
            may_come.push_back(static_cast<TokenId>(id));
        }
        if (may_come.empty()) break;
        answer.push_back(may_come[below(may_come.size())]);
        so_far += tree->state().bytes[static_cast<size_t>(answer.back())];
      }
    }
  }
  EXPECT_GT(n_compared, test::unless_slow<size_t>(100, 10));
}

}  // namespace
}  // namespace assay
