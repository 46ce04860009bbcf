// Element types and views: the traits of every type number, and how rows are found.
#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <set>
#include <string_view>

#include "tensor/view.h"

namespace assay::tensor {
namespace {

TEST(DType, NumbersOutsideTheListAreRefused) {
  // 4 and 5 were removed from the format (Q4_2, Q4_3), as were 31 to 33 and 36 to 38 (repacked layouts); 29 is IQ1_M,
  // which is not served.
  for (const uint32_t number : {4u, 5u, 9u, 15u, 29u, 31u, 32u, 33u, 36u, 37u, 38u, 40u, 1000u, 0xFFFFFFFFu}) {
    EXPECT_EQ(find_traits(number), nullptr) << number;
  }
}

TEST(DType, EveryTypeHasItsOwnNumberAndName) {
  std::set<uint32_t> numbers;
  std::set<std::string_view> names;
  for (uint32_t number = 0; number < 64; ++number) {
    const DTypeTraits* t = find_traits(number);
    if (t == nullptr) continue;
    EXPECT_EQ(static_cast<uint32_t>(t->dtype), number);
    EXPECT_EQ(&traits(t->dtype), t);
    EXPECT_GT(t->block_bytes, 0);
    EXPECT_TRUE(t->block_elements == 1 || t->block_elements == 32 || t->block_elements == 256) << t->name;
    numbers.insert(number);
    names.insert(t->name);
  }
  EXPECT_EQ(numbers.size(), 29u);
  EXPECT_EQ(names.size(), 29u);
}

TEST(TensorView, RowsOfBlocks) {
  TensorView view;
  view.dtype = DType::Q4_0;
  view.shape = {{3, 64, 1, 1}, 2};
  std::byte bytes[3 * 36] = {};
  view.data = bytes;
  EXPECT_EQ(view.shape.rows(), 3);
  EXPECT_EQ(view.shape.cols(), 64);
  EXPECT_EQ(view.shape.elements(), 192);
  EXPECT_EQ(view.row_bytes(), 36);
  EXPECT_EQ(view.row(2), bytes + 72);
}

TEST(Mat, StridesAreInElements) {
  float values[6] = {1, 2, 3, 4, 5, 6};
  const Mat m{values, 2, 2, 3};
  EXPECT_EQ(m(1, 0), 4.0f);
  const ConstMat c = m;
  EXPECT_EQ(c(1, 1), 5.0f);
  EXPECT_EQ(c.row(1), values + 3);
}

}  // namespace
}  // namespace assay::tensor
