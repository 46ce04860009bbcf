#include "assay/imatrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>

#include "assay/error.h"
#include "imatrix/imatrix_read.h"
#include "support/gguf_writer.h"
#include "support/shared_data.h"
#include "support/temp_folder.h"

namespace assay {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::HasSubstr;

test::Bytes content(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::string refusal(std::span<const std::byte> bytes) {
  try {
    imatrix::read_bytes(bytes, "x");
  } catch (const Error& e) {
    EXPECT_EQ(e.code, Errc::bad_file) << e.what();
    return e.what();
  }
  return "nothing was thrown";
}

// Files by Python's gguf package (tools/goldens/make_gguf.py).
// The file as llama-imatrix of llama.cpp 0.5.0 writes it (`--in-file` of one by gguf.py): ours has its bytes.
TEST(Imatrix, ReadsAndWritesTheGgufForm) {
  const Imatrix found = read_imatrix(test::data("imatrix/python.gguf").string());
  EXPECT_THAT(found.datasets, ElementsAre("calibration.txt"));
  EXPECT_EQ(found.n_chunks, 2);
  EXPECT_EQ(found.chunk_size, 512);
  ASSERT_EQ(found.entries.size(), 3u);
  const ImatrixEntry* experts = found.find("blk.0.ffn_down_exps.weight");
  ASSERT_NE(experts, nullptr);
  EXPECT_EQ(experts->n_columns(), 2);
  EXPECT_THAT(experts->counts, ElementsAre(4, 0, 2));
  EXPECT_THAT(experts->importance(), ElementsAre(0.25f, 0.5f, 1, 1, 2.5f, 3));
  EXPECT_EQ(found.find("blk.0"), nullptr);
  const test::TempFolder folder;
  write_imatrix(found, (folder / "out.gguf").string());
  EXPECT_TRUE(content(folder / "out.gguf") == content(test::data("imatrix/python.gguf")));
}

TEST(Imatrix, ReadsAndWritesTheOldForm) {
  const Imatrix old = read_imatrix(test::data("imatrix/python.dat").string());
  EXPECT_THAT(old.datasets, ElementsAre("calibration.txt"));
  EXPECT_EQ(old.n_chunks, 2);
  EXPECT_EQ(old.chunk_size, 0);
  ASSERT_EQ(old.entries.size(), 3u);
  EXPECT_THAT(old.entries[0].counts, ElementsAre(2));
  const Imatrix now = read_imatrix(test::data("imatrix/python.gguf").string());
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(old.entries[i].name, now.entries[i].name);
    const std::vector<float> a = old.entries[i].importance(), b = now.entries[i].importance();
    ASSERT_EQ(a.size(), b.size());
    for (size_t j = 0; j < a.size(); ++j) EXPECT_THAT(a[j], FloatEq(b[j]));
  }
  const test::TempFolder folder;
  write_imatrix(now, (folder / "out.dat").string());
  EXPECT_TRUE(content(folder / "out.dat") == content(test::data("imatrix/python.dat")));
  EXPECT_THROW(write_imatrix(old, (folder / "out.gguf").string()), Error);  // tokens are not known
}

TEST(Imatrix, MergesSumsCountsAndChunks) {
  Imatrix a{{"a"}, 2, 512, {{"k", {2, 4}, {1024}}, {"q", {6}, {1024}}}};
  const Imatrix b{{"b"}, 1, 512, {{"k", {1, 1}, {512}}, {"v", {3}, {512}}}};
  merge_imatrix(a, b);
  EXPECT_THAT(a.datasets, ElementsAre("a", "b"));
  EXPECT_EQ(a.n_chunks, 3);
  ASSERT_EQ(a.entries.size(), 3u);
  EXPECT_THAT(a.find("k")->sums, ElementsAre(3, 5));
  EXPECT_THAT(a.find("k")->counts, ElementsAre(1536));
  EXPECT_THAT(a.find("v")->sums, ElementsAre(3));
  const Imatrix chunks{{"a"}, 2, 0, {{"q", {4}, {2}}}};
  Imatrix both = a;
  merge_imatrix(both, chunks);
  EXPECT_THAT(both.find("q")->counts, ElementsAre(2048));
  EXPECT_THAT(both.find("q")->sums, ElementsAre(6 + 4 * 512));
  EXPECT_EQ(both.datasets.size(), 2u);
  Imatrix other = chunks;
  merge_imatrix(other, a);
  EXPECT_EQ(other.chunk_size, 512);
  EXPECT_THAT(other.find("q")->counts, ElementsAre(2048));
  EXPECT_THROW(merge_imatrix(a, Imatrix{{}, 1, 512, {{"k", {1}, {512}}}}), Error);
}

TEST(BadImatrix, GgufForm) {
  const auto base = [] {
    test::GgufWriter file;
    file.set("general.type", "imatrix")
        .set("imatrix.chunk_count", uint32_t{2})
        .set("imatrix.chunk_size", uint32_t{512});
    return file;
  };
  EXPECT_THAT(refusal(base().bytes()), HasSubstr("has no entry"));
  EXPECT_THAT(refusal(test::GgufWriter().tensor("a.in_sum2", {1, 2}, {1, 2}).bytes()),
              HasSubstr("general.type is not there"));
  EXPECT_THAT(refusal(test::GgufWriter().set("general.type", "model").bytes()), HasSubstr("general.type is 'model'"));
  EXPECT_THAT(refusal(test::GgufWriter().set("general.type", "imatrix").bytes()), HasSubstr("imatrix.chunk_count"));
  EXPECT_THAT(refusal(base().tensor("a.in_sum2", {1, 2}, {1, 2}).bytes()), HasSubstr("'a' has no counts"));
  EXPECT_THAT(refusal(base().tensor("a.counts", {1, 1}, {1}).bytes()), HasSubstr("'a.counts' is no part"));
  EXPECT_THAT(refusal(base().tensor("a", {1, 1}, {1}).bytes()), HasSubstr("'a' is no part"));
  EXPECT_THAT(refusal(base().tensor("a.in_sum2", {2, 2}, {1, 2, 3, 4}).tensor("a.counts", {3, 1}, {1, 1, 1}).bytes()),
              HasSubstr("2 rows of sums and 3 counts"));
  EXPECT_THAT(refusal(base().tensor("a.in_sum2", {1, 2}, {1, -2}).tensor("a.counts", {1, 1}, {1}).bytes()),
              HasSubstr("'a': sum 1 is -2"));
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(refusal(base().tensor("a.in_sum2", {1, 2}, {kNan, 2}).tensor("a.counts", {1, 1}, {1}).bytes()),
              HasSubstr("'a': sum 0 is nan"));
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_THAT(refusal(base().tensor("a.in_sum2", {1, 2}, {1, 2}).tensor("a.counts", {1, 1}, {kInfinity}).bytes()),
              HasSubstr("count 0 is inf"));
  EXPECT_THAT(refusal(base()
                          .tensor("a.in_sum2", tensor::DType::F16, {1, 2}, test::Bytes(4))
                          .tensor("a.counts", {1, 1}, {1})
                          .bytes()),
              HasSubstr("is F16; F32"));
}

TEST(BadImatrix, OldForm) {
  const test::Bytes good = content(test::data("imatrix/python.dat"));
  for (size_t n = 0; n < good.size(); ++n) {  // every cut but the one before the chunks, which some files end at
    if (n == good.size() - 23) continue;
    EXPECT_THAT(refusal(std::span(good).first(n)), HasSubstr("x: ")) << n;
  }
  const auto with = [&](size_t at, int32_t number) {
    test::Bytes bytes = good;
    std::memcpy(bytes.data() + at, &number, sizeof number);
    return bytes;
  };
  const size_t calls = 4 + 4 + std::strlen("blk.0.attn_q.weight");
  EXPECT_THAT(refusal(with(0, -1)), HasSubstr("the number of entries is -1"));
  EXPECT_THAT(refusal(with(0, 0x7fffffff)), HasSubstr("the number of entries is 2147483647"));
  EXPECT_THAT(refusal(with(4, 0x7fffffff)), HasSubstr("a name's length is 2147483647"));
  EXPECT_THAT(refusal(with(calls, 0)), HasSubstr("'blk.0.attn_q.weight' has 0 calls"));
  EXPECT_THAT(refusal(with(calls + 4, 0x7fffffff)), HasSubstr("the number of values is 2147483647"));
  EXPECT_THAT(refusal(with(calls + 8, 0x7fc00000)), HasSubstr("sum 0 is nan"));
  test::Bytes longer = good;
  longer.push_back(std::byte{0});
  EXPECT_THAT(refusal(longer), HasSubstr("has bytes after its end"));
  test::Bytes twice;
  test::append(twice, int32_t{2});
  for (int i = 0; i < 2; ++i) {
    test::append(twice, int32_t{1});
    test::append(twice, "a", 1);
    test::append(twice, int32_t{1});
    test::append(twice, int32_t{1});
    test::append(twice, 1.0f);
  }
  EXPECT_THAT(refusal(twice), HasSubstr("'a' is there twice"));
}

}  // namespace
}  // namespace assay
