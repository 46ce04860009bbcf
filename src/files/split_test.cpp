#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "assay/edit.h"
#include "assay/error.h"
#include "gguf/file.h"
#include "support/content.h"
#include "support/gguf_writer.h"
#include "support/shared_data.h"
#include "support/temp_folder.h"

namespace assay {
namespace {

using test::content;

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class SplitFileTest : public ::testing::Test {
 protected:
  void write(uint32_t alignment = 32) const {
    test::GgufWriter file(3, alignment);
    file.set("general.architecture", "llama").set("general.name", "x");
    for (int i = 0; i < 7; ++i)
      file.tensor(fmt::format("t{}", i), {10 + i}, std::vector<float>(static_cast<size_t>(10 + i), 1.5f));
    file.write(in());
  }
  std::string refusal(const std::function<void()>& work) const {
    try {
      work();
    } catch (const Error& e) {
      EXPECT_EQ(e.code, Errc::bad_request);
      return e.what();
    }
    return "nothing was thrown";
  }
  fs::path in() const { return folder_ / "in.gguf"; }
  std::string prefix() const { return (folder_ / "part").string(); }
  std::string first() const { return (folder_ / "part-00001-of-00003.gguf").string(); }
  std::string out() const { return (folder_ / "out.gguf").string(); }
  size_t n_files() const { return static_cast<size_t>(std::distance(fs::directory_iterator(folder_.path()), {})); }

  test::TempFolder folder_;
};

TEST_F(SplitFileTest, MergedAgainItIsTheSameFile) {
  for (const uint32_t alignment : {32u, 64u, 8u}) {
    write(alignment);
    const SplitResult parts = split_file(in().string(), prefix(), {.n_tensors_max = 3});
    ASSERT_EQ(parts.files.size(), 3u);
    EXPECT_EQ(parts.files[0].path, first());
    EXPECT_EQ(parts.files[2].n_tensors, 1);
    for (const SplitFile& file : parts.files) EXPECT_EQ(static_cast<uint64_t>(file.bytes), fs::file_size(file.path));
    const SplitResult merged = merge_files(first(), out());
    ASSERT_EQ(merged.files.size(), 1u);
    EXPECT_EQ(merged.files[0].n_tensors, 7);
    EXPECT_EQ(content(out()), content(in())) << alignment;
    EXPECT_EQ(n_files(), 5u);
  }
}

// FNV-1a.
uint64_t digest(const std::string& bytes) {
  uint64_t h = 0xCBF29CE484222325u;
  for (const char c : bytes) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return h;
}

// The parts that llama-gguf-split of llama.cpp 0.5.0 makes of two goldens (--split --split-max-tensors 10,
// --split-max-size 1M), byte for byte.
TEST_F(SplitFileTest, PartsAreThoseOfLlamaGgufSplit) {
  const struct {
    const char* file;
    SplitOptions options;
    std::vector<uint64_t> parts;
  } cases[] = {
      {"llama-rope-yarn", {.n_tensors_max = 10}, {0x733BE07EA7E8EEEFu, 0x845D45B390F7D8CFu, 0xE99E3CDBBE568DE4u}},
      {"gemma3", {.bytes_max = 1'000'000}, {0x8ED8755D984A6B32u, 0xA70BB2CA12FD228Au}},
      {"llama-rope-yarn", {.bytes_max = 1'000'000}, {0x10B0A6AF7CC18D39u}},
  };
  for (const auto& c : cases) {
    const fs::path golden = test::data(fmt::format("goldens/tiny/{}.gguf", c.file));
    const SplitResult result = split_file(golden.string(), prefix(), c.options);
    ASSERT_EQ(result.files.size(), c.parts.size()) << c.file;
    for (size_t i = 0; i < c.parts.size(); ++i)
      EXPECT_EQ(digest(content(result.files[i].path)), c.parts[i]) << result.files[i].path;
    merge_files(result.files.front().path, out());
    EXPECT_EQ(content(out()), content(golden)) << c.file;
  }
}

TEST_F(SplitFileTest, BySizeAndAsItWouldBe) {
  write();  // 40 to 64 bytes: each takes 64
  const SplitResult planned = split_file(in().string(), prefix(), {.bytes_max = 200, .dry_run = true});
  EXPECT_EQ(planned.files.size(), 3u);
  EXPECT_EQ(n_files(), 1u);
  split_file(in().string(), prefix() + ".gguf", {.bytes_max = 200});
  EXPECT_EQ(gguf::File::open(first()).tensors().size(), 7u);
  // The parts of a split may be cut anew.
  split_file(first(), (folder_ / "other").string(), {.n_tensors_max = 5});
  EXPECT_EQ(gguf::File::open(folder_ / "other-00001-of-00002.gguf").tensors().size(), 7u);
}

TEST_F(SplitFileTest, Refusals) {
  write();
  EXPECT_THAT(refusal([&] { merge_files(in().string(), out()); }), HasSubstr("is no split file"));
  EXPECT_THAT(refusal([&] { split_file(in().string(), prefix(), {}); }), HasSubstr("needs the most bytes"));
  EXPECT_THAT(refusal([&] { split_file(in().string(), prefix(), {.bytes_max = 1, .n_tensors_max = 1}); }),
              HasSubstr("needs the most bytes"));
  split_file(in().string(), prefix(), {.n_tensors_max = 3});
  EXPECT_THAT(refusal([&] { merge_files(first(), first()); }), HasSubstr("another name is needed"));
  EXPECT_THAT(refusal([&] { split_file(first(), prefix(), {.n_tensors_max = 3}); }),
              HasSubstr("another name is needed"));
  const std::string before = content(in());
  fs::create_hard_link(in(), folder_ / "p-00002-of-00003.gguf");
  EXPECT_THAT(refusal([&] { split_file(in().string(), (folder_ / "p").string(), {.n_tensors_max = 3}); }),
              HasSubstr("another name is needed"));
  EXPECT_EQ(content(in()), before);
}

TEST_F(SplitFileTest, CancelledItLeavesNothing) {
  write();
  SplitOptions options{.n_tensors_max = 3};
  int asked = 0;
  options.watch.cancelled = [&] { return ++asked == 5; };
  EXPECT_TRUE(split_file(in().string(), prefix(), options).cancelled);
  EXPECT_EQ(n_files(), 1u);
}

}  // namespace
}  // namespace assay
