// The commands that compare and mend files, from outside: exit codes, what is left behind, full disks.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <thread>

#include "programs/program.h"
#include "support/content.h"
#include "support/gguf_writer.h"
#include "support/shared_data.h"
#include "support/temp_folder.h"
#include "support/tiny_chat_model.h"
#include "support/tiny_llama.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
using test::ProgramResult;
using testing::HasSubstr;

class FilesTest : public ::testing::Test {
 protected:
  FilesTest() { test::TinyLlamaWriter({}).file().write(folder_ / "in.gguf"); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  ProgramResult assay(const std::vector<std::string>& arguments) const {
    return test::run_program(ASSAY_PROGRAM, arguments, {});
  }
  size_t n_files() const { return static_cast<size_t>(std::distance(fs::directory_iterator(folder_.path()), {})); }
  std::string content(const std::string& name) const { return test::content(folder_ / name); }

  test::TempFolder folder_;
};

TEST_F(FilesTest, EditThenDiff) {
  const ProgramResult edited = assay({"edit", path("in.gguf"), "-o", path("out.gguf"), "--set", "general.name=str:new",
                                      "--rename-tensor", "output_norm.weight=lost"});
  EXPECT_EQ(edited.exit_code, 2) << "the model lacks a weight then";
  EXPECT_THAT(edited.err, HasSubstr("--force"));
  EXPECT_EQ(n_files(), 1u);
  const ProgramResult named = assay({"edit", path("in.gguf"), "-o", path("out.gguf"), "--set", "general.name=str:new",
                                     "--set", "llama.context_length=256"});
  EXPECT_EQ(named.exit_code, 0) << named.err;
  EXPECT_EQ(named.out,
            "llama.context_length\n  - u32 512\n  + u32 256\ngeneral.name\n  - (not there)\n  + string \"new\"\n");
  const ProgramResult found = assay({"diff", path("in.gguf"), path("out.gguf"), "--json"});
  EXPECT_EQ(found.exit_code, 0) << found.err;
  const auto json = boost::json::parse(found.out);
  EXPECT_EQ(json.at("metadata").as_array().size(), 2u);
  EXPECT_EQ(json.at("tensors").as_array().size(), 0u);
  EXPECT_EQ(assay({"diff", path("in.gguf"), path("out.gguf"), "--exit-code"}).exit_code, 1);
  EXPECT_EQ(assay({"diff", path("in.gguf"), path("in.gguf"), "--exit-code"}).exit_code, 0);
}

TEST_F(FilesTest, WrongCalls) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"edit", path("in.gguf"), "--set", "a=u32:1"},
                                             {"edit", path("in.gguf"), "-o", path("out.gguf")},
                                             {"edit", path("in.gguf"), "-o", path("in.gguf"), "--set", "a=u32:1"},
                                             {"edit", path("in.gguf"), "-o", path("out.gguf"), "--remove", "no.such"},
                                             {"edit", path("in.gguf"), "-o", path("out.gguf"), "--set", "a=7"},
                                             {"edit", path("in.gguf"), "-o", path("out.gguf"), "--set", "a"},
                                             {"split", path("in.gguf"), path("p")},
                                             {"split", path("in.gguf"), path("p"), "--max-size", "2T"},
                                             {"split", path("in.gguf"), path("p"), "--max-tensors", "0"},
                                             {"merge", path("in.gguf"), path("out.gguf")},
                                             {"diff", path("in.gguf")},
                                             {"imatrix", path("in.gguf")}}) {
    const ProgramResult r = assay(arguments);
    EXPECT_EQ(r.exit_code, 2) << arguments.front() << ": " << r.err;
    EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r.err;
  }
  EXPECT_EQ(n_files(), 1u);
}

TEST_F(FilesTest, SplitAndMerge) {
  const ProgramResult planned = assay({"split", path("in.gguf"), path("p"), "--max-size", "1M", "--dry-run"});
  EXPECT_EQ(planned.exit_code, 0) << planned.err;
  EXPECT_EQ(n_files(), 1u);
  const ProgramResult parts = assay({"split", path("in.gguf"), path("p"), "--max-size", "1M"});
  EXPECT_EQ(parts.exit_code, 0) << parts.err;
  EXPECT_EQ(parts.out, planned.out);
  const auto n = std::count(parts.out.begin(), parts.out.end(), '\n');
  EXPECT_GT(n, 2);
  const ProgramResult merged = assay({"merge", parts.out.substr(0, parts.out.find("  ")), path("out.gguf")});
  EXPECT_EQ(merged.exit_code, 0) << merged.err;
  EXPECT_TRUE(content("out.gguf") == content("in.gguf"));
}

// A disk that is full from some byte on, by the limit on the size of a file.
TEST_F(FilesTest, AFullDiskLeavesTheOldFile) {
  const std::string out = "p-00001-of-00001.gguf";
  std::ofstream(folder_ / out) << "old";
  for (const uintmax_t bytes : {uintmax_t{1024}, uintmax_t{1} << 20, fs::file_size(folder_ / "in.gguf") - 1024}) {
    std::string command = "trap '' XFSZ; ulimit -f ";
    command += std::to_string(bytes / 512);
    command += "; exec \"$0\" split \"$1\" \"$2\" --max-tensors 1000";
    const ProgramResult r =
        test::run_program("/bin/sh", {"-c", command, ASSAY_PROGRAM, path("in.gguf"), path("p")}, {});
    EXPECT_EQ(r.exit_code, 1) << r.err;
    EXPECT_THAT(r.err, HasSubstr("File too large"));
    EXPECT_EQ(content(out), "old");
    EXPECT_EQ(n_files(), 2u);
  }
}

// Starts the program, sends it a signal as soon as `sign` is there, and gives back how it ended; nullopt where it was
// done before.
std::optional<int> end_of_interrupted(const std::vector<std::string>& arguments, const fs::path& sign, int signal) {
  std::vector<char*> pointers;
  std::string program = ASSAY_PROGRAM;
  pointers.push_back(program.data());
  std::vector<std::string> texts = arguments;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    const int nothing = ::open("/dev/null", O_RDWR);
    for (const int stream : {0, 1, 2}) ::dup2(nothing, stream);
    ::execv(program.c_str(), pointers.data());
    ::_exit(127);
  }
  int status = 0;
  while (!fs::exists(sign)) {
    if (::waitpid(child, &status, WNOHANG) == child) return std::nullopt;
    std::this_thread::yield();
  }
  ::kill(child, signal);
  if (::waitpid(child, &status, 0) != child) return std::nullopt;
  if (WIFSIGNALED(status)) return 128 + WTERMSIG(status);
  return WEXITSTATUS(status) == 0 ? std::nullopt : std::optional(WEXITSTATUS(status));
}

// Of a file that takes a while to copy: 1 GiB, which lies nowhere.
TEST_F(FilesTest, SignalsLeaveTheOldFile) {
  constexpr uintmax_t kBytes = uintmax_t{1} << 30;
  test::GgufWriter()
      .set("general.architecture", "llama")
      .raw_tensor("t", {1 << 20, kBytes >> 20}, 24, 0)
      .write(folder_ / "large.gguf");
  fs::resize_file(folder_ / "large.gguf", fs::file_size(folder_ / "large.gguf") + kBytes);
  std::ofstream(folder_ / "out.gguf") << "old";
  const std::vector<std::string> edit = {"edit",  path("large.gguf"),   "-o",     path("out.gguf"),
                                         "--set", "general.name=str:x", "--force"};
  const fs::path partial = folder_ / "out.gguf.partial";
  for (const int signal : {SIGINT, SIGTERM, SIGKILL}) {
    std::optional<int> end;
    for (int i = 0; i < 5 && !end; ++i) {  // a machine at rest may be done before the signal comes
      std::ofstream(folder_ / "out.gguf") << "old";
      end = end_of_interrupted(edit, partial, signal);
    }
    if (!end) GTEST_SKIP() << "1 GiB was copied before a signal arrived, five times";
    EXPECT_EQ(*end, 128 + signal);
    EXPECT_EQ(content("out.gguf"), "old");
    EXPECT_EQ(fs::exists(partial), signal == SIGKILL);
  }
  // What the killed one left is in nobody's way.
  const ProgramResult again = assay({"edit", path("in.gguf"), "-o", path("out.gguf"), "--set", "general.name=str:x"});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_FALSE(fs::exists(partial));
}

TEST_F(FilesTest, OtherNamesOfTheSourceAreRefused) {
  fs::create_symlink("in.gguf", folder_ / "link.gguf");
  fs::create_hard_link(folder_ / "in.gguf", folder_ / "name.gguf");
  assay({"split", path("in.gguf"), path("p"), "--max-size", "1M"});
  std::string first;
  for (const auto& entry : fs::directory_iterator(folder_.path())) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("p-00001")) first = name;
  }
  fs::create_symlink(first, folder_ / "part.gguf");
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"edit", path("in.gguf"), "-o", path("link.gguf"), "--set", "a=u32:1"},
                                             {"edit", path("in.gguf"), "-o", path("name.gguf"), "--set", "a=u32:1"},
                                             {"edit", path("link.gguf"), "-o", path("in.gguf"), "--set", "a=u32:1"},
                                             {"merge", path(first), path(first)},
                                             {"merge", path(first), path("part.gguf")},
                                             {"quantize", path("in.gguf"), path("link.gguf"), "Q8_0"},
                                             {"quantize", path(first), path("p.gguf"), "Q8_0", "--keep-split"},
                                             {"quantize", path(first), path("part.gguf"), "Q8_0"},
                                             {"quantize", path("in.gguf"), path("name.gguf"), "Q8_0"}}) {
    const ProgramResult r = assay(arguments);
    EXPECT_EQ(r.exit_code, 2) << arguments.front() << " " << arguments[1] << ": " << r.err;
    EXPECT_THAT(r.err, HasSubstr("another name is needed"));
  }
}

TEST_F(FilesTest, WhatIsReadIsNotWrittenOver) {
  test::write_tiny_chat_model(folder_ / "chat.gguf");
  fs::create_symlink("chat.gguf", folder_ / "link.gguf");
  fs::create_directory(folder_ / "hf");
  std::ofstream(folder_ / "hf/config.json") << R"({"architectures": ["LlamaForCausalLM"]})";
  std::ofstream(folder_ / "hf/model.safetensors", std::ios::binary) << std::string("\2\0\0\0\0\0\0\0{}", 10);
  std::ofstream(folder_ / "lines.txt") << "{\"prompt\": \"a b a b a b a b\"}\n";
  const std::string model = path("chat.gguf"), text = path("lines.txt"), matrix = path("matrix.gguf");
  ASSERT_EQ(assay({"imatrix", model, "-f", text, "-c", "4", "-o", matrix}).exit_code, 0);
  const std::vector<std::vector<std::string>> calls = {
      {"batch", model, "-i", text, "-o", text},
      {"batch", model, "-i", text, "-o", path("link.gguf")},
      {"batch", model, "-i", text, "-o", text, "--resume"},
      {"trace", model, "-p", "a", "--dump", model},
      {"trace", model, "-f", text, "--dump", text},
      {"imatrix", model, "-f", text, "-c", "4", "-o", text},
      {"imatrix", model, "-f", text, "-c", "4", "-o", path("link.gguf")},
      {"verify", model, "--quick", "--html", path("link.gguf")},
      {"verify", model, "--quick", "--against", text, "--html", text},
      {"quantize", model, matrix, "Q4_0", "--imatrix", matrix},
      {"convert", path("hf"), path("hf/model.safetensors")},
      {"convert", path("hf"), path("hf/config.json")}};
  const std::vector<std::string> files = {"chat.gguf", "matrix.gguf", "hf/config.json", "hf/model.safetensors",
                                          "lines.txt"};
  std::vector<std::string> before;
  for (const std::string& file : files) before.push_back(content(file));
  for (const std::vector<std::string>& call : calls) {
    const ProgramResult r = assay(call);
    EXPECT_EQ(r.exit_code, 2) << testing::PrintToString(call) << r.err;
    EXPECT_THAT(r.err, HasSubstr("another name is needed")) << testing::PrintToString(call);
  }
  for (size_t i = 0; i < files.size(); ++i) EXPECT_EQ(content(files[i]), before[i]) << files[i];
  std::ofstream(folder_ / "hf/out.gguf.partial") << "what a killed conversion left";
  EXPECT_THAT(assay({"convert", path("hf"), path("hf/out.gguf")}).err,
              testing::Not(HasSubstr("another name is needed")));
}

TEST_F(FilesTest, RankedByDivergence) {
  test::write_tiny_chat_model(folder_ / "chat.gguf");
  EXPECT_EQ(assay({"quantize", path("chat.gguf"), path("q.gguf"), "Q8_0"}).exit_code, 0);
  const std::vector<std::string> diff = {"diff", path("chat.gguf"), path("q.gguf"), "--json", "--kld", "-c", "64", "-t",
                                         "2"};
  const ProgramResult found = assay(diff);
  ASSERT_EQ(found.exit_code, 0) << found.err;
  const auto json = boost::json::parse(found.out);
  EXPECT_GT(json.at("kld_all").to_number<double>(), 0);
  EXPECT_EQ(json.at("tokens_scored").as_int64(), 31);
  const auto& tensors = json.at("tensors").as_array();
  ASSERT_GT(tensors.size(), 10u);
  for (size_t i = 1; i < tensors.size(); ++i)
    EXPECT_GE(tensors[i - 1].at("kld").to_number<double>(), tensors[i].at("kld").to_number<double>());
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"diff", path("chat.gguf"), path("q.gguf"), "--estimate"},
                                             {"diff", path("chat.gguf"), path("q.gguf"), "-f", path("chat.gguf")},
                                             {"diff", path("chat.gguf"), path("q.gguf"), "--kld", "--chunks", "0"},
                                             {"diff", path("chat.gguf"), path("q.gguf"), "--kld", "-c", "7"}}) {
    EXPECT_EQ(assay(arguments).exit_code, 2) << arguments[3];
  }
}

TEST_F(FilesTest, MatricesAreMergedAndShown) {
  const std::string old = test::data("imatrix/python.dat").string(), now = test::data("imatrix/python.gguf").string();
  const ProgramResult merged =
      assay({"imatrix", "--in-file", now, "--in-file", now, "-o", path("both.gguf"), "--json"});
  EXPECT_EQ(merged.exit_code, 0) << merged.err;
  const auto json = boost::json::parse(merged.out);
  EXPECT_EQ(json.at("chunks").as_int64(), 4);
  EXPECT_EQ(json.at("weights").as_array().size(), 3u);
  const ProgramResult shown = assay({"imatrix", "--in-file", path("both.gguf"), "--show-statistics"});
  EXPECT_THAT(shown.out, HasSubstr("blk.0.ffn_down_exps.weight"));
  EXPECT_EQ(assay({"imatrix", "--in-file", old, "-o", path("old.gguf")}).exit_code, 2);
  EXPECT_EQ(assay({"imatrix", "--in-file", path("in.gguf"), "-o", path("x.gguf")}).exit_code, 3);
}

}  // namespace
}  // namespace assay
