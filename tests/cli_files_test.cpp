// The commands that compare and mend files, from outside: exit codes, what is left behind, full disks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "support/program.h"
#include "support/shared_data.h"
#include "support/temp_folder.h"
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
  ProgramResult assay(const std::vector<std::string>& arguments) const { return test::run_program(ASSAY_PROGRAM, arguments, {}); }
  size_t n_files() const { return static_cast<size_t>(std::distance(fs::directory_iterator(folder_.path()), {})); }
  std::string content(const std::string& name) const {
    std::ifstream in(folder_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  test::TempFolder folder_;
};

TEST_F(FilesTest, EditThenDiff) {
  const ProgramResult edited = assay({"edit", path("in.gguf"), "-o", path("out.gguf"), "--set", "general.name=str:new", "--rename-tensor", "output_norm.weight=lost"});
  EXPECT_EQ(edited.exit_code, 2) << "the model lacks a weight then";
  EXPECT_THAT(edited.err, HasSubstr("--force"));
  EXPECT_EQ(n_files(), 1u);
  const ProgramResult named = assay({"edit", path("in.gguf"), "-o", path("out.gguf"), "--set", "general.name=str:new", "--set", "llama.context_length=256"});
  EXPECT_EQ(named.exit_code, 0) << named.err;
  EXPECT_EQ(named.out, "llama.context_length\n  - u32 512\n  + u32 256\ngeneral.name\n  - (not there)\n  + string \"new\"\n");
  const ProgramResult found = assay({"diff", path("in.gguf"), path("out.gguf"), "--json"});
  EXPECT_EQ(found.exit_code, 0) << found.err;
  const auto json = boost::json::parse(found.out);
  EXPECT_EQ(json.at("metadata").as_array().size(), 2u);
  EXPECT_EQ(json.at("tensors").as_array().size(), 0u);
  EXPECT_EQ(assay({"diff", path("in.gguf"), path("out.gguf"), "--exit-code"}).exit_code, 1);
  EXPECT_EQ(assay({"diff", path("in.gguf"), path("in.gguf"), "--exit-code"}).exit_code, 0);
}

TEST_F(FilesTest, WrongCalls) {
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"edit", path("in.gguf"), "--set", "a=u32:1"},
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
    const ProgramResult r = test::run_program("/bin/sh", {"-c", command, ASSAY_PROGRAM, path("in.gguf"), path("p")}, {});
    EXPECT_EQ(r.exit_code, 1) << r.err;
    EXPECT_THAT(r.err, HasSubstr("File too large"));
    EXPECT_EQ(content(out), "old");
    EXPECT_EQ(n_files(), 2u);
  }
}

TEST_F(FilesTest, MatricesAreMergedAndShown) {
  const std::string old = test::data("imatrix/python.dat").string(), now = test::data("imatrix/python.gguf").string();
  const ProgramResult merged = assay({"imatrix", "--in-file", now, "--in-file", now, "-o", path("both.gguf"), "--json"});
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
