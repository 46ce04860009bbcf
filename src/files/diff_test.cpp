#include "assay/diff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>

#include "assay/convert.h"
#include "assay/error.h"
#include "files/line_diff.h"
#include "gguf/file.h"
#include "support/gguf_edit.h"
#include "support/gguf_writer.h"
#include "support/hf_folder.h"
#include "support/temp_folder.h"
#include "support/tiny_chat_model.h"
#include "support/tiny_llama.h"

namespace assay {
namespace {

using test::GgufWriter;
using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string folder_path(const test::TempFolder& folder, const std::string& name) {
  return (folder / (name + ".gguf")).string();
}

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
  a.tensor("near", {2, 2}, {1, 2, 3, 4})
      .tensor("far", {2, 2}, {1, 2, 3, 4})
      .tensor("same", {1}, {5})
      .tensor("zero", {2}, {0, 0});
  b.tensor("near", {2, 2}, {1, 2, 3, 4.5f})
      .tensor("far", {2, 2}, {1, -2, 3, 4})
      .tensor("same", {1}, {5})
      .tensor("zero", {2}, {0, 1});
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
  b.tensor("half", tensor::DType::F16, {2},
           std::as_bytes(std::span<const uint16_t>(std::vector<uint16_t>{0x3c00, 0x4000})));
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
  EXPECT_TRUE(diff_files((folder / "a.gguf").string(), (folder / "a.gguf").string(), {.watch = watch}).cancelled);
  EXPECT_EQ(asked, 3);
}

// Models ruined on purpose: what was done leads the list.
TEST(Diff, ARuinedModelShowsWhere) {
  const test::TempFolder folder;
  test::TinyLlamaWriter({}).file().write(folder_path(folder, "a"));
  const gguf::File file = gguf::File::open(folder_path(folder, "a"));
  constexpr size_t kHeadDim = 64, kRowBytes = 256 * sizeof(float);
  const auto interleave_queries = [](std::string_view name,
                                     test::Bytes& data) {  // the halves of each head's rows, of layer 1
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

  const auto less_one = [](std::string_view name,
                           test::Bytes& data) {  // a norm without its + 1, and a rounding of all else
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

// A model of bytes, and what was done to it.
class RankedDiff : public ::testing::Test {
 protected:
  RankedDiff() { test::write_tiny_chat_model(a()); }
  std::string a() const { return folder_path(folder_, "a"); }
  std::string b() const { return folder_path(folder_, "b"); }
  // Every value of every tensor times 1.001, of one tensor by `change`.
  void write_b(const std::string& name, const std::function<void(std::span<float>)>& change) const {
    const gguf::File file = gguf::File::open(a());
    const auto edit = [&](std::string_view of, test::Bytes& data) {
      std::vector<float> values(data.size() / sizeof(float));
      std::memcpy(values.data(), data.data(), data.size());
      for (float& x : values) x *= 1.001f;
      if (of == name) change(values);
      std::memcpy(data.data(), values.data(), data.size());
    };
    test::edited_copy(file, {}, edit).write(b());
  }
  DiffResult ranked(bool estimate = false) const {
    DiffOptions options;
    options.kld = true;
    options.kld_estimate = estimate;
    options.n_threads = 2;
    options.n_chunk = 128;
    return diff_files(a(), b(), options);
  }
  DiffResult ranked_against(const std::string& folder, DiffOptions options) const {
    options.kld = true;
    options.n_threads = 2;
    return diff_files(folder, b(), options);
  }

  test::TempFolder folder_;
};

// Rows of q that were not re-ordered for the rotation: the halves of each head interleaved.
TEST_F(RankedDiff, RowsInAnotherOrderAreFirst) {
  constexpr size_t kHeadDim = 16, kColumns = 64;
  write_b("blk.1.attn_q.weight", [](std::span<float> values) {
    const std::vector<float> old(values.begin(), values.end());
    for (size_t row = 0; row < old.size() / kColumns; ++row) {
      const size_t i = row % kHeadDim, to = row - i + (i % (kHeadDim / 2)) * 2 + i / (kHeadDim / 2);
      std::copy_n(old.data() + row * kColumns, kColumns, values.data() + to * kColumns);
    }
  });
  for (const bool estimate : {false, true}) {
    const DiffResult found = ranked(estimate);
    ASSERT_FALSE(found.tensors.empty());
    EXPECT_EQ(found.tensors[0].name, "blk.1.attn_q.weight");
    EXPECT_GT(*found.tensors[0].kld, 3 * *found.tensors[1].kld) << found.to_text();
    for (size_t i = 1; i < found.tensors.size(); ++i) EXPECT_GE(*found.tensors[i - 1].kld, *found.tensors[i].kld);
  }
}

TEST_F(RankedDiff, ANormWithoutItsOneIsFirst) {
  write_b("output_norm.weight", [](std::span<float> values) {
    for (float& x : values) x -= 1;
  });
  const DiffResult found = ranked();
  EXPECT_EQ(found.tensors[0].name, "output_norm.weight");
  EXPECT_GT(*found.tensors[0].kld, 10 * *found.tensors[1].kld) << found.to_text();
  EXPECT_NEAR(*found.kld_all, *found.tensors[0].kld, 0.2 * *found.kld_all);
}

TEST_F(RankedDiff, ReportsAndSplitFiles) {
  write_b("blk.0.ffn_up.weight", [](std::span<float> values) {
    for (float& x : values) x = 0;
  });
  const DiffResult found = ranked(true);
  EXPECT_EQ(found.n_tokens_run, 127);
  EXPECT_EQ(found.n_scored, 63);
  const auto json = boost::json::parse(found.to_json());
  for (size_t i = 0; i < found.tensors.size(); ++i) {
    EXPECT_DOUBLE_EQ(json.at("tensors").at(i).at("kld").to_number<double>(), *found.tensors[i].kld);
    EXPECT_EQ(json.at("tensors").at(i).at("kld_estimated").as_bool(), found.tensors[i].name.starts_with("blk.0."))
        << found.tensors[i].name;
  }
  EXPECT_DOUBLE_EQ(json.at("kld_all").to_number<double>(), *found.kld_all);
  EXPECT_EQ(json.at("tokens_scored").as_int64(), 63);
  EXPECT_THAT(found.to_text(), HasSubstr("KLD"));
  // Parts in the place of either.
  split_file(a(), (folder_ / "part").string(), {.n_tensors_max = 9});
  DiffOptions options;
  options.kld = options.kld_estimate = true;
  options.n_chunk = 128;
  const DiffResult parts = diff_files((folder_ / "part-00001-of-00003.gguf").string(), b(), options);
  ASSERT_EQ(parts.tensors.size(), found.tensors.size());
  for (size_t i = 0; i < parts.tensors.size(); ++i) EXPECT_EQ(*parts.tensors[i].kld, *found.tensors[i].kld);
  options.kld_text = "another text, which is long enough";
  EXPECT_NE(*diff_files(a(), b(), options).kld_all, *found.kld_all);
  options.kld_text = "short";
  EXPECT_THROW(diff_files(a(), b(), options), Error);
}

TEST_F(RankedDiff, AFolderIsConvertedAndNothingIsLeft) {
  const test::TempFolder temporary;
  DiffOptions asked;
  asked.temporary_folder = temporary.path().string();
  const std::string folder = (folder_ / "folder").string();
  test::write_hf_folder(folder);
  ConvertOptions options;
  options.outtype = "bf16";
  convert(folder, b(), options);
  const DiffResult same = diff_files(folder, b(), asked);
  EXPECT_FALSE(same.differs()) << same.to_text();
  EXPECT_EQ(same.a, folder);
  options.outtype = "q8_0";
  convert(folder, b(), options);
  const DiffResult found = ranked_against(folder, asked);
  EXPECT_GT(*found.kld_all, 0);
  EXPECT_TRUE(std::filesystem::is_empty(temporary.path()));
  std::filesystem::remove(std::filesystem::path(folder) / "model.safetensors");
  EXPECT_THROW(diff_files(folder, b(), asked), Error);
  EXPECT_TRUE(std::filesystem::is_empty(temporary.path()));
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
