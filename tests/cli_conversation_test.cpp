// Conversations, full contexts and batches from outside, on a tiny model with a vocabulary of bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "programs/program.h"
#include "programs/terminal_program.h"
#include "support/content.h"
#include "support/shared_data.h"
#include "support/temp_folder.h"

namespace assay {
namespace {

namespace json = boost::json;
using test::content;
using test::ProgramOptions;
using test::ProgramResult;
using test::TerminalProgram;
using testing::HasSubstr;

constexpr const char* kTemplate = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}\n{% endfor %}a:";

class Conversation : public ::testing::Test {
 protected:
  void SetUp() override { ASSAY_REQUIRE_FILE(model_); }
  ProgramResult assay(const std::vector<std::string>& arguments, const std::string& input = {}) {
    ProgramOptions options;
    options.input = input;
    options.environment = home();
    return test::run_program(ASSAY_PROGRAM, arguments, options);
  }
  std::vector<std::string> chat(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = {"chat",   model_, "--chat-template", kTemplate, "-n", "6",
                                    "--temp", "0",    "--ignore-eos",    "-c",      "128"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::map<std::string, std::string> home() const {
    return {{"XDG_STATE_HOME", (folder_ / "state").string()}, {"HOME", folder_.path().string()}};
  }

  const std::string model_ = test::shared("goldens/tiny/llama.gguf").string();
  test::TempFolder folder_;
};

TEST_F(Conversation, AFullContextIsNoDeadEnd) {
  std::string script;
  for (int i = 0; i < 10; ++i) script += "message number " + std::to_string(i) + "\n";
  const ProgramResult r = assay(chat(), script + "/tokens\n");
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_THAT(r.err, HasSubstr("[the context of 128 tokens is full: the "));
  EXPECT_THAT(r.err, HasSubstr(" oldest messages, "));
  EXPECT_THAT(r.out, HasSubstr("20 messages, the "));
  const ProgramResult stopped = assay(chat({"--no-context-shift"}), script);
  EXPECT_EQ(stopped.exit_code, 1);
  EXPECT_THAT(stopped.err, HasSubstr("the context holds 128"));
  EXPECT_THAT(stopped.err, HasSubstr("/undo or /clear makes room"));
}

TEST_F(Conversation, CommandsUndoShowAndRefuse) {
  const std::string file = (folder_ / "c.json").string();
  const ProgramResult r = assay(
      chat(),
      "one\ntwo\n/undo\n/save ~/c.json\n/undo\n/undo\n/tokens ab\n/model\n/set temp 0.5\n/set temp default\n/set\n"
      "/set nonsense 1\n/load /nonexistent/x\n/save /nonexistent/x\n/regen now\n/help\n");
  EXPECT_EQ(r.exit_code, 1);
  EXPECT_THAT(r.err, HasSubstr("[2 messages are left]"));
  EXPECT_THAT(r.err, HasSubstr("there is nothing to undo"));
  EXPECT_THAT(r.err, HasSubstr("[0 messages are left]"));
  EXPECT_THAT(r.err, HasSubstr(model_));
  EXPECT_THAT(r.err, HasSubstr("[as at the start]\n[nothing set"));
  EXPECT_THAT(r.err, HasSubstr("/set nonsense: there is no such setting"));
  EXPECT_THAT(r.err, HasSubstr("/nonexistent/x: No such file or directory"));
  EXPECT_THAT(r.err, HasSubstr("/regen takes nothing after it, found 'now'"));
  EXPECT_THAT(r.out, HasSubstr("/undo"));
  EXPECT_THAT(r.out, HasSubstr("  a\n"));
}

TEST_F(Conversation, LinesMayEndWithCrAndLf) {
  const std::string file = (folder_ / "c.json").string();
  const std::string lines = "one\n\"\"\"\ntwo\nthree\n\"\"\"\n/undo\n/save " + file + "\n/exit\nfour\n";
  std::string with_cr;
  for (const char c : lines) with_cr += c == '\n' ? std::string("\r\n") : std::string(1, c);
  const ProgramResult plain = assay(chat(), lines);
  const std::string saved = content(file);
  std::filesystem::remove(file);
  const ProgramResult r = assay(chat(), with_cr);
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_EQ(r.out, plain.out);
  EXPECT_EQ(content(file), saved);
  EXPECT_THAT(saved, HasSubstr("\"one\""));
}

TEST_F(Conversation, NoSavedConversationTakesTheModelsPlace) {
  const std::string model = (folder_ / "model.gguf").string(), link = (folder_ / "link").string();
  std::filesystem::copy_file(model_, model);
  std::filesystem::create_symlink(model, link);
  const std::string before = content(model);
  const ProgramResult r =
      assay({"chat", model, "--chat-template", kTemplate, "-n", "2", "-c", "128"}, "one\n/save " + link + "\n");
  EXPECT_EQ(r.exit_code, 1);
  EXPECT_THAT(r.err, HasSubstr("another name is needed"));
  EXPECT_EQ(content(model), before);
}

TEST_F(Conversation, AFirstMessageComesAsAFlag) {
  const std::string file = (folder_ / "c.json").string();
  const auto messages = [&](std::vector<std::string> more, const std::string& input) {
    std::filesystem::remove(file);
    const ProgramResult r = assay(chat(std::move(more)), input);
    EXPECT_EQ(r.exit_code, 0) << r.err;
    std::vector<std::string> contents;
    if (!std::filesystem::exists(file)) return contents;
    const json::value saved = json::parse(content(file));
    for (const json::value& m : saved.at("messages").as_array())
      if (m.at("role") == "user") contents.emplace_back(m.at("content").as_string());
    return contents;
  };
  std::ofstream(folder_ / "first.txt") << "from a file\n";
  EXPECT_THAT(messages({"-p", "one"}, "two\n/save " + file + "\n"), testing::ElementsAre("one", "two"));
  EXPECT_THAT(messages({"-f", (folder_ / "first.txt").string()}, "/save " + file + "\n"),
              testing::ElementsAre("from a file"));
  EXPECT_THAT(messages({"-p", "one", "-st"}, "two\n/save " + file + "\n"), testing::IsEmpty());
  EXPECT_EQ(assay(chat({"-p", "one", "-st"})).out, assay(chat(), "one\n").out);
  EXPECT_EQ(assay(chat({"-st"}), "one\ntwo\n").out, assay(chat(), "one\n").out);
  EXPECT_EQ(assay(chat({"-p", ""})).exit_code, 2);
  EXPECT_EQ(assay(chat({"-p", "x", "-f", "y"})).exit_code, 2);
  EXPECT_EQ(assay(chat({"-f", "-"})).exit_code, 2);
}

TEST_F(Conversation, StatsHaveSeedAndCounts) {
  const ProgramResult r = assay(chat({"-s", "77"}), "/stats\none\n/stats\n");
  EXPECT_THAT(r.out, HasSubstr("answer 0 tokens, none yet\n"));
  EXPECT_THAT(r.out, HasSubstr("answer 6 tokens, "));
  EXPECT_THAT(r.out, HasSubstr("ended by length\ncontext "));
  EXPECT_THAT(r.out, HasSubstr(" of 128 tokens\nseed 77\n"));
  EXPECT_THAT(assay(chat({"-n", "1"}), "one\n/stats\n").out, HasSubstr("answer 1 token, ended by length\n"));
}

TEST_F(Conversation, SettingsAreRefusedByTheirNames) {
  const ProgramResult r = assay(
      chat(),
      "/set temp nan\n/set top-k many\n/set -s 1.5\n/set seed 1.5\n/set logit-bias x\n/set ctx-size 4\n/set temp\n");
  EXPECT_THAT(r.err, HasSubstr("/set temp nan: needs a number\n"));
  EXPECT_THAT(r.err, HasSubstr("/set top-k many: needs a whole number\n"));
  EXPECT_THAT(r.err, HasSubstr("/set seed 1.5: needs -1, or"));
  EXPECT_THAT(r.err, HasSubstr("/set logit-bias x: needs ID+BIAS"));
  EXPECT_THAT(r.err, HasSubstr("/set ctx-size: there is no such setting"));
  EXPECT_THAT(r.err, HasSubstr("/set needs a name and a value"));
  EXPECT_EQ(r.err.find("--"), std::string::npos) << r.err;
}

TEST_F(Conversation, HomeStandsForTilde) {
  ProgramOptions options;
  options.input = "one\n/save ~/c.json\n/clear\n/load ~/c.json\n/regen\n";
  options.environment = home();
  const ProgramResult r = test::run_program(ASSAY_PROGRAM, chat(), options);
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_EQ(json::parse(content(folder_ / "c.json")).at("messages").as_array().size(), 2u);
  std::ofstream(folder_ / "bad.json") << "no json";
  options.input = "/load ~/bad.json\n";
  const ProgramResult bad = test::run_program(ASSAY_PROGRAM, chat(), options);
  EXPECT_THAT(bad.err, HasSubstr("bad.json: no saved conversation"));
  EXPECT_EQ(bad.err.find("boost"), std::string::npos);
}

TEST_F(Conversation, AnotherModelGoesOn) {
  const std::string other = (folder_ / "other.gguf").string();
  std::filesystem::copy_file(model_, other);
  const ProgramResult r = assay(chat(), "one\n/model " + other + "\n/regen\n/model /nonexistent.gguf\n/save " +
                                            (folder_ / "c.json").string() + "\n");
  EXPECT_THAT(r.err, HasSubstr(other));
  EXPECT_THAT(r.err, HasSubstr("/nonexistent.gguf"));
  EXPECT_EQ(json::parse(content(folder_ / "c.json")).at("messages").as_array().size(), 2u);
}

TEST_F(Conversation, SigtermAtThePromptIs143) {
  TerminalProgram program(ASSAY_PROGRAM, chat(), home());
  ASSERT_TRUE(program.shows("> ")) << program.output();
  program.send(SIGTERM);
  EXPECT_EQ(program.exit_code(), 143) << program.output();
}

TEST_F(Conversation, KeysOfATerminal) {
  TerminalProgram program(ASSAY_PROGRAM, chat(), home());
  ASSERT_TRUE(program.shows("> "));
  program.type("\"\"\"\r");
  ASSERT_TRUE(program.shows(". "));
  program.type("half a message\x03");  // Ctrl-C leaves the block
  ASSERT_TRUE(program.shows("> ")) << program.output();
  program.type("\x1b[200~two\rlines\x1b[201~\r");  // what is pasted is one message
  ASSERT_TRUE(program.shows("> ")) << program.output();
  program.type("/sav\t" + (folder_ / "c").string() + "\r");  // Tab
  ASSERT_TRUE(program.shows("[2 messages]")) << program.output();
  const json::value saved = json::parse(content(folder_ / "c"));
  EXPECT_EQ(saved.at("messages").at(0).at("content"), "two\nlines");
  ASSERT_TRUE(program.shows("> "));
  program.type("/exit\r");
  EXPECT_EQ(program.exit_code(), 0) << program.output();
  // The lines are kept, for their owner alone.
  const auto history = folder_ / "state/assay/history";
  struct stat facts {};
  ASSERT_EQ(::stat(history.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600u);
  EXPECT_THAT(content(history), HasSubstr("two\\nlines\n/save "));
  TerminalProgram again(ASSAY_PROGRAM, chat(), home());
  ASSERT_TRUE(again.shows("> "));
  again.type("\x1b[A\x1b[A");  // up, past /exit, to /save
  EXPECT_TRUE(again.shows("/save ")) << again.output();
  again.type("\x03\x04");
  EXPECT_EQ(again.exit_code(), 0);
}

TEST_F(Conversation, CtrlZSuspends) {
  std::vector<std::string> shell = {"-c", "set -m; \"$@\"; echo SUSPENDED; fg", "shell", ASSAY_PROGRAM};  // with jobs
  for (const std::string& argument : chat()) shell.push_back(argument);
  TerminalProgram program("/bin/bash", shell, home());
  ASSERT_TRUE(program.shows("> "));
  program.type("/tok");
  ASSERT_TRUE(program.shows("/tok")) << program.output();
  program.type("\x1a");
  ASSERT_TRUE(program.shows("SUSPENDED")) << program.output();
  ASSERT_TRUE(program.shows("/tok")) << program.output();  // it reads keys again and shows what was typed
  program.type("ens ab\r");
  EXPECT_TRUE(program.shows("  a\r\n")) << program.output();
  ASSERT_TRUE(program.shows("> "));
  program.type("/exit\r");
  EXPECT_EQ(program.exit_code(), 0) << program.output();
}

TEST_F(Conversation, WithoutHistoryNothingIsWritten) {
  TerminalProgram program(ASSAY_PROGRAM, chat({"--no-history"}), home());
  ASSERT_TRUE(program.shows("> "));
  program.type("/help\r");
  ASSERT_TRUE(program.shows("/undo"));
  ASSERT_TRUE(program.shows("2004h> "));  // it reads keys again
  program.type("\x04");
  EXPECT_EQ(program.exit_code(), 0);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "state"));
}

TEST_F(Conversation, RunStopsOrShifts) {
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"run", model_, "-p", "The sea", "--no-chat-template", "--ignore-eos", "-s", "1", "-n",
                               "60", "-c", "32", "--json"});
    return assay(more);
  };
  const ProgramResult full = run({});
  EXPECT_EQ(full.exit_code, 0);
  EXPECT_EQ(json::parse(full.out).at("finish_reason"), "length");
  EXPECT_LT(json::parse(full.out).at("ids").as_array().size(), 60u);
  EXPECT_THAT(full.err, HasSubstr("--context-shift"));
  const ProgramResult shifted = run({"--context-shift", "--keep", "4"});
  const json::value v = json::parse(shifted.out);
  EXPECT_EQ(v.at("ids").as_array().size(), 60u);
  EXPECT_GT(v.at("tokens_dropped").as_int64(), 0);
  EXPECT_THAT(shifted.err, HasSubstr("was full"));
  EXPECT_EQ(json::parse(run({"--context-shift", "--keep", "4", "-t", "1", "-ub", "3"}).out).at("ids"), v.at("ids"));
  EXPECT_NE(json::parse(run({"--context-shift"}).out).at("ids"), v.at("ids"));
  EXPECT_EQ(run({"--keep", "4"}).exit_code, 2);
  EXPECT_EQ(run({"--context-shift", "--keep", "-2"}).exit_code, 2);
}

TEST_F(Conversation, WhatAModelThinksIsApart) {
  const std::string thinks = std::string(kTemplate) + "{% if enable_thinking is not defined %}<think>\n{% endif %}";
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.begin(),
                {"run", model_, "-p", "Hi", "--chat-template", thinks, "--ignore-eos", "--temp", "0", "-n", "30"});
    return assay(more);
  };
  const ProgramResult parted = run({"--reasoning-budget", "5", "--json"});
  ASSERT_EQ(parted.exit_code, 0) << parted.err;
  const json::value v = json::parse(parted.out);
  EXPECT_TRUE(v.as_object().contains("reasoning_content"));
  EXPECT_EQ(v.at("text").as_string().find("</think>"), std::string::npos);
  const ProgramResult text = run({"--reasoning-budget", "5"});
  EXPECT_EQ(text.out, std::string(v.at("text").as_string()) + "\n");
  EXPECT_THAT(text.err, HasSubstr(std::string(v.at("reasoning_content").as_string())));
  const json::value whole = json::parse(run({"--reasoning-format", "none", "--json"}).out);
  EXPECT_FALSE(whole.as_object().contains("reasoning_content"));
  EXPECT_FALSE(whole.at("text").as_string().empty());
  const json::value off = json::parse(run({"--reasoning-budget", "0", "--json"}).out);
  EXPECT_FALSE(
      off.as_object().contains("reasoning_content"));  // enable_thinking is false, so the template opens nothing
  EXPECT_EQ(json::parse(run({"--chat-template-kwargs", "{\"enable_thinking\": false}", "--json"}).out)
                .at("usage")
                .at("prompt_tokens"),
            off.at("usage").at("prompt_tokens"));
  EXPECT_EQ(run({"--chat-template-kwargs", "[1]"}).exit_code, 2);
  EXPECT_EQ(run({"--reasoning-format", "loud"}).exit_code, 2);
}

TEST_F(Conversation, BatchAnswersAsRunDoesAndResumes) {
  std::string input;
  for (int i = 0; i < 6; ++i)
    input += "{\"id\": " + std::to_string(i) + ", \"prompt\": \"Question " + std::to_string(i) +
             "\", \"max_tokens\": " + std::to_string(5 + i) + "}\n";
  input += "{\"id\": 6}\n";
  std::ofstream(folder_ / "in.jsonl") << input;
  const std::string in = (folder_ / "in.jsonl").string(), out = (folder_ / "out.jsonl").string();
  const std::vector<std::string> call = {
      "batch", model_, "--chat-template", kTemplate, "-s", "4", "-c", "128", "-i", in, "-o", out};
  const ProgramResult r = assay(call);
  EXPECT_EQ(r.exit_code, 1);  // the last line
  EXPECT_EQ(r.out, "");
  EXPECT_THAT(r.err, HasSubstr("7 lines, 1 of them wrong"));
  const std::string answers = content(out);
  std::istringstream lines(answers);
  std::string line;
  for (int i = 0; i < 6; ++i) {
    ASSERT_TRUE(std::getline(lines, line));
    const json::value v = json::parse(line);
    const json::value alone =
        json::parse(assay({"run", model_, "--chat-template", kTemplate, "-s", "4", "-c", "128", "-p",
                           "Question " + std::to_string(i), "-n", std::to_string(5 + i), "--json"})
                        .out);
    EXPECT_EQ(v.at("id"), i);
    for (const char* key : {"text", "ids", "finish_reason", "usage", "seed"})
      EXPECT_EQ(v.at(key), alone.at(key)) << key;
  }
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_THAT(line, HasSubstr("{\"id\":6,\"error\":\"line 7: needs one of prompt and messages\"}"));
  // Cut in the middle of a line, it goes on.
  std::filesystem::resize_file(out, answers.size() / 2);
  std::vector<std::string> resume = call;
  resume.push_back("--resume");
  const ProgramResult rest = assay(resume);
  EXPECT_EQ(rest.exit_code, 1);
  EXPECT_EQ(content(out), answers);
  EXPECT_THAT(rest.err, HasSubstr("answered before"));
  const ProgramResult piped =
      assay({"batch", model_, "--chat-template", kTemplate, "-s", "4", "-c", "128", "-np", "2"}, input);
  EXPECT_EQ(piped.out, answers);
  EXPECT_EQ(assay({"batch", model_, "--resume"}).exit_code, 2);
  EXPECT_EQ(assay({"batch", model_, "-o", (folder_ / "no/out").string(), "-i", in}).exit_code, 1);
  EXPECT_EQ(assay({"batch", model_, "-i", (folder_ / "none").string()}).exit_code, 1);
  // A call that cannot be served leaves what was there.
  EXPECT_EQ(assay({"batch", model_, "-sys", "x", "-i", in, "-o", out}).exit_code, 2);
  EXPECT_EQ(content(out), answers);
  std::ofstream(folder_ / "other.txt") << "a letter\n";
  const ProgramResult other = assay(
      {"batch", model_, "--chat-template", kTemplate, "-i", in, "-o", (folder_ / "other.txt").string(), "--resume"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_EQ(content(folder_ / "other.txt"), "a letter\n");
}

TEST_F(Conversation, AnswersAreHeldToAGrammarOrASchema) {
  const std::vector<std::string> once = {"run",     model_,   "-p",      "x",       "-n",
                                         "40",      "--temp", "2",       "--top-k", "0",
                                         "--top-p", "1",      "--min-p", "0",       "--no-chat-template"};
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.begin(), once.begin(), once.end());
    return assay(more);
  };
  for (const char* seed : {"1", "2", "3"}) {
    EXPECT_THAT(run({"--grammar", "root ::= \"yes\" | \"no\"", "-s", seed}).out, testing::AnyOf("yes\n", "no\n"));
    const ProgramResult r = run(
        {"-j",
         R"({"properties": {"a": {"type": "integer", "minimum": 1, "maximum": 9}, "b": {"type": "boolean"}}, "required": ["a", "b"]})",
         "-s", seed});
    EXPECT_EQ(r.exit_code, 0) << r.err;
    const json::object answer = json::parse(r.out).as_object();
    EXPECT_THAT(answer.at("a").as_int64(), testing::AllOf(testing::Ge(1), testing::Le(9)));
    EXPECT_TRUE(answer.at("b").is_bool());
    EXPECT_EQ(run({"-j", R"({"type": "string", "maxLength": 5})", "-s", seed, "-t", "1"}).out,
              run({"-j", R"({"type": "string", "maxLength": 5})", "-s", seed, "-t", "2"}).out);
  }
  std::ofstream(folder_ / "s.json") << R"({"enum": ["one", "two"]})";
  std::ofstream(folder_ / "g.gbnf") << "root ::= [0-9]{3}";
  EXPECT_THAT(run({"-jf", (folder_ / "s.json").string()}).out, testing::AnyOf("\"one\"\n", "\"two\"\n"));
  for (const auto& [flag, reads, name] :
       {std::tuple("-j", "-jf", "s.json"), std::tuple("--grammar", "--grammar-file", "g.gbnf")}) {
    const ProgramResult mistaken = run({flag, (folder_ / name).string()});
    EXPECT_EQ(mistaken.exit_code, 2);
    EXPECT_THAT(mistaken.err, testing::AllOf(HasSubstr("is the name of a file"), HasSubstr(std::string(reads) + " ")))
        << flag;
  }
  EXPECT_THAT(run({"--grammar-file", (folder_ / "g.gbnf").string()}).out, testing::MatchesRegex("[0-9][0-9][0-9]\n"));
  const ProgramResult talk =
      assay({"chat", model_, "--chat-template", kTemplate, "-c", "128", "--grammar", "root ::= \"ja\""},
            "x\n/set temp 0.3\ny\n");
  std::istringstream lines(talk.out);
  int n_answers = 0;
  for (std::string line; std::getline(lines, line);) n_answers += line == "ja" ? 1 : 0;
  EXPECT_EQ(n_answers, 2) << talk.out << talk.err;

  EXPECT_THAT(run({"-j", R"({"not": {}})"}).err, HasSubstr("\"/not\""));
  EXPECT_THAT(run({"--grammar", "root ::= x"}).err, HasSubstr("--grammar: the grammar is refused: line 1: the rule x"));
  EXPECT_EQ(run({"-j", "{}", "--grammar", "root ::= \"a\""}).exit_code, 2);
}

TEST_F(Conversation, CheckSchemaNamesWhatIsRefused) {
  const ProgramResult good = assay({"check-schema", "-"}, R"({"type": "object"})");
  EXPECT_EQ(good.exit_code, 0) << good.err;
  const ProgramResult bad =
      assay({"check-schema", "-", "--json"}, R"({"properties": {"a": {"uniqueItems": true}, "b": {"if": {}}}})");
  EXPECT_EQ(bad.exit_code, 1);
  const json::array problems = json::parse(bad.out).at("problems").as_array();
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_EQ(problems[0].at("pointer"), "/properties/a/uniqueItems");
  EXPECT_EQ(problems[1].at("pointer"), "/properties/b/if");
}

}  // namespace
}  // namespace assay
