#include "assay/diff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <cmath>
#include <cstring>
#include <limits>

#include "files/line_diff.h"
#include "gguf/file.h"
#include "support/gguf_edit.h"
#include "support/gguf_writer.h"
#include "support/temp_folder.h"
#include "support/tiny_llama.h"

namespace assay {
namespace {

using test::GgufWriter;
using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string folder_path(const test::TempFolder& folder, const std::string& name) { return (folder / (name + ".gguf")).string(); }

DiffResult diff(const GgufWriter& a, const GgufWriter& b) {
  const test::TempFolder folder;
  a.write(folder / "a.gguf");
  b.write(folder / "b.gguf");
  return diff_files((folder / "a.gguf").string(), (folder / "b.gguf").string());
}

TEST(Diff, NothingDiffers) {
  GgufWriter file;
  file.set("general.name", "x").tensor("w", {2, 2}, {1, 2, 3, 4});
  const DiffResult found = diff(file, file);
  EXPECT_FALSE(found.differs());
  EXPECT_EQ(found.n_tensors_same, 1);
  EXPECT_THAT(found.to_text(), HasSubstr("no difference"));
}

TEST(Diff, Metadata) {
  GgufWriter a, b;
  a.set("only.a", 1).set("both", 7).set("type", 1);
  b.set("both", 7).set("type", uint32_t{1}).set("only.b", "x");
  a.set("tokens", std::vector<std::string>{"a", "b", "c"});
  b.set("tokens", std::vector<std::string>{"a", "B", "c", "d"});
  const std::string end(150, 'e');
  a.set("template", "one\ntwo\nthree\n" + end);
  b.set("template", "one\n2\nthree\nfour\n" + end);
  a.set("split.count", uint16_t{0}).set("split.no", uint16_t{0});  // as llama-gguf-split leaves them
  const DiffResult found = diff(a, b);
  ASSERT_EQ(found.metadata.size(), 5u);
  EXPECT_EQ(found.metadata[0].key, "only.a");
  EXPECT_EQ(found.metadata[0].before, "i32 1");
  EXPECT_EQ(found.metadata[0].after, "");
  EXPECT_EQ(found.metadata[1].after, "u32 1");
  EXPECT_THAT(found.metadata[2].lines, ElementsAre("-[1] string \"b\"", "+[1] string \"B\"", "+[3] string \"d\""));
  EXPECT_THAT(found.metadata[3].lines, ElementsAre("-two", "+2", "+four"));
  EXPECT_EQ(found.metadata[4].key, "only.b");
  const auto json = boost::json::parse(found.to_json());
  EXPECT_EQ(json.at("metadata").as_array().size(), 5u);
  EXPECT_EQ(json.at("metadata").at(1).at("key").as_string(), "type");
  EXPECT_THAT(found.to_text(), HasSubstr("    A (not there)\n    B string \"x\"\n"));
}

// Small enough to work out by hand.
TEST(Diff, FiguresOfValues) {
  GgufWriter a, b;
  a.tensor("near", {2, 2}, {1, 2, 3, 4}).tensor("far", {2, 2}, {1, 2, 3, 4}).tensor("same", {1}, {5}).tensor("zero", {2}, {0, 0});
  b.tensor("near", {2, 2}, {1, 2, 3, 4.5f}).tensor("far", {2, 2}, {1, -2, 3, 4}).tensor("same", {1}, {5}).tensor("zero", {2}, {0, 1});
  const DiffResult found = diff(a, b);
  EXPECT_EQ(found.n_tensors_same, 1);
  ASSERT_EQ(found.tensors.size(), 3u);
  EXPECT_EQ(found.tensors[0].name, "zero");
  EXPECT_TRUE(std::isinf(found.tensors[0].relative_rmse));
  EXPECT_TRUE(std::isnan(found.tensors[0].cosine));
  const TensorDifference& far = found.tensors[1];
  EXPECT_EQ(far.name, "far");
  EXPECT_THAT(far.rmse, DoubleEq(2));
  EXPECT_THAT(far.relative_rmse, DoubleEq(2 / std::sqrt(30.0 / 4)));
  EXPECT_THAT(far.largest, DoubleEq(4));
  EXPECT_THAT(far.place, ElementsAre(0, 1));
  EXPECT_THAT(far.cosine, DoubleEq((1 - 4 + 9 + 16) / 30.0));
  EXPECT_THAT(far.changed, DoubleEq(0.25));
  EXPECT_EQ(found.tensors[2].name, "near");
  EXPECT_THAT(found.tensors[2].place, ElementsAre(1, 1));
  const auto json = boost::json::parse(found.to_json());
  EXPECT_EQ(json.at("tensors").at(0).at("relative_rmse").as_string(), "inf");
  EXPECT_EQ(json.at("tensors").at(1).at("largest").to_number<double>(), 4);
  EXPECT_EQ(json.at("tensors_same").as_int64(), 1);
}

TEST(Diff, OfThreeDimensionsAndNumbersThatAreNone) {
  std::vector<float> values(12, 1.0f), other(12, 1.0f);
  other[7] = 3;  // [1, 0, 1]
  values[2] = other[2] = std::numeric_limits<float>::quiet_NaN();
  other[4] = std::numeric_limits<float>::infinity();
  GgufWriter a, b;
  a.tensor("w", {2, 2, 3}, values);
  b.tensor("w", {2, 2, 3}, other);
  const DiffResult found = diff(a, b);
  ASSERT_EQ(found.tensors.size(), 1u);
  EXPECT_THAT(found.tensors[0].place, ElementsAre(1, 0, 1));
  EXPECT_EQ(found.tensors[0].n_not_finite, 2);
  EXPECT_THAT(found.tensors[0].changed, DoubleEq(2.0 / 12));
  EXPECT_THAT(found.tensors[0].rmse, DoubleEq(std::sqrt(4.0 / 10)));
}

TEST(Diff, ShapesTypesAndTensorsOfOneFile) {
  GgufWriter a, b;
  a.tensor("gone", {1}, {1}).tensor("shape", {2, 1}, {1, 2}).tensor("half", {2}, {1, 2});
  b.tensor("half", tensor::DType::F16, {2}, std::as_bytes(std::span<const uint16_t>(std::vector<uint16_t>{0x3c00, 0x4000})));
  b.tensor("shape", {2}, {1, 2}).tensor("new", {1}, {1});
  const DiffResult found = diff(a, b);
  ASSERT_EQ(found.tensors.size(), 3u);
  EXPECT_EQ(found.n_tensors_same, 1) << "1 and 2 are the same numbers as F16";
  EXPECT_EQ(found.tensors[0].kind, TensorDifference::Kind::only_a);
  EXPECT_EQ(found.tensors[1].kind, TensorDifference::Kind::only_b);
  EXPECT_EQ(found.tensors[1].type_b, "F32");
  EXPECT_EQ(found.tensors[2].kind, TensorDifference::Kind::shape);
  EXPECT_THAT(found.to_text(), HasSubstr("another shape: F32 [2, 1] in A, F32 [2] in B"));
}

TEST(Diff, NoControlCharacterOfAFileReachesATerminal) {
  GgufWriter a, b;
  a.set("k\x1b[2J", "v").set("text", std::string(130, 'x') + "\n\x1b[1mone\n");
  b.set("text", std::string(130, 'x') + "\n\xc2\x9btwo\n").tensor("t\x1b]0;", {1}, {1});
  const std::string text = diff(a, b).to_text();
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find("\xc2\x9b"), std::string::npos);
  EXPECT_THAT(text, HasSubstr("-\\x1b[1mone"));
}

TEST(Diff, CanBeCancelled) {
  const test::TempFolder folder;
  GgufWriter().tensor("w", {4, 1}, {1, 2, 3, 4}).write(folder / "a.gguf");
  int asked = 0;
  FileProgress watch;
  watch.cancelled = [&] { return ++asked == 3; };
  EXPECT_TRUE(diff_files((folder / "a.gguf").string(), (folder / "a.gguf").string(), watch).cancelled);
  EXPECT_EQ(asked, 3);
}

// Models ruined on purpose: what was done leads the list.
TEST(Diff, ARuinedModelShowsWhere) {
  const test::TempFolder folder;
  test::TinyLlamaWriter({}).file().write(folder_path(folder, "a"));
  const gguf::File file = gguf::File::open(folder_path(folder, "a"));
  constexpr size_t kHeadDim = 64, kRowBytes = 256 * sizeof(float);
  const auto interleave_queries = [](std::string_view name, test::Bytes& data) {  // the halves of each head's rows, of layer 1
    if (name != "blk.1.attn_q.weight") return;
    const test::Bytes old = data;
    for (size_t row = 0; row < old.size() / kRowBytes; ++row) {
      const size_t head = row / kHeadDim, i = row % kHeadDim;
      const size_t to = head * kHeadDim + (i % (kHeadDim / 2)) * 2 + i / (kHeadDim / 2);
      std::memcpy(data.data() + to * kRowBytes, old.data() + row * kRowBytes, kRowBytes);
    }
  };
  test::edited_copy(file, {}, interleave_queries).write(folder_path(folder, "b"));
  const DiffResult queries = diff_files(folder_path(folder, "a"), folder_path(folder, "b"));
  ASSERT_EQ(queries.tensors.size(), 1u);
  EXPECT_EQ(queries.tensors[0].name, "blk.1.attn_q.weight");
  EXPECT_GT(queries.tensors[0].relative_rmse, 1.3);
  EXPECT_LT(queries.tensors[0].cosine, 0.1);

  const auto less_one = [](std::string_view name, test::Bytes& data) {  // a norm without its + 1, and a rounding of all else
    for (size_t at = 0; at < data.size(); at += sizeof(float)) {
      float x = 0;
      std::memcpy(&x, data.data() + at, sizeof x);
      x = name == "blk.0.ffn_norm.weight" ? x - 1 : x * 1.001f;
      std::memcpy(data.data() + at, &x, sizeof x);
    }
  };
  test::edited_copy(file, {}, less_one).write(folder_path(folder, "b"));
  const DiffResult norm = diff_files(folder_path(folder, "a"), folder_path(folder, "b"));
  EXPECT_EQ(norm.tensors.size(), file.tensors().size());
  EXPECT_EQ(norm.tensors[0].name, "blk.0.ffn_norm.weight");
  EXPECT_NEAR(norm.tensors[0].largest, 1, 1e-6);
  EXPECT_NEAR(norm.tensors[1].relative_rmse, 0.001, 1e-6);
}

TEST(LineDiff, ShortestWay) {
  using files::line_diff;
  EXPECT_THAT(line_diff({"a", "b", "c"}, {"a", "b", "c"}, 10), IsEmpty());
  EXPECT_THAT(line_diff({}, {"a"}, 10), ElementsAre("+a"));
  EXPECT_THAT(line_diff({"a", "b", "c", "d"}, {"b", "x", "d", "e"}, 10), ElementsAre("-a", "-c", "+x", "+e"));
  EXPECT_THAT(line_diff({"a", "b", "c"}, {}, 2), ElementsAre("-a", "-b", "..."));
  EXPECT_THAT(files::lines_of("a\n\nb"), ElementsAre("a", "", "b"));
}

}  // namespace
}  // namespace assay
