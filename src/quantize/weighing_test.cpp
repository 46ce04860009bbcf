// Importance matrices in quantize(): what they change, and which are refused.
#include "quantize/weighing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "assay/error.h"
#include "quant/encode/encoder.h"
#include "quant/format.h"
#include "quantize/evening.h"
#include "support/gguf_writer.h"
#include "support/random_numbers.h"
#include "support/temp_folder.h"

namespace assay {
namespace {

using tensor::DType;
using testing::HasSubstr;

constexpr int64_t kRows = 3, kColumns = 256, kExperts = 2;
constexpr const char* kUp = "blk.0.ffn_up.weight";
constexpr const char* kGate = "blk.0.ffn_gate.weight";
constexpr const char* kExpertsDown = "blk.0.ffn_down_exps.weight";

class WeighingTest : public testing::Test {
 protected:
  WeighingTest() {
    test::Random random(5);
    const auto numbers = [&](int64_t n, bool positive = false) {
      std::vector<float> x(static_cast<size_t>(n));
      for (float& value : x) value = positive ? std::exp(2 * random.normal()) : 0.02f * random.normal();
      return x;
    };
    test::GgufWriter file;
    file.set("general.architecture", "llama").set("llama.block_count", uint32_t{1});
    file.tensor(kExpertsDown, {kExperts, kRows, kColumns}, numbers(kExperts * kRows * kColumns));
    file.tensor(kGate, {kRows, kColumns}, numbers(kRows * kColumns));
    file.tensor(kUp, {kRows, kColumns}, numbers(kRows * kColumns));
    file.write(in());
    matrix_ = {{"text"},
               7,
               512,
               {{kExpertsDown, numbers(kExperts * kColumns, true), {5, 9}},
                {kGate, numbers(kColumns, true), {14}},
                {kUp, numbers(kColumns, true), {14}}}};
    options_.type = "Q4_0";
    options_.n_threads = 2;
    options_.imatrix = folder_ / "matrix.gguf";
  }
  std::filesystem::path in() const { return folder_ / "in.gguf"; }
  std::filesystem::path out() const { return folder_ / "out.gguf"; }
  QuantizeResult run() {
    if (options_.imatrix) write_imatrix(matrix_, options_.imatrix->string());
    return quantize(in(), out(), options_);
  }
  std::string refusal() {
    try {
      run();
    } catch (const Error& e) {
      EXPECT_EQ(e.code, Errc::bad_request) << e.what();
      return e.what();
    }
    return "nothing was thrown";
  }
  // The bytes of a row that the encoder gives with these importances.
  static std::vector<std::byte> encoded(const tensor::TensorView& source, int64_t row, DType dtype, const float* w) {
    std::vector<float> x(kColumns);
    quant::decode_row(*quant::find_format(source.dtype), source.row(row), kColumns, x.data());
    const tensor::DTypeTraits& t = tensor::traits(dtype);
    std::vector<std::byte> bytes(static_cast<size_t>(kColumns / t.block_elements * t.block_bytes));
    quant::encode::find_encoder(dtype)(x.data(), w, kColumns, quant::encode::Effort::normal, bytes.data());
    return bytes;
  }
  static bool same_row(const gguf::Tensor& t, int64_t row, const std::vector<std::byte>& bytes) {
    return std::equal(bytes.begin(), bytes.end(), t.view.row(row));
  }

  test::TempFolder folder_;
  Imatrix matrix_;
  QuantizeOptions options_;
};

TEST_F(WeighingTest, EachMatrixIsWeighedByItsOwnRow) {
  const QuantizeResult r = run();
  const gguf::File from = gguf::File::open(in()), to = gguf::File::open(out());
  for (const char* name : {kExpertsDown, kGate, kUp}) {
    const gguf::Tensor &source = *from.find(name), &t = *to.find(name);
    // A power of two apart from what the encoder is given, which it does not see.
    const std::vector<float> w = quantizing::evened(matrix_.find(name)->importance(), kColumns, t.view.dtype);
    for (int64_t row = 0; row < t.view.shape.rows(); ++row) {
      EXPECT_TRUE(same_row(t, row, encoded(source.view, row, t.view.dtype, w.data() + row / kRows * kColumns)))
          << name << " row " << row;
      EXPECT_FALSE(same_row(t, row, encoded(source.view, row, t.view.dtype, nullptr))) << name << " row " << row;
    }
  }
  for (const QuantizedTensor& t : r.plan.tensors) EXPECT_TRUE(t.is_weighted) << t.name;
}

TEST_F(WeighingTest, TheFileSaysWhichMatrix) {
  run();
  const gguf::File file = gguf::File::open(out());
  EXPECT_EQ(file.metadata().require_string("quantize.imatrix.file"), options_.imatrix->string());
  EXPECT_EQ(file.metadata().require_string("quantize.imatrix.dataset"), "text");
  EXPECT_EQ(file.metadata().require_unsigned("quantize.imatrix.entries_count"), 3u);
  EXPECT_EQ(file.metadata().require_unsigned("quantize.imatrix.chunks_count"), 7u);
}

TEST_F(WeighingTest, IncludedAndExcludedNames) {
  const auto weighted = [&] {
    std::vector<std::string> names;
    for (const QuantizedTensor& t : run().plan.tensors) {
      if (t.is_weighted) names.push_back(t.name);
    }
    return names;
  };
  options_.include_weights = {"ffn_up", "gate"};
  EXPECT_THAT(weighted(), testing::ElementsAre(kGate, kUp));
  options_.exclude_weights = {"exps"};
  EXPECT_THAT(refusal(), HasSubstr("one of them at most"));
  options_.include_weights.clear();
  EXPECT_THAT(weighted(), testing::ElementsAre(kGate, kUp));
  options_.exclude_weights = {"attn_"};
  EXPECT_THAT(refusal(), HasSubstr("'attn_': no name in the importance matrix"));
  options_.exclude_weights = {"ffn"};
  EXPECT_THAT(refusal(), HasSubstr("nothing of the importance matrix is left"));
  options_.imatrix.reset();
  EXPECT_THAT(refusal(), HasSubstr("need --imatrix FILE"));
}

TEST_F(WeighingTest, AMatrixOfAnotherModelIsRefused) {
  const Imatrix own = matrix_;
  matrix_.entries[1].sums.resize(128);
  EXPECT_THAT(
      refusal(),
      HasSubstr("'blk.0.ffn_gate.weight' has 128 sums and 1 counts there, and 256 columns and 1 matrices here"));
  matrix_ = own;
  matrix_.entries[0] = {kExpertsDown, std::vector<float>(kColumns), {3}};
  EXPECT_THAT(refusal(), HasSubstr("'blk.0.ffn_down_exps.weight' has 256 sums"));
  matrix_ = own;
  matrix_.entries[1].name = "blk.7.attn_q.weight";
  EXPECT_THAT(refusal(), HasSubstr("'blk.7.attn_q.weight' is no tensor of this one"));
  EXPECT_FALSE(std::filesystem::exists(out()));
}

TEST_F(WeighingTest, FormatsThatNeedAMatrixNameIt) {
  options_.type = "IQ2_XXS";
  EXPECT_EQ(run().plan.tensors.size(), 3u);
  matrix_.entries.pop_back();
  EXPECT_THAT(refusal(), HasSubstr("'blk.0.ffn_up.weight' would be IQ2_XXS, which is of no use without an importance "
                                   "matrix, and the one given has no data of it"));
  options_.imatrix.reset();
  EXPECT_THAT(refusal(), testing::AllOf(HasSubstr("which is of no use without an importance matrix"),
                                        HasSubstr("--imatrix FILE")));
}

TEST_F(WeighingTest, ExpertsThatNoTokenCameToAreListed) {
  matrix_.entries[0].counts[1] = 0;
  const QuantizePlan plan = run().plan;
  EXPECT_THAT(plan.tensors[0].experts_without_data, testing::ElementsAre(1));
  const std::vector<float> all_one = quantizing::evened(std::vector<float>(kColumns, 1.0f), kColumns, DType::Q4_0);
  const gguf::File from = gguf::File::open(in()), to = gguf::File::open(out());
  EXPECT_TRUE(same_row(*to.find(kExpertsDown), kRows,
                       encoded(from.find(kExpertsDown)->view, kRows, DType::Q4_0, all_one.data())));
}

TEST(Evening, EachRowGetsAShareOfItsOwnMean) {
  const float share = quantizing::evening_share(DType::Q4_0);
  EXPECT_GT(share, 0);
  const std::vector<float> two_rows{1, 3, 8, 0}, evened = quantizing::evened(two_rows, 2, DType::Q4_0);
  const std::vector<float> wanted{1 + 2 * share, 3 + 2 * share, 8 + 4 * share, 4 * share};
  ASSERT_EQ(evened.size(), wanted.size());
  for (size_t j = 0; j < wanted.size(); ++j) EXPECT_FLOAT_EQ(evened[j], wanted[j]);
  EXPECT_EQ(quantizing::evening_share(DType::Q8_0), 0);
  EXPECT_EQ(quantizing::evened(two_rows, 2, DType::Q8_0), two_rows);
  EXPECT_TRUE(quantizing::evened({}, 2, DType::Q4_0).empty());
}

TEST_F(WeighingTest, ColumnsThatTheTextDidNotUseKeepAShare) {
  matrix_.entries[2].sums.assign(kColumns, 0.0f);
  matrix_.entries[2].sums[3] = 256;
  write_imatrix(matrix_, options_.imatrix->string());
  const gguf::File file = gguf::File::open(in());
  const quantizing::Weighing weighing(file, options_);
  const std::vector<float> w = weighing.of(kUp);
  EXPECT_EQ(w[3], std::ldexp(256.0f / 14, -4));
  EXPECT_FLOAT_EQ(w[4] / w[3], 1e-3f / 256);
  matrix_.entries[2].sums[3] = 0;
  write_imatrix(matrix_, options_.imatrix->string());
  EXPECT_THAT(quantizing::Weighing(file, options_).of(kUp), testing::Each(1.0f));
}

}  // namespace
}  // namespace assay
