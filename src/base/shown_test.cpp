#include "base/shown.h"

#include <gtest/gtest.h>

namespace assay::base {
namespace {

TEST(Shown, EscapesAndCuts) {
  EXPECT_EQ(shown("blk.0.attn_q.weight"), "'blk.0.attn_q.weight'");
  EXPECT_EQ(shown(std::string_view("a\0\n\xff", 4)), "'a\\x00\\x0a\\xff'");
  EXPECT_EQ(shown(std::string(1000, 'x')), "'" + std::string(80, 'x') + "'...");
}

}  // namespace
}  // namespace assay::base
