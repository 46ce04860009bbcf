// Standard streams from outside: closed, full, a terminal; what files put into them; files that are cut.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "programs/assay_program.h"
#include "programs/terminal.h"
#include "support/content.h"
#include "support/talking_llama.h"
#include "support/temp_folder.h"

namespace assay {
namespace {

namespace json = boost::json;
using test::assay;
using test::content;
using test::ProgramOptions;
using test::ProgramResult;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// With the shell's redirections.
ProgramResult redirected(const std::string& redirections, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"-c", "exec \"$0\" \"$@\" " + redirections, ASSAY_PROGRAM});
  return test::run_program("/bin/sh", arguments);
}

bool has_controls(const std::string& text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F) return true;
    if (byte == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0) return true;
  }
  return false;
}

class CliStreams : public ::testing::Test {
 protected:
  CliStreams() { test::talking_llama().write(path_); }
  test::TempFolder folder_;
  std::string path_ = (folder_ / "talker.gguf").string();
};

TEST_F(CliStreams, AStandardErrorThatFailsChangesNoExitCode) {
  for (const char* err : {"2>&-", "2>/dev/full"}) {
    EXPECT_EQ(redirected(err, {"--help"}).exit_code, 0);
    EXPECT_EQ(redirected(err, {}).exit_code, 2);
    EXPECT_EQ(redirected(err, {"run", "none.gguf", "-p", "x"}).exit_code, 1);
    EXPECT_EQ(redirected(err, {"run", path_, "--nonsense"}).exit_code, 2);
    EXPECT_EQ(redirected(err, {"run", path_, "-p", "x", "-n", "1", "--stats", "-v"}).exit_code, 0);
    for (const std::string& command : test::commands()) {
      EXPECT_EQ(redirected(err, {command, "--nonsense"}).exit_code, 2) << command;
      EXPECT_EQ(redirected(err, {command, "--help"}).exit_code, 0) << command;
    }
  }
  EXPECT_EQ(redirected(">&- 2>&-", {"--help"}).exit_code, 1);
  EXPECT_EQ(redirected(">&-", {"--version"}).exit_code, 1);
  EXPECT_THAT(redirected(">/dev/full", {"--version"}).err, HasSubstr("standard output: No space left"));
}

TEST_F(CliStreams, NoFileTakesAClosedStreamsPlace) {
  const std::string html = (folder_ / "r.html").string();
  const std::vector<std::string> call = {"verify", path_, "--quick", "-t", "1", "-c", "16", "--html", html};
  EXPECT_EQ(redirected("2>&-", call).exit_code, assay(call).exit_code);
  EXPECT_THAT(content(html), testing::StartsWith("<!"));
}

TEST_F(CliStreams, ControlCharactersOfAFileAreShownNotObeyed) {
  const std::string evil = (folder_ / "evil.gguf").string();
  test::TalkingLlama spec;
  spec.name = "evil\x1b[31m\x7f\u009b2J\nname";
  spec.words = {"\x1b]0;owned\x07", "\u009b31m"};
  spec.chat_template = "{% for m in messages %}{{ m.content }}\x1b[2J{% endfor %}";
  test::GgufWriter file = test::talking_llama(spec);
  file.set("evil\x1b[1mkey", "value\x1b[1m\u009b");
  file.write(evil);
  std::ofstream(folder_ / "m.json") << R"([{"role": "user", "content": "x"}])";
  std::ofstream(folder_ / "evil.jsonl") << "{\"prompt\": \"\\u001b[31m\"}\n{\"\\u001b[31m\": 1}\n\x1b[31m\n";
  const std::vector<std::vector<std::string>> calls = {
      {"inspect", evil},
      {"inspect", evil, "--json"},
      {"inspect", evil, "--lint"},
      {"logits", evil, "--ids", "1,259,260", "--top", "261"},
      {"logits", evil, "--ids", "1,2", "--json"},
      {"bench", evil, "-p", "2", "-n", "1", "-r", "1", "--no-limits"},
      {"bench", evil, "-p", "2", "-n", "0", "-r", "1", "--no-limits", "-o", "json"},
      {"tokenize", evil, "-p", "x\x1b]0;owned\x07", "--json"},
      {"bench", evil, "-p", "2", "-n", "0", "-r", "1", "--no-limits", "-o", "csv"},
      {"perplexity", evil, "-p", "the sea is vast, and it never ends", "-c", "8", "--per-token"},
      {"run", evil, "-p", "x", "-n", "1", "--json", "-v"},
      {"run", evil, "-p", "x", "-n", "4", "--logprobs", "20", "--override-kv", "evil\x1b[1mkey=str:\x1b[31m"},
      {"logits", evil, "--ids", "1,259,260", "--all", "--top", "20"},
      {"trace", evil, "--ids", "1,259"},
      {"show", evil},
      {"show", evil, "--json"},
      {"diff", evil, path_},
      {"edit", evil, "-o", evil + ".out", "--dry-run", "--set", "evil\x1b[1mkey=other\x1b[0m"},
      {"embed", evil, "-p", "\x1b[31m", "--json"},
      {"batch", evil, "-i", (folder_ / "evil.jsonl").string(), "-n", "2", "--no-chat-template"},
      {"verify", evil, "--quick", "-t", "1"},
      {"verify", evil, "--quick", "-t", "1", "--json"},
  };
  for (const auto& call : calls) {
    const ProgramResult r = assay(call);
    EXPECT_FALSE(has_controls(r.out)) << call[0] << ' ' << call.back() << '\n' << r.out;
    EXPECT_FALSE(has_controls(r.err)) << call[0] << ' ' << call.back() << '\n' << r.err;
  }
  EXPECT_THAT(assay({"inspect", evil}).out, HasSubstr("evil\\x1b[31m"));
  // A template's text is as it is in a pipe, and shown on a terminal.
  const std::vector<std::string> rendering = {"template", evil, "--messages", (folder_ / "m.json").string()};
  EXPECT_THAT(assay(rendering).out, HasSubstr("x\x1b[2J"));
  const test::TerminalResult shown = test::run_on_terminal(ASSAY_PROGRAM, rendering);
  EXPECT_EQ(shown.exit_code, 0);
  EXPECT_THAT(shown.shown, AllOf(HasSubstr("x\\x1b[2J"), Not(HasSubstr("\x1b"))));
}

TEST_F(CliStreams, ADumbTerminalGetsNoEscapes) {
  const std::vector<std::string> call = {"verify", path_, "--quick", "-t", "1"};
  EXPECT_THAT(test::run_on_terminal(ASSAY_PROGRAM, call, {}, {{"TERM", "xterm"}, {"NO_COLOR", ""}}).shown,
              HasSubstr("\x1b["));
  EXPECT_THAT(test::run_on_terminal(ASSAY_PROGRAM, call, {}, {{"TERM", "dumb"}}).shown, Not(HasSubstr("\x1b")));
}

TEST_F(CliStreams, DashIsAStream) {
  const ProgramResult html = assay({"verify", path_, "--quick", "-t", "1", "--html", "-"});
  EXPECT_THAT(html.out, AllOf(testing::StartsWith("<!"), HasSubstr("</html>"), Not(HasSubstr("\nok    File"))));
  const std::string dump = (folder_ / "d").string();
  ASSERT_EQ(assay({"trace", path_, "--ids", "1,2", "--dump", dump}).exit_code, 0);
  EXPECT_EQ(assay({"trace", path_, "--ids", "1,2", "--dump", "-"}).out, content(dump));
}

TEST_F(CliStreams, APageSaysWhenWhereAndOfWhichBytes) {
  const std::string page = assay({"verify", path_, "--quick", "-t", "1", "--html", "-"}).out;
  const std::string digest =
      std::string(json::parse(assay({"show", path_, "--json"}).out).at("sha256").at(0).as_string());
  EXPECT_THAT(page, AllOf(HasSubstr(digest), HasSubstr("--quick"), HasSubstr(" UTC<"), HasSubstr("assay 0."),
                          HasSubstr("processor")));
  EXPECT_THAT(page, HasSubstr("<code>&quot;"));  // tokens by their text
  EXPECT_THAT(assay({"verify", path_, "-t", "1", "--html", "-"}).out, Not(HasSubstr("--quick")));
}

TEST_F(CliStreams, PathsToWriteAreOpenedBeforeTheWork) {
  const ProgramResult r = assay({"verify", path_, "--quick", "-t", "1", "--html", "/nonexistent/folder/r.html"});
  EXPECT_EQ(r.exit_code, 1);
  EXPECT_EQ(r.out, "");
  EXPECT_THAT(r.err, HasSubstr("/nonexistent/folder/r.html"));
  const ProgramResult trace = assay({"trace", path_, "--ids", "1,2", "--dump", ""});
  EXPECT_EQ(trace.exit_code, 2);
  // A file that was there stays until there is something to put into it.
  const std::string html = (folder_ / "old.html").string();
  std::ofstream(html) << "old";
  EXPECT_EQ(assay({"verify", (folder_ / "none.gguf").string(), "--html", html}).exit_code, 1);
  EXPECT_EQ(content(html), "old");
}

TEST_F(CliStreams, NothingIsSilentlyIgnored) {
  EXPECT_THAT(assay({"verify", path_, "--quick", "-t", "1", "-c", "16"}).err, HasSubstr("-c 16 has no effect"));
  EXPECT_EQ(assay({"verify", path_, "--attention", "0"}).exit_code, 2);
  EXPECT_EQ(assay({"verify", path_, "--attention", "99", "--json"}).exit_code, 2);
  for (const std::vector<std::string>& flag :
       {std::vector<std::string>{"-dev", "0"}, {"-sm", "layer"}, {"-ts", "3,1"}}) {
    const ProgramResult r = assay({"logits", path_, "--ids", "1,2", "--backend", "cpu", flag[0], flag[1]});
    EXPECT_EQ(r.exit_code, 0) << r.err;
    EXPECT_THAT(r.err, HasSubstr("without effect: --backend cpu"));
  }
  EXPECT_THAT(assay({"inspect", path_, "-t", "1000"}).err, HasSubstr("-t 1000 is more than the "));
  EXPECT_THAT(assay({"run", path_, "-p", "x", "-n", "1"}).err,
              HasSubstr("no chat template: the model takes the text raw"));
  EXPECT_EQ(assay({"run", path_, "-p", "x", "-n", "1", "--no-chat-template"}).err, "");
  std::ofstream(folder_ / "t.jinja") << "{{ messages[0].content }}";
  std::ofstream(folder_ / "list.json") << R"([{"role": "user", "content": "x"}])";
  const std::string list = (folder_ / "list.json").string();
  EXPECT_THAT(assay({"template", (folder_ / "t.jinja").string(), "--messages", list, "--tools", list}).err,
              HasSubstr("--tools has no effect"));
  EXPECT_EQ(assay({"template", list, "--messages", list}).exit_code, 3);
  std::ofstream(folder_ / "t.jinja") << "{{ 'x' + messages[1].content }}";
  std::ofstream(folder_ / "parts.json")
      << R"([{"role": "user", "content": "x"}, {"role": "user", "content": [{"type": "image_url"}]}])";
  const ProgramResult parts =
      assay({"template", (folder_ / "t.jinja").string(), "--messages", (folder_ / "parts.json").string()});
  EXPECT_EQ(parts.exit_code, 2);
  EXPECT_THAT(parts.err,
              HasSubstr("; messages[1].content is a list of parts, and this template may take a string alone\n"));
}

TEST_F(CliStreams, AnEmptySystemMessageIsOne) {
  test::TalkingLlama spec;
  spec.chat_template =
      "{% if messages[0].role != 'system' %}the sea the sea{% endif %}{% for m in messages %}[{{ m.content }}]{% "
      "endfor %}";
  const std::string path = (folder_ / "system.gguf").string();
  test::talking_llama(spec).write(path);
  const auto n_prompt = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"run", path, "-p", "x", "-n", "1", "--json"});
    return json::parse(assay(more).out).at("usage").at("prompt_tokens").as_int64();
  };
  EXPECT_LT(n_prompt({"-sys", ""}), n_prompt({}));
}

TEST_F(CliStreams, BeyondTheTrainedContextIsSaid) {
  const std::string message = "a context of 1024 positions is beyond the 512 that the model was trained with";
  EXPECT_THAT(assay({"run", path_, "-p", "x", "-n", "1", "-c", "1024"}).err, HasSubstr(message));
  EXPECT_THAT(assay({"inspect", path_, "-c", "1024"}).out, HasSubstr("it fits, but " + message));
  EXPECT_THAT(std::string(json::parse(assay({"inspect", path_, "-c", "1024", "--json"}).out)
                              .at("memory")
                              .at("beyond_training")
                              .as_string()),
              HasSubstr(message));
  EXPECT_THAT(assay({"run", path_, "-p", "x", "-n", "1", "-c", "512"}).err, Not(HasSubstr("beyond")));
  const std::string text(3000, 'a');
  EXPECT_THAT(assay({"perplexity", path_, "-p", text, "-c", "1024", "--chunks", "1"}).err, HasSubstr(message));
  test::GgufWriter yarn = test::talking_llama();
  yarn.set("llama.rope.scaling.type", "yarn").set("llama.rope.scaling.factor", 4.0f);
  yarn.set("llama.rope.scaling.original_context_length", uint32_t{512});
  yarn.write(path_);
  EXPECT_THAT(
      assay({"run", path_, "-p", "x", "-n", "1", "-c", "1024"}).err,
      AllOf(HasSubstr(message), HasSubstr("llama.rope.scaling.original_context_length 512) stretch it to 2048")));
}

#if !defined(ASSAY_SANITIZED)  // whose shadow needs more than any limit
TEST_F(CliStreams, TooLittleMemoryNamesTheLimitAndWhatFits) {
  const ProgramResult r =
      test::run_program("/bin/sh", {"-c", "ulimit -v 1000000; exec \"$0\" \"$@\"", ASSAY_PROGRAM, "run", path_, "-p",
                                    "x", "-n", "1", "-t", "1", "-c", "1048576"});
  EXPECT_EQ(r.exit_code, 4) << r.err;
  EXPECT_THAT(r.err, AllOf(HasSubstr("1024000000 (ulimit -v)"), testing::ContainsRegex("; -c [0-9]+ fits")));
}
#endif

TEST_F(CliStreams, AFileCutInsideItsMetadataSaysThatItMayBe) {
  for (const uintmax_t bytes : {20u, 100u, 1'000u, 5'000u}) {  // the header, a key, a value, the vocabulary
    std::filesystem::resize_file(path_, bytes);
    for (const std::string command : {"tokenize", "inspect"}) {
      const ProgramResult r = command == "inspect" ? assay({command, path_}) : assay({command, path_, "-p", "x"});
      EXPECT_EQ(r.exit_code, 3) << command << " " << bytes << " " << r.err;
      EXPECT_THAT(r.err, HasSubstr("it may be cut: download it again (assay pull)")) << bytes;
    }
    test::talking_llama().write(path_);
  }
}

TEST_F(CliStreams, ACutFileSaysSo) {
  const auto whole = std::filesystem::file_size(path_);
  std::filesystem::resize_file(path_, whole - 5000);
  const std::string message = "the file is cut: " + std::to_string(whole - 5000) + " of ";
  const ProgramResult r = assay({"run", path_, "-p", "x"});
  EXPECT_EQ(r.exit_code, 3);
  EXPECT_THAT(r.err, AllOf(HasSubstr(message), HasSubstr("download it again (assay pull)")));
  // Its metadata is there all the same.
  const ProgramResult shown = assay({"inspect", path_});
  EXPECT_EQ(shown.exit_code, 3);
  EXPECT_THAT(shown.out,
              AllOf(HasSubstr("talker: architecture llama"), HasSubstr("llama.context_length"), HasSubstr("0 unread")));
  EXPECT_THAT(shown.err, HasSubstr(path_ + ": file: " + message));
  const ProgramResult lint = assay({"inspect", path_, "--lint"});
  EXPECT_EQ(lint.exit_code, 5);
  EXPECT_THAT(lint.out, HasSubstr("error: unusable: file: " + message));
  EXPECT_EQ(json::parse(assay({"inspect", path_, "--json"}).out).at("architecture"), "llama");
  std::filesystem::resize_file(path_, 100);  // in the middle of them
  EXPECT_EQ(assay({"inspect", path_}).out, "");
}

TEST_F(CliStreams, LintFindsWhatMakesAFileUnusable) {
  const auto lint = [&](const test::GgufWriter& file) {
    file.write(path_);
    return assay({"inspect", path_, "--lint"});
  };
  test::TalkingLlama spec;
  spec.chat_template = "{% if %}";
  ProgramResult r = lint(test::talking_llama(spec));
  EXPECT_EQ(r.exit_code, 5);
  EXPECT_EQ(r.err, "");
  EXPECT_THAT(r.out, HasSubstr("error: unusable: chat template: "));
  test::TinyLlama odd;
  odd.without = {"attention.head_count"};
  r = lint(test::TinyLlamaWriter(odd).file());
  EXPECT_EQ(r.exit_code, 5);
  EXPECT_THAT(r.out, AllOf(HasSubstr("error: unusable: model: "), HasSubstr("attention.head_count"),
                           Not(HasSubstr("unread_key"))));
}

TEST_F(CliStreams, TokensAreShownAsTheirText) {
  const std::string top = assay({"logits", path_, "--ids", "1,259", "--top", "261"}).out;
  EXPECT_THAT(top, AllOf(HasSubstr("  \" the\"\n"), HasSubstr("  \"A\"\n"), HasSubstr("  \"<0xFF>\"\n"),
                         HasSubstr("  \"\\n\"\n")));
  EXPECT_THAT(top, Not(HasSubstr("\u2581")));
  EXPECT_THAT(assay({"perplexity", path_, "-p", "the sea the sea the sea the sea", "-c", "4", "--per-token"}).out,
              AllOf(HasSubstr("  \"<0xE2>\"\n"), HasSubstr("  \"e\"\n")));
}

TEST_F(CliStreams, NothingScoredIsNoFigure) {
  EXPECT_TRUE(json::parse(assay({"logits", path_, "--ids", "1", "--json"}).out).at("mean_nll").is_null());
  EXPECT_THAT(assay({"logits", path_, "--ids", "1"}).out, HasSubstr("1 token, mean negative log-likelihood none"));
}

TEST_F(CliStreams, ComparedFilesAreNamed) {
  const std::string other = (folder_ / "other.gguf").string();
  std::filesystem::copy_file(path_, other);
  EXPECT_THAT(assay({"perplexity", path_, "-p", "the sea is vast", "-c", "4", "--against", other}).out,
              AllOf(HasSubstr(path_ + ": talker"), HasSubstr("against " + other + ": talker")));
}

TEST_F(CliStreams, BenchMeasuresEveryCombinationInEveryFormat) {
  const std::string other = (folder_ / "other.gguf").string();
  std::filesystem::copy_file(path_, other);
  const auto bench = [&](const std::string& format) {
    return assay({"bench", "-m",          path_, "-m",  other, "-p",  "4",   "-n",  "2",  "-r",
                  "1",     "--no-limits", "-t",  "1,2", "-ub", "2,4", "-fa", "0,1", "-o", format});
  };
  const ProgramResult r = bench("json");
  ASSERT_EQ(r.exit_code, 0) << r.err;
  const json::array all = json::parse(r.out).as_array();
  ASSERT_EQ(all.size(), 16u);
  EXPECT_EQ(all[0].at("model_filename").as_string(), path_);
  EXPECT_EQ(all[15].at("model_filename").as_string(), other);
  EXPECT_EQ(all[2].at("n_threads").as_int64(), 2);
  EXPECT_EQ(all[4].at("n_ubatch").as_int64(), 4);
  EXPECT_NE(all[0].at("build_commit").as_string(), "unknown");
  const std::string lines = bench("jsonl").out;
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 16);
  EXPECT_EQ(json::parse(lines.substr(0, lines.find('\n'))).at("n_prompt"), 4);
  const std::string csv = bench("csv").out;
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 17);
  EXPECT_THAT(csv, testing::StartsWith("build_commit,build_number,"));
  const std::string sql = bench("sql").out;
  EXPECT_THAT(sql, AllOf(testing::StartsWith("CREATE TABLE IF NOT EXISTS llama_bench ("),
                         HasSubstr("\nINSERT INTO llama_bench (build_commit, ")));
  EXPECT_THAT(bench("md").out, HasSubstr("| pp4 |"));
  EXPECT_EQ(assay({"bench", path_, "-t", "1,x"}).exit_code, 2);
}

}  // namespace
}  // namespace assay
