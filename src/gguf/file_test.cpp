#include "gguf/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>

#include "assay/error.h"
#include "support/gguf_writer.h"
#include "support/temp_folder.h"

namespace assay::gguf {
namespace {

using tensor::DType;
using test::Bytes;
using test::GgufWriter;

TEST(GgufFile, ReadsTensorsAsViews) {
  for (uint32_t version : {2u, 3u}) {
    for (uint32_t alignment : {8u, 32u, 64u, 4096u, 65'536u}) {
      GgufWriter writer(version, alignment);
      writer.set("general.architecture", "test");
      writer.tensor("a", {2, 3}, {0, 1, 2, 3, 4, 5}).tensor("b", {5}, {6, 7, 8, 9, 10});
      writer.tensor("q", DType::Q8_0, {2, 2, 64}, Bytes(2 * 2 * 2 * 34, std::byte{3}));
      const Bytes bytes = writer.bytes();
      const File file = File::parse(bytes);
      EXPECT_EQ(file.version(), version);
      EXPECT_EQ(file.alignment(), alignment);
      EXPECT_EQ(file.file_bytes(), bytes.size());
      EXPECT_EQ(file.n_shards(), 1);
      ASSERT_EQ(file.tensors().size(), 3u);
      const Tensor* a = file.find("a");
      ASSERT_NE(a, nullptr);
      EXPECT_EQ(a->view.shape, (tensor::Shape{{2, 3, 1, 1}, 2}));
      EXPECT_EQ(a->view.row_bytes(), 12);
      float last;
      std::memcpy(&last, a->view.row(1) + 8, sizeof last);
      EXPECT_EQ(last, 5.0f);
      const Tensor& q = file.tensors()[2];
      EXPECT_EQ(q.view.shape, (tensor::Shape{{2, 2, 64, 1}, 3}));
      EXPECT_EQ(q.view.data.size(), 272u);
      EXPECT_EQ(q.view.data.data(), bytes.data() + q.file_offset);
      EXPECT_EQ(q.file_offset % alignment, 0u);
      EXPECT_EQ(file.find("c"), nullptr);
    }
  }
}

TEST(GgufFile, TheLastPaddingMayBeMissing) {
  GgufWriter writer;
  Bytes bytes = writer.tensor("a", {1}, {1}).bytes();
  bytes.resize(bytes.size() - 28);
  EXPECT_EQ(File::parse(bytes).tensors()[0].view.data.size(), 4u);
}

TEST(GgufFile, TakesAVocabularyWithoutTensors) {
  GgufWriter writer;
  Bytes bytes = writer.set("general.architecture", "llama").bytes();
  EXPECT_TRUE(File::parse(bytes).tensors().empty());
  bytes.resize(24 + 8 + 20 + 4 + 8 + 5);  // without any padding
  EXPECT_TRUE(File::parse(bytes).tensors().empty());
}

TEST(GgufFile, TakesNestedArrays) {
  Bytes nested;  // [[1, 2], [], [3]] of u8, then ["x", ""] as an array of arrays of strings
  for (auto [type, count] : {std::pair{9u, 3u}}) test::append(nested, type), test::append(nested, uint64_t{count});
  const std::vector<std::vector<uint8_t>> inner = {{1, 2}, {}, {3}};
  for (const auto& values : inner) {
    test::append(nested, 0u);
    test::append(nested, uint64_t{values.size()});
    test::append(nested, values.data(), values.size());
  }
  Bytes texts;
  test::append(texts, 9u);
  test::append(texts, uint64_t{1});
  test::append(texts, 8u);
  test::append(texts, uint64_t{2});
  test::append(texts, std::string_view("x"));
  test::append(texts, std::string_view(""));
  GgufWriter writer;
  const Bytes bytes = writer.raw_entry("n", 9, nested).raw_entry("t", 9, texts).set("after", "seen").bytes();
  const File file = File::parse(bytes);
  const Entry* n = file.metadata().find("n");
  ASSERT_NE(n, nullptr);
  EXPECT_EQ(n->element_type, ValueType::array);
  EXPECT_EQ(n->count, 3u);
  EXPECT_EQ(n->bytes.size(), nested.size() - 12);
  EXPECT_EQ(file.metadata().require_string("after"), "seen");
  EXPECT_THROW((void)file.metadata().find_integers("n"), Error);
}

// Arrays nested `depth` deep, the innermost of `count` u8.
Bytes nest(int depth, uint64_t count) {
  Bytes out;
  for (int i = 1; i < depth; ++i) test::append(out, 9u), test::append(out, uint64_t{1});
  test::append(out, 0u);
  test::append(out, count);
  out.resize(out.size() + count);
  return out;
}

TEST(GgufFile, NestsArraysUpToTheLimit) {
  for (int depth = 1; depth <= kArrayDepthMax; ++depth) {
    const Bytes bytes = GgufWriter().raw_entry("n", 9, nest(depth, 3)).set("after", "seen").bytes();
    EXPECT_EQ(File::parse(bytes).metadata().require_string("after"), "seen");
  }
  EXPECT_THROW(File::parse(GgufWriter().raw_entry("n", 9, nest(kArrayDepthMax + 1, 3)).bytes()), Error);
  EXPECT_THROW(File::parse(GgufWriter().raw_entry("n", 9, nest(100'000, 3)).bytes()), Error);
}

TEST(GgufFile, OpensAPath) {
  const test::TempFolder folder;
  GgufWriter().set("general.name", "x").tensor("a", {2}, {1, 2}).write(folder / "m.gguf");
  File file = File::open(folder / "m.gguf");
  EXPECT_EQ(file.metadata().require_string("general.name"), "x");
  file.check_sizes();
  File moved = std::move(file);
  EXPECT_NE(moved.find("a"), nullptr);
  std::filesystem::resize_file(folder / "m.gguf", 40);
  EXPECT_THROW(moved.check_sizes(), Error);
}

void write_shard(const std::filesystem::path& path, int number, int count, int n_tensors,
                 const std::vector<std::string>& names) {
  GgufWriter writer;
  if (number == 0) writer.set("general.architecture", "test");
  writer.set("split.no", static_cast<uint16_t>(number)).set("split.count", static_cast<uint16_t>(count));
  writer.set("split.tensors.count", n_tensors);
  for (const std::string& name : names) writer.tensor(name, {3}, {static_cast<float>(number), 1, 2});
  writer.write(path);
}

TEST(GgufFile, JoinsShards) {
  const test::TempFolder folder;
  write_shard(folder / "m-00001-of-00003.gguf", 0, 3, 4, {"a", "b"});
  write_shard(folder / "m-00002-of-00003.gguf", 1, 3, 4, {"c"});
  write_shard(folder / "m-00003-of-00003.gguf", 2, 3, 4, {"d"});
  const File file = File::open(folder / "m-00001-of-00003.gguf");
  EXPECT_EQ(file.n_shards(), 3);
  ASSERT_EQ(file.tensors().size(), 4u);
  const Tensor* d = file.find("d");
  ASSERT_NE(d, nullptr);
  EXPECT_EQ(d->shard, 2);
  float first;
  std::memcpy(&first, d->view.data.data(), sizeof first);
  EXPECT_EQ(first, 2.0f);
  EXPECT_EQ(file.metadata().require_string("general.architecture"), "test");
  uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) bytes += entry.file_size();
  EXPECT_EQ(file.file_bytes(), bytes);
}

}  // namespace
}  // namespace assay::gguf
