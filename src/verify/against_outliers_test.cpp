// Who is named the outlier.
#include "verify/against_outliers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "assay/error.h"
#include "verify/modes.h"

namespace assay::verify {
namespace {

using testing::Contains;
using testing::HasSubstr;

SourceFigures source(const std::string& name, double local_error, double bound, double logits_error) {
  SourceFigures figures;
  figures.name = name;
  figures.logits_error = logits_error;
  for (const char* op : {"blk.0.attn_q", "blk.0.attn_output"}) {
    OpFigures of_op;
    of_op.op = op;
    of_op.kind = "linear";
    of_op.local_error = local_error;
    of_op.bound = bound;
    of_op.worst_ratio = local_error / bound;
    figures.ops.push_back(of_op);
  }
  return figures;
}

std::vector<bool> outliers(std::vector<SourceFigures> sources) {
  mark_outliers(sources);
  std::vector<bool> marks;
  for (const SourceFigures& one : sources) marks.push_back(one.outlier);
  return marks;
}

TEST(Outliers, ASourceOutOfItsOwnBoundIsOneHoweverNearItsLogitsAre) {
  SourceFigures broken = source("b", 1e-6, 1e-5, 1e-7);
  broken.first_failure = Place{"blk.0.attn_q"};
  EXPECT_EQ(outliers({source("a", 1e-6, 1e-5, 1e-6), broken, source("c", 1e-3, 1e-2, 1e-3)}),
            (std::vector<bool>{false, true, false}));
}

TEST(Outliers, CoarseRoundingThatWasDeclaredIsNone) {
  EXPECT_EQ(outliers({source("a", 1e-6, 1e-5, 2e-6), source("b", 4e-3, 1e-2, 8e-3), source("c", 1e-6, 1e-5, 3e-6)}),
            (std::vector<bool>{false, false, false}));
}

TEST(Outliers, LogitsBeyondWhatTheBoundsExplainAreOne) {
  EXPECT_EQ(outliers({source("a", 1e-6, 1e-5, 2e-6), source("b", 1e-6, 1e-5, 8e-3), source("c", 1e-6, 1e-5, 3e-6)}),
            (std::vector<bool>{false, true, false}));
}

TEST(Outliers, WithoutAnotherSourceNothingIsKnownOfTheModel) {
  EXPECT_EQ(outliers({source("a", 1e-6, 1e-5, 8e-3)}), (std::vector<bool>{false}));
  EXPECT_EQ(outliers({source("a", 1e-16, 1e-15, 1e-15), source("b", 1e-6, 1e-5, 8e-3)}),
            (std::vector<bool>{false, false}));
}

TEST(Outliers, AnotherFileIsToldByProductsThatAreOutsideWhileOpsWithoutWeightsAreNot) {
  SourceFigures other = source("b", 1e-1, 1e-5, 1e-1);
  other.first_failure = Place{"blk.0.attn_q"};
  for (OpFigures& op : other.ops) op.n_outside = 7;
  OpFigures rope;
  rope.op = "blk.0.attn_q_rope";
  rope.kind = "rope";
  other.ops.push_back(rope);
  EXPECT_THAT(describe_source(other), Contains(HasSubstr("another file")));
  other.ops.back().n_outside = 1;
  EXPECT_THAT(describe_source(other), Not(Contains(HasSubstr("another file"))));
}

TEST(Modes, ChangeOneThing) {
  ContextOptions base;
  base.cache_k = KvType::q8_0;
  EXPECT_EQ(parse_mode("f32", base)->options.numerics, Numerics::f32);
  EXPECT_EQ(parse_mode("oracle", base)->options.numerics, Numerics::oracle);
  EXPECT_EQ(parse_mode("exact/8", base)->options.activation_bits, 8);
  EXPECT_EQ(parse_mode("exact/15", base)->options.activation_bits, 15);
  EXPECT_EQ(parse_mode("exact/8", base)->options.cache_k, KvType::q8_0);
  EXPECT_EQ(parse_mode("reference", base)->options.kernels, Kernels::reference);
  EXPECT_EQ(parse_mode("avx512", base)->options.kernels, Kernels::avx512);
  EXPECT_EQ(parse_mode("chunks/7", base)->n_chunk, 7);
  for (const char* none :
       {"", "exact/9", "chunks/", "chunks/0", "chunks/-1", "chunks/7x", "chunks/99999999999999999999", "F32"}) {
    EXPECT_FALSE(parse_mode(none, base)) << none;
  }
}

TEST(Modes, PromiseTheSameBitsWhereOnlyKernelsAndChunksDiffer) {
  const ContextOptions base;
  EXPECT_TRUE(promise_same_bits(base, parse_mode("reference", base)->options));
  EXPECT_TRUE(promise_same_bits(base, parse_mode("chunks/1", base)->options));
  EXPECT_FALSE(promise_same_bits(base, parse_mode("exact/8", base)->options));
  EXPECT_THROW(parse_mode("fast", base), Error);  // it has no bounds to be judged by
  EXPECT_FALSE(promise_same_bits(base, parse_mode("f32", base)->options));
  ContextOptions other = base;
  other.cache_v = KvType::f32;
  EXPECT_FALSE(promise_same_bits(base, other));
}

}  // namespace
}  // namespace assay::verify
