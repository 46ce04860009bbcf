// Whatever writes a model file, with each system call that it writes through failing once: the failure is told, what
// was there before stays, and nothing is left behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "assay/convert.h"
#include "assay/edit.h"
#include "assay/error.h"
#include "assay/imatrix.h"
#include "assay/quantize.h"
#include "support/content.h"
#include "support/failing_calls.h"
#include "support/hf_folder.h"
#include "support/rounds.h"
#include "support/temp_folder.h"
#include "support/tiny_llama.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
using ::testing::AnyOf;
using ::testing::HasSubstr;

class WritersTest : public ::testing::Test {
 protected:
  WritersTest() {
    test::TinyLlama spec;
    spec.d_ff = 256;
    test::TinyLlamaWriter(spec).file().write(in());
    split_file(in(), (sources_ / "part").string(), {.n_tensors_max = 8});
  }
  std::string in() const { return (sources_ / "in.gguf").string(); }
  std::string out(const std::string& name = "out.gguf") const { return (folder_ / name).string(); }
  size_t n_files() const { return static_cast<size_t>(std::distance(fs::directory_iterator(folder_.path()), {})); }
  void clear() const {
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_.path())) fs::remove(entry);
  }

  // outs: the names that the work gives.
  void expect_whole_or_nothing(const std::function<void()>& work, const std::vector<std::string>& outs) {
    clear();
    test::fail_call(-1);
    work();
    const int n = test::n_calls();
    ASSERT_GE(n, 4);  // room, bytes, to the disk, the name
    ASSERT_EQ(n_files(), outs.size());
    for (int i = 0; i < n; i += test::unless_sanitized(1, 2)) {
      clear();
      for (const std::string& name : outs) std::ofstream(out(name)) << "old";
      test::fail_call(i);
      std::string told;
      try {
        work();
      } catch (const Error& error) {
        // The second is of the file in memory that `edit` checks.
        EXPECT_TRUE(error.code == Errc::io || error.code == Errc::out_of_memory) << error.what();
        told = error.what();
      }
      test::fail_call(-1);
      EXPECT_THAT(told, AnyOf(HasSubstr("No space left on device"), HasSubstr("has no room for")))
          << "call " << i << " of " << n;
      EXPECT_EQ(n_files(), outs.size()) << "call " << i << " of " << n;
      size_t n_old = 0;
      for (const std::string& name : outs) n_old += test::content(out(name)) == "old" ? 1 : 0;
      // Each file takes its name and then its folder goes to the disk; until the first has taken its own, all are the
      // old ones.
      if (i + 2 * static_cast<int>(outs.size()) < n) {
        EXPECT_EQ(n_old, outs.size()) << "call " << i << " of " << n;
      }
    }
  }

  test::TempFolder sources_, folder_;
};

TEST_F(WritersTest, Edit) {
  EditOptions options;
  options.edits = {parse_set("general.name=str:x")};
  options.out = out();
  expect_whole_or_nothing([&] { edit_file(in(), options); }, {"out.gguf"});
}

TEST_F(WritersTest, SplitAndMerge) {
  const std::vector<std::string> parts = {"p-00001-of-00003.gguf", "p-00002-of-00003.gguf", "p-00003-of-00003.gguf"};
  expect_whole_or_nothing([&] { split_file(in(), out("p"), {.n_tensors_max = 8}); }, parts);
  expect_whole_or_nothing([&] { merge_files((sources_ / "part-00001-of-00003.gguf").string(), out()); }, {"out.gguf"});
}

TEST_F(WritersTest, Quantize) {
  QuantizeOptions options;
  options.type = "Q8_0";
  options.n_threads = 2;
  expect_whole_or_nothing([&] { quantize(in(), out(), options); }, {"out.gguf"});
}

TEST_F(WritersTest, Convert) {
  test::write_hf_folder(sources_ / "folder");
  ConvertOptions options;
  options.n_threads = 2;
  options.check = false;
  expect_whole_or_nothing([&] { convert(sources_ / "folder", out(), options); }, {"out.gguf"});
}

TEST_F(WritersTest, Imatrix) {
  const Imatrix matrix{{"text"}, 2, 8, {{"blk.0.attn_q.weight", std::vector<float>(64, 1.5f), {16}}}};
  for (const char* name : {"out.gguf", "out.dat"}) {
    expect_whole_or_nothing([&] { write_imatrix(matrix, out(name)); }, {name});
  }
}

}  // namespace
}  // namespace assay
