// What may be given back of a plan's cache: of layers alone that everybody who reads them looks back at over a window.
#include "ops/attention/cache_windows.h"

#include <gtest/gtest.h>

#include "support/tiny_plan.h"

namespace assay::ops {
namespace {

Attention& attention_of(Plan& plan, int32_t layer) {
  for (Op& op : plan.ops) {
    auto* attention = op.as<Attention>();
    if (attention != nullptr && attention->layer == layer) return *attention;
  }
  throw std::logic_error("a layer without attention");
}

TEST(CacheWindows, OnlyLayersThatNobodySeesAllOf) {
  test::TinyPlan tiny({.n_layers = 5});
  EXPECT_TRUE(CacheWindows(tiny.plan).empty());
  attention_of(tiny.plan, 1).window = 8;
  attention_of(tiny.plan, 2).chunk = 100;
  attention_of(tiny.plan, 3).window = 8;
  attention_of(tiny.plan, 3).causal = false;  // sees what comes later, too
  attention_of(tiny.plan, 4).window = 4;
  tiny.plan.ops.push_back({attention_of(tiny.plan, 4), "another reader", 4});
  tiny.plan.ops.back().as<Attention>()->window = 0;
  const CacheWindows windows(tiny.plan);
  const std::vector<bool> expected = {false, true, true, false, false};
  for (size_t layer = 0; layer < expected.size(); ++layer)
    EXPECT_EQ(windows.has_window(layer), expected[layer]) << layer;
  EXPECT_FALSE(windows.empty());
  EXPECT_EQ(windows.first_seen(0), 0);
  EXPECT_EQ(windows.first_seen(99), 0);    // of the chunk
  EXPECT_EQ(windows.first_seen(100), 93);  // of the window: 100 is the first of its chunk
  EXPECT_EQ(windows.first_seen(150), 100);
  EXPECT_EQ(windows.first_seen(203), 196);
  tiny.plan.ops.back().as<Attention>()->window = 6;  // both look back shortly: the longer one counts
  EXPECT_TRUE(CacheWindows(tiny.plan).has_window(4));
}

}  // namespace
}  // namespace assay::ops
