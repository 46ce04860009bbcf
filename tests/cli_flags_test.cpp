// How flags, variables and arguments are read, from outside: what people type from habit works or says what to type
// instead.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include "../apps/cli/flags/other_programs.h"
#include "programs/assay_program.h"
#include "support/shared_data.h"
#include "support/talking_llama.h"
#include "support/temp_folder.h"

namespace assay {
namespace {

namespace json = boost::json;
using test::assay;
using test::ProgramOptions;
using test::ProgramResult;
using testing::AllOf;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;
using testing::StartsWith;

ProgramOptions with(std::map<std::string, std::string> environment, std::string input = {}) {
  ProgramOptions options;
  options.environment = std::move(environment);
  options.input = std::move(input);
  return options;
}

void expect_refusal(const ProgramResult& r, const std::string& part) {
  EXPECT_EQ(r.exit_code, 2) << r.err;
  EXPECT_EQ(r.out, "");
  EXPECT_THAT(r.err, AllOf(StartsWith("assay: "), HasSubstr(part)));
  EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r.err;
}

class CliFlags : public ::testing::Test {
 protected:
  CliFlags() { test::talking_llama().write(path_); }
  // The keys of one short answer.
  json::object run(std::vector<std::string> more, const ProgramOptions& options = {}) {
    more.insert(more.begin(), {"run", path_, "-n", "1", "-t", "1", "--json"});
    const ProgramResult r = assay(more, options);
    EXPECT_EQ(r.exit_code, 0) << r.err;
    return r.exit_code == 0 ? json::parse(r.out).as_object() : json::object();
  }
  int64_t n_prompt(std::vector<std::string> more, const ProgramOptions& options = {}) {
    const json::object r = run(std::move(more), options);
    return r.empty() ? -1 : r.at("usage").at("prompt_tokens").as_int64();
  }
  test::TempFolder folder_;
  std::string path_ = (folder_ / "talker.gguf").string();
};

TEST_F(CliFlags, ShortFlagsAreNeverSplitNorGlued) {
  for (const char* flag : {"-rea", "-pps", "-xyz", "-jsonl", "-cx"}) {
    expect_refusal(assay({"run", path_, "-p", "x", flag}), std::string("there is no flag ") + flag);
  }
  expect_refusal(assay({"run", path_, "-p", "x", "-n5"}), "there is no flag -n5: a value is a word of its own, -n 5");
  expect_refusal(assay({"run", path_, "-p", "x", "-ub=8"}), "-ub 8");
  expect_refusal(assay({"run", path_, "-p", "x", "--tempp", "1"}), "the nearest is --temp");
  expect_refusal(assay({"tokenize", path_, "-px"}), "-px");
  EXPECT_EQ(run({"-p", "x", "--top-k=3"}).size(), run({"-p", "x"}).size());
}

TEST(CliFlagsOfAll, NoCommandSplitsShortFlagsAndAllSayWhatTheyTake) {
  const std::vector<std::string> commands = test::commands();
  EXPECT_GT(commands.size(), 25u);
  for (const std::string& command : commands) {
    expect_refusal(assay({command, "-hx"}), "there is no flag -hx");
    expect_refusal(assay({command, "--no-such-flag"}), "there is no flag --no-such-flag");
    const ProgramResult help = assay({command, "--help"});
    EXPECT_EQ(help.exit_code, 0) << command;
    EXPECT_THAT(help.out, StartsWith(assay({"help", command}).out)) << command;
    EXPECT_THAT(help.out, HasSubstr("\nExamples:\n  ")) << command;
  }
}

TEST_F(CliFlags, TheLastOfTwoWins) {
  EXPECT_EQ(run({"-p", "x", "-s", "1", "--seed", "2", "-s", "3"}).at("seed"), 3);
  EXPECT_EQ(run({"-p", "x", "-n", "3", "--max-tokens", "2", "--predict", "1"}).at("ids").as_array().size(), 1u);
  EXPECT_EQ(n_prompt({"-p", "abc", "-p", "ab", "--no-chat-template"}), n_prompt({"-p", "ab", "--no-chat-template"}));
}

TEST_F(CliFlags, SeedsAreWholeAndShown) {
  EXPECT_EQ(run({"-p", "x", "-s", "18446744073709551615"}).at("seed").as_uint64(), UINT64_MAX);
  EXPECT_EQ(run({"-p", "x", "-s", "0"}).at("seed"), 0);
  for (const char* seed : {"18446744073709551616", "-2", "1e3", "0x10", "1.0"}) {
    expect_refusal(assay({"run", path_, "-p", "x", "-s", seed}), "2^64 - 1");
  }
  for (int i = 0; i < 4; ++i) EXPECT_LT(run({"-p", "x"}).at("seed").to_number<uint64_t>(), uint64_t{1} << 53);
  const ProgramResult r = assay({"run", path_, "-p", "x", "-n", "1", "-s", "77", "--stats"});
  EXPECT_THAT(r.err, AllOf(HasSubstr("seed 77"), HasSubstr("answer 1 token;")));
}

TEST_F(CliFlags, EverySpellingHasItsVariableAndAnyFlagOutranksIt) {
  const json::object cold = run({"-p", "x", "--temp", "0", "-n", "6"});
  for (const char* name : {"ASSAY_TEMP", "ASSAY_TEMPERATURE"})
    EXPECT_EQ(run({"-p", "x", "-n", "6"}, with({{name, "0"}})).at("ids"), cold.at("ids")) << name;
  for (const char* name : {"ASSAY_MAX_TOKENS", "ASSAY_N_PREDICT", "ASSAY_PREDICT"}) {
    const ProgramResult r = assay({"run", path_, "-p", "x", "--json", "--ignore-eos"}, with({{name, "2"}}));
    EXPECT_EQ(json::parse(r.out).at("ids").as_array().size(), 2u) << name;
  }
  EXPECT_THAT(
      assay({"run", path_, "-p", "x", "-n", "1"}, with({{"ASSAY_N_GPU_LAYERS", "1"}, {"ASSAY_BACKEND", "cpu"}})).err,
      HasSubstr("-ngl has no effect"));
  std::ofstream(folder_ / "prompt.txt") << "abcdef";
  const std::string file = (folder_ / "prompt.txt").string();
  const auto with_prompt = with({{"ASSAY_PROMPT", "x"}});
  EXPECT_EQ(n_prompt({"-f", file}, with_prompt), n_prompt({"-p", "abcdef"}));
  EXPECT_EQ(n_prompt({"abcdef"}, with_prompt), n_prompt({"-p", "abcdef"}));
  EXPECT_EQ(n_prompt({}, with_prompt), n_prompt({"-p", "x"}));
  EXPECT_EQ(n_prompt({"-p", "x", "-no-cnv"}, with({{"ASSAY_SYSTEM_PROMPT", "Be brief."}})),
            n_prompt({"-p", "x", "-no-cnv"}));
  expect_refusal(assay({"run", path_}, with({{"ASSAY_PROMPT", "x"}, {"ASSAY_FILE", file}})),
                 "ASSAY_PROMPT and ASSAY_FILE exclude each other");
  expect_refusal(assay({"run", path_, "-p", "x"}, with({{"ASSAY_TOP_K", "many"}})),
                 "ASSAY_TOP_K many: needs a whole number");
}

TEST_F(CliFlags, VerboseNamesVariablesThatSetNothing) {
  const auto options = with({{"ASSAY_TEMPERATUR", "0"}, {"ASSAY_TOP_K", "3"}, {"ASSAY_MESSAGES", "x"}});
  const ProgramResult r = assay({"run", path_, "-p", "x", "-n", "1", "-v"}, options);
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_THAT(r.err,
              AllOf(HasSubstr("no flag reads ASSAY_TEMPERATUR\n"), HasSubstr("runs on "), HasSubstr("512 trained")));
  EXPECT_EQ(assay({"tokenize", path_, "-p", "-v"}, options).err, "") << "-v is a value there";
  EXPECT_THAT(assay({"tokenize", path_, "-p", "x", "--verbose"}, options).err, HasSubstr("ASSAY_TEMPERATUR"));
}

// Once, of the context that is loaded, as `assay plan --kernels` marks it.
TEST_F(CliFlags, VerboseNamesWhatTheDeviceBorrows) {
  const auto says = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"run", path_, "-p", "x", "-n", "1", "--backend", "cpu"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult r = assay(arguments);
    EXPECT_EQ(r.exit_code, 0) << r.err;
    return r.err;
  };
  const std::string line = "assay: borrowed, run on the host by their plain reference: ";
  const ProgramResult plan = assay({"plan", path_, "--backend", "cpu", "--kernels"});
  ASSERT_THAT(plan.out, HasSubstr("(borrowed)"));
  const std::string err = says({"-v"});
  const size_t at = err.find(line);
  ASSERT_NE(at, std::string::npos) << err;
  EXPECT_EQ(err.substr(at + line.size(), err.find('\n', at) - at - line.size()), "embed");
  EXPECT_EQ(err.find(line, at + 1), std::string::npos) << err;
  EXPECT_THAT(says({}), Not(HasSubstr("borrowed")));
  EXPECT_THAT(says({"-v", "--kernels", "reference"}), Not(HasSubstr("borrowed")));
}

TEST_F(CliFlags, AnEmptyPromptIsNone) {
  std::ofstream(folder_ / "empty.txt") << "\n";
  expect_refusal(assay({"run", path_}), "no prompt");
  expect_refusal(assay({"run", path_, "-p", ""}), "no prompt: -p is empty");
  expect_refusal(assay({"run", path_, "-f", (folder_ / "empty.txt").string()}), "empty.txt is empty");
  expect_refusal(assay({"logits", path_, "-p", ""}), "no prompt: -p is empty");
  expect_refusal(assay({"trace", path_}), "no prompt");
}

TEST_F(CliFlags, AWordTooManyNamesTheFlagThatTakesIt) {
  const std::string file = (folder_ / "text.txt").string();
  std::ofstream(file) << "the sea";
  expect_refusal(assay({"tokenize", path_, "Hello world"}), "'Hello world' is one argument too many; -p TEXT takes it");
  expect_refusal(assay({"detokenize", path_, "19556", "905"}), "'19556' is one argument too many; --ids LIST takes it");
  expect_refusal(assay({"logits", path_, "[1, 2]"}), "--ids LIST takes it");
  expect_refusal(assay({"perplexity", path_, file}), "-f FILE takes it");
  expect_refusal(assay({"batch", path_, file}), "-i FILE takes it");
  expect_refusal(assay({"inspect", path_, file}), "is one argument too many (");
}

TEST_F(CliFlags, TextComesAsAWordAFileOrStandardInput) {
  EXPECT_EQ(run({"abc", "-s", "1"}).at("ids"), run({"-p", "abc", "-s", "1"}).at("ids"));
  const ProgramResult flagged = assay({"run", "-m", path_, "abc", "-n", "1", "-s", "1", "--json"});
  EXPECT_EQ(json::parse(flagged.out).at("ids"), run({"abc", "-s", "1"}).at("ids"));
  EXPECT_EQ(n_prompt({"-n", "1", "--", "-dashes-"}), n_prompt({"-p", "-dashes-"}));
  EXPECT_EQ(n_prompt({"-f", "-"}, with({}, "abc\n")), n_prompt({"-p", "abc"}));
  expect_refusal(assay({"run", path_, "abc", "-f", "y"}), "PROMPT and -f exclude each other");
  expect_refusal(assay({"run", path_, "abc", "-p", "y"}), "'abc' is one argument too many; -p gives the PROMPT");
  const auto digest = [&](std::vector<std::string> more, std::string input) {
    more.insert(more.begin(), {"logits", path_, "--json"});
    return json::parse(assay(more, with({}, std::move(input))).out).at("logits_digest");
  };
  EXPECT_EQ(digest({}, "the sea\n"), digest({"-p", "the sea"}, ""));
  EXPECT_EQ(digest({"-f", "-"}, "the sea\n"), digest({"-p", "the sea"}, ""));
}

TEST_F(CliFlags, HabitsAreTakenWithoutEffect) {
  const json::object plain = run({"-p", "x", "-s", "1"});
  for (const std::vector<std::string>& habit : {std::vector<std::string>{"-fa"},
                                                {"-fa", "on"},
                                                {"-fa", "0"},
                                                {"--flash-attn", "auto"},
                                                {"-cnv"},
                                                {"-st"},
                                                {"--conversation"},
                                                {"--no-mmap"},
                                                {"--mlock"},
                                                {"--no-warmup"},
                                                {"--color"},
                                                {"--color", "always"},
                                                {"--log-disable"},
                                                {"--no-display-prompt"},
                                                {"--simple-io"},
                                                {"-tb", "4"},
                                                {"--jinja"}}) {
    std::vector<std::string> arguments = {"-p", "x", "-s", "1"};
    arguments.insert(arguments.end(), habit.begin(), habit.end());
    EXPECT_EQ(run(arguments).at("ids"), plain.at("ids")) << habit[0];
  }
  EXPECT_EQ(n_prompt({"-p", "x", "-no-cnv"}), n_prompt({"-p", "x", "--no-chat-template"}));
}

TEST_F(CliFlags, MetadataIsOverriddenAloud) {
  const ProgramResult r =
      assay({"run", path_, "-p", "x", "-n", "1", "-c", "0", "--override-kv", "llama.context_length=int:64",
             "--override-kv", "general.name=str:other, better,no.such=bool:true", "-v"});
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_THAT(r.err, AllOf(HasSubstr("--override-kv: llama.context_length is 64, the file says 512\n"),
                           HasSubstr("--override-kv: general.name is \"other, better\", the file says \"talker\"\n"),
                           HasSubstr("--override-kv: no.such is true, the file has none; nothing here reads it\n"),
                           HasSubstr("other, better, llama"), HasSubstr("64 positions of 64 trained")));
  const auto digest = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"logits", path_, "--ids", "1,259,260,5", "--json"});
    return json::parse(assay(more).out).at("logits_digest");
  };
  EXPECT_EQ(digest({}), digest({"--override-kv", "llama.context_length=int:64"}));
  EXPECT_NE(digest({}), digest({"--override-kv", "llama.rope.freq_base=float:500"}));
  EXPECT_EQ(n_prompt({"-p", "ab", "--override-kv", "tokenizer.ggml.add_bos_token=bool:false"}) + 1,
            n_prompt({"-p", "ab"}));
  for (const char* wrong :
       {"x", "llama.context_length=64", "x=int:1.5", "general.alignment=int:64", "split.count=int:2"})
    expect_refusal(assay({"run", path_, "-p", "x", "--override-kv", wrong}), "--override-kv");
  EXPECT_EQ(assay({"run", path_, "-p", "x", "--override-kv", "llama.attention.head_count=int:3"}).exit_code, 3);
  expect_refusal(assay({"inspect", path_, "--override-kv", "a=int:1"}), "a running model takes it");
}

TEST_F(CliFlags, TokenizeTakesLlamaTokenizesFlags) {
  const auto ids = [&](std::vector<std::string> more, std::string input = {}) {
    more.insert(more.begin(), {"tokenize", path_});
    return assay(more, with({}, std::move(input))).out;
  };
  const std::string plain = ids({"-p", "the sea</s>"});
  EXPECT_EQ(ids({"--ids", "-p", "the sea</s>"}), plain);
  EXPECT_EQ(ids({"--stdin"}, "the sea</s>"), plain);
  EXPECT_EQ(ids({"-p", "the sea</s>", "--no-parse-special"}), ids({"-p", "the sea</s>", "--no-special"}));
  EXPECT_NE(ids({"-p", "the sea</s>", "--no-parse-special"}), plain);
  EXPECT_EQ(ids({"-p", "the sea</s>", "--show-count"}),
            plain + "Total number of tokens: 14\n");  // two words of six bytes each, BOS and EOS
  EXPECT_EQ(json::parse(ids({"-p", "the sea</s>", "--show-count", "--json"})).at("count"), 14);
}

// Flags and verbs of llama.cpp and ollama that are not here: exit 2, and what to do instead.
TEST(CliHabits, EachOfOtherProgramsSaysWhatToType) {
  const std::vector<std::string> commands = {"run", "chat", "tokenize", "bench", "perplexity"};
  const auto typed = [](std::string_view name) {
    return name.ends_with('*') ? std::string(name.substr(0, name.size() - 1)) + "x" : std::string(name);
  };
  for (const cli::Habit& habit : cli::kFlagHabits) {
    const std::string name = typed(habit.name);
    int n_refused = 0;
    for (const std::string& command : commands) {
      const ProgramResult r = assay({command, "m.gguf", name});
      if (r.err.find("there is no flag " + name + ": ") == std::string::npos) continue;
      ++n_refused;
      EXPECT_EQ(r.exit_code, 2) << name;
      EXPECT_THAT(r.err, HasSubstr(habit.advice)) << name;
      break;
    }
    EXPECT_GT(n_refused, 0) << name << ": every command has it";
  }
  for (const cli::Habit& habit : cli::kVerbHabits) {
    if (assay({std::string(habit.name), "--help"}).exit_code == 0) continue;  // this build has it
    const ProgramResult r = assay({std::string(habit.name)});
    EXPECT_EQ(r.exit_code, 2) << habit.name;
    EXPECT_THAT(r.err, HasSubstr(habit.advice)) << habit.name;
  }
}

TEST(CliHabits, TheCommandComesFirst) {
  expect_refusal(assay({"-m", "m.gguf", "-p", "x"}), "-m stands before a command, which comes first: assay run -m ...");
  expect_refusal(assay({"m.gguf"}), "there is no command 'm.gguf': assay run m.gguf -p TEXT asks it");
  expect_refusal(assay({"nonsense"}), "needs one of run, chat,");
  expect_refusal(assay({"rn", "m.gguf"}), "there is no command 'rn'; the nearest is run (assay --help lists them)");
  expect_refusal(assay({"tokenise", "m.gguf"}), "the nearest is tokenize");
}

TEST(CliHabits, EveryFlagOfOtherProgramsIsTakenOrHasAnAdvice) {
  std::ifstream list(test::data("other_programs_flags.txt"));
  ASSERT_TRUE(list.is_open());
  std::set<std::string> ours;
  std::istringstream completion(assay({"help", "--completion", "bash"}).out);
  for (std::string word; completion >> word;) ours.insert(word.starts_with("flags='") ? word.substr(7) : word);
  int n_flags = 0;
  for (std::string flag; std::getline(list, flag);) {
    if (!flag.starts_with('-')) continue;
    ++n_flags;
    const bool is_ours = ours.contains(flag) || ours.contains(flag + "'");
    const bool is_advised =
        std::any_of(std::begin(cli::kFlagHabits), std::end(cli::kFlagHabits), [&](const cli::Habit& h) {
          return h.name.ends_with('*') ? flag.starts_with(h.name.substr(0, h.name.size() - 1)) : h.name == flag;
        });
    EXPECT_TRUE(is_ours || is_advised) << flag;
  }
  EXPECT_GT(n_flags, 500);
}

TEST_F(CliFlags, MessagesNameFlagValueAndNeed) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> calls = {
      {{"run", path_, "-p", "x", "-c", "4k"}, "-c 4k: needs a whole number"},
      {{"run", path_, "-p", "x", "-n", "1e3"}, "-n 1e3: needs a whole number"},
      {{"run", path_, "-p", "x", "--temp", "nan"}, "--temp nan: needs a number"},
      {{"run", path_, "-p", "x", "-ctk", "q4_0"}, "-ctk q4_0: needs f16, q8_0 or f32"},
      {{"run", path_, "-p", "x", "-t", "-1"}, "-t -1: needs a whole number from 0 to 1024"},
      {{"logits", path_, "-p", "x", "--top", "-1"}, "--top -1: needs 1 or more"},
      {{"logits", path_, "-p", "x", "--ids", "1"}, "-p and --ids exclude each other"},
      {{"run", path_, "-p"}, "-p needs a value after it: TEXT"},
  };
  for (const auto& [call, message] : calls) expect_refusal(assay(call), message);
  std::ofstream(folder_ / "list.json") << "[1]";
  std::ofstream(folder_ / "t.jinja") << "x";
  expect_refusal(assay({"template", (folder_ / "t.jinja").string(), "--messages", (folder_ / "list.json").string(),
                        "--variables", (folder_ / "list.json").string()}),
                 "--variables " + (folder_ / "list.json").string() + ": needs a JSON object");
}

TEST_F(CliFlags, HelpShowsDefaults) {
  const auto shows = [](const std::string& command, const std::string& flag, const std::string& value) {
    const std::string help = assay({command, "--help"}).out;
    const size_t at = help.find("\n  " + flag);
    const size_t next = help.find("\n  -", at + 1);
    EXPECT_THAT(help.substr(at, next - at), HasSubstr("(default " + value + ")")) << command << ' ' << flag;
  };
  shows("run", "-n,", "-1");
  shows("run", "-s,", "-1");
  shows("run", "-b,", "2048");
  shows("run", "-ub,", "512");
  shows("run", "-ctk,", "f16");
  shows("run", "-ctv,", "f16");
  shows("logits", "--top", "10");
  shows("trace", "--first", "4");
  shows("inspect", "--array-items", "8");
  shows("bench", "-p,", "512");
  shows("bench", "-n,", "128");
  shows("bench", "-r,", "5");
}

TEST(CliManual, ManPageAndCompletionsHaveEveryFlag) {
  const std::string man = assay({"help", "--man"}).out;
  for (const char* text :
       {"\\-\\-top\\-k", "assay run [MODEL] [PROMPT]", "\\-\\-no\\-chat\\-template", "\\-\\-show\\-count"})
    EXPECT_THAT(man, HasSubstr(text));
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const ProgramResult r = assay({"help", "--completion", shell});
    EXPECT_EQ(r.exit_code, 0);
    for (const char* text : {"top-k", "ubatch-size", "bench", "q8_0"}) EXPECT_THAT(r.out, HasSubstr(text)) << shell;
  }
  expect_refusal(assay({"help", "--completion", "csh"}), "needs bash, zsh or fish");
  // What bash makes of it.
  const test::TempFolder folder;
  std::ofstream(folder / "c.bash") << assay({"help", "--completion", "bash"}).out;
  const ProgramResult completed = test::run_program(
      "/bin/bash",
      {"-c", "source " + (folder / "c.bash").string() +
                 "; COMP_WORDS=(assay run m -ctk q); COMP_CWORD=4; compopt() { :; }; _assay; echo \"${COMPREPLY[@]}\"; "
                 "COMP_WORDS=(assay run --top-); COMP_CWORD=2; _assay; echo \"${COMPREPLY[@]}\""});
  EXPECT_EQ(completed.out, "q8_0\n--top-n-sigma --top-nsigma --top-k --top-p\n") << completed.err;
}

TEST(CliVersion, HasACommit) {
  EXPECT_THAT(assay({"--version"}).out, MatchesRegex("assay [0-9.]+ \\([-A-Za-z0-9._]+\\)\nnumerics 1\n"));
}

}  // namespace
}  // namespace assay
