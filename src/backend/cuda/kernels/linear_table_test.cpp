// The table of products without a card: every format, number of tokens and class of cards has one row, and the rows of
// the main cases are named.
#include "backend/cuda/kernels/linear_table.h"

#include <gtest/gtest.h>

#include <string>

#include "backend/cuda/kernels/batch_layout.h"
#include "backend/cuda/linear/matrix.h"
#include "quant/format.h"

namespace assay::backend::cuda {
namespace {

using tensor::DType;

const Card kHopper = *find_card("h200"), kAmpere = *find_card("a100"), kAda = *find_card("rtx4090");
constexpr Card kBlackwell = {"a newer one", 10, 0, 148, 227 * 1024, 90, true};

// Products of so many rows each.
struct Products {
  std::vector<LinearMatrix> matrices;
  quant::Activation kind = quant::Activation::a32;
  int planes = 2;
  int64_t cols = 4096;

  Products(std::initializer_list<DType> formats, int of_planes, int64_t rows = 4096) : planes(of_planes) {
    for (const DType dtype : formats) matrices.push_back({dtype, rows, part_bytes(dtype, false).n > 1});
    kind = quant::find_format(*formats.begin())->activation;
  }
  LinearProducts view() const { return {matrices, kind, planes, cols}; }
};

// "2..16 batch tiles, 17..256 group tiles of wide batches, 257.. group tiles"; forms of batch tiles are not told apart.
std::string text_of(const LinearChoice& choice) {
  std::string text;
  for (size_t i = 0; i < choice.ranges().size(); ++i) {
    LinearRange range = choice.ranges()[i];
    for (; i + 1 < choice.ranges().size(); ++i) {
      const LinearRange& next = choice.ranges()[i + 1];
      if (next.together != range.together || next.each != range.each) break;
      range.tokens_max = next.tokens_max;
    }
    text += (text.empty() ? "" : ", ") + std::to_string(range.tokens_min) + "..";
    if (range.tokens_max != kAnyTokens) text += std::to_string(range.tokens_max);
    if (range.together != nullptr) text += " " + std::string(range.together->name);
    for (const LinearRow* row : range.each) text += row == nullptr ? "" : " | " + std::string(row->name);
  }
  return text;
}
std::string choice_of(const Products& products, const Card& card) {
  return text_of(LinearChoice(products.view(), card));
}

TEST(CudaLinearTable, NamesAreUnique) {
  for (const LinearRow& row : linear_table()) EXPECT_EQ(find_linear_row(row.name), &row);
  EXPECT_EQ(find_linear_row("no such row"), nullptr);
}

TEST(CudaLinearTable, EveryNumberOfTokensHasOneRow) {
  for (const Card& card : {kHopper, kAmpere, kAda, kBlackwell}) {
    for (const quant::Format& format : quant::all_formats()) {
      if (format.activation == quant::Activation::f32) continue;
      for (const int planes : {1, 2}) {
        for (const int64_t rows : {1, 31, 32, 1000, 128256}) {
          for (const int64_t cols : {256, 2048, 4096, 14336, 131072, 1 << 24}) {
            Products products({format.dtype}, planes, rows);
            products.cols = cols;
            const LinearChoice choice(products.view(), card);
            int64_t next = 1;
            for (const LinearRange& range : choice.ranges()) {
              ASSERT_EQ(range.tokens_min, next) << text_of(choice);
              ASSERT_NE(range.together, nullptr) << "one matrix is together with itself: " << text_of(choice);
              for (const int64_t n : {range.tokens_min, range.tokens_max})
                ASSERT_TRUE(n == kAnyTokens || takes(*range.together, products.view(), n, card)) << text_of(choice);
              next = range.tokens_max + 1;
            }
            ASSERT_EQ(choice.ranges().back().tokens_max, kAnyTokens);
            for (const int64_t n : {1, 2, 8, 9, 48, 256, 257, 100000}) {
              EXPECT_LE(choice.at(n).tokens_min, n);
              EXPECT_GE(choice.at(n).tokens_max, n);
            }
          }
        }
      }
    }
  }
}

TEST(CudaLinearTable, SuperblocksOnHopper) {
  constexpr std::string_view kTwoPlanes =
      "1..1 vector, 2..16 batch tiles, 17..32 group tiles of wide batches, 64 columns, "
      "33..256 group tiles of wide batches, 257.. group tiles";
  constexpr std::string_view kOnePlane =
      "1..1 vector, 2..32 batch tiles, 33..64 group tiles of wide batches, 64 columns, "
      "65..256 group tiles of wide batches, 257.. group tiles";
  for (const DType dtype : {DType::Q4_K, DType::Q5_K, DType::Q6_K}) {
    EXPECT_EQ(choice_of({{dtype}, 2}, kHopper), kTwoPlanes);
    EXPECT_EQ(choice_of({{dtype}, 1}, kHopper), kOnePlane);
  }
  Products long_rows({DType::Q4_K}, 2);
  long_rows.cols = 20 * 256;  // from there on fewer columns are enough
  EXPECT_EQ(choice_of(long_rows, kHopper),
            "1..1 vector, 2..8 batch tiles, 9..32 group tiles of wide batches, 64 columns, 33..256 group tiles of wide "
            "batches, 257.. group tiles");
  EXPECT_EQ(choice_of({{DType::Q4_K}, 2, 31}, kHopper),
            "1..8 vector, 9..16 group tiles, 64 columns, 17..32 group tiles of wide batches, 64 columns, 33..256 group "
            "tiles of wide batches, 257.. group tiles");
}

TEST(CudaLinearTable, BlocksOf32OnHopper) {
  for (const DType dtype : {DType::Q4_0, DType::Q4_1, DType::Q8_0}) {
    const LinearChoice one(Products({dtype}, 1).view(), kHopper), two(Products({dtype}, 2).view(), kHopper);
    for (const LinearChoice* choice : {&one, &two}) {
      EXPECT_EQ(choice->at(1).together->name, "vector");
      for (int64_t n = 2; n <= 23; ++n) EXPECT_EQ(choice->at(n).together->name, "batch tiles") << n;
      EXPECT_EQ(choice->at(257).together->name, "group tiles");
    }
  }
  // As large a product as that of a vocabulary takes group tiles sooner than one of few rows.
  const LinearChoice small(Products({DType::Q8_0}, 2, 512).view(), kHopper),
      large(Products({DType::Q8_0}, 2, 128256).view(), kHopper);
  EXPECT_EQ(large.at(64).together->name, "group tiles");
  EXPECT_EQ(small.at(64).together->name, "batch tiles");
}

// What batch tiles are started with is resolved with their row.
TEST(CudaLinearTable, BatchTilesHaveTheirForm) {
  const Products one({DType::Q4_K}, 2), two({DType::Q4_K, DType::IQ4_XS}, 2);
  const LinearChoice together(one.view(), kHopper), each(two.view(), kHopper);
  for (int64_t n = 2; n <= 16; ++n) {
    const auto form = batch_form(one.view(), n, kHopper);
    ASSERT_TRUE(form.has_value());
    EXPECT_EQ(together.at(n).forms[0], *form) << n;
    EXPECT_EQ(each.at(n).forms[0], *form) << n << ": the one of two matrices that is in batch tiles";
  }
}

TEST(CudaLinearTable, FormatsTogether) {
  EXPECT_EQ(
      choice_of({{DType::Q4_K, DType::Q4_K, DType::Q6_K}, 2}, kHopper),
      "1..1 vector, 2..16 batch tiles, 17..32 group tiles of wide batches, 64 columns, 33..256 group tiles of wide "
      "batches, 257.. | group tiles | group tiles | group tiles");
  EXPECT_EQ(choice_of({{DType::Q4_K, DType::Q5_K}, 2}, kHopper),
            "1..1 vector, 2..256 batch tiles, 257.. | group tiles | group tiles")
      << "no group tiles have both";
  EXPECT_EQ(choice_of({{DType::Q4_K, DType::IQ4_XS}, 2}, kHopper),
            "1..1 | vector | any format, 2..16 | batch tiles | any format, "
            "17..32 | group tiles of wide batches, 64 columns | any format, "
            "33..256 | group tiles of wide batches | any format, 257.. | group tiles | any format");
}

TEST(CudaLinearTable, FormatsWithoutKernelsOfTheirOwn) {
  for (const Card& card : {kHopper, kAmpere, kAda}) {
    for (const DType dtype : {DType::IQ4_NL, DType::IQ4_XS, DType::Q2_K, DType::Q3_K, DType::Q5_0, DType::Q5_1})
      EXPECT_EQ(choice_of({{dtype}, 2}, card), "1.. any format");
  }
}

// Tiles of two planes of 4-bit blocks alone fit into an A100's shared memory, none into that of smaller cards.
TEST(CudaLinearTable, OtherCards) {
  constexpr std::string_view kTiles = "1..8 vector, 9.. tiles", kNone = "1..8 vector, 9.. any format";
  for (const DType dtype : {DType::Q4_0, DType::Q4_1, DType::Q8_0, DType::Q4_K, DType::Q5_K, DType::Q6_K}) {
    for (const int planes : {1, 2}) {
      const bool fits = planes == 2 && (dtype == DType::Q4_0 || dtype == DType::Q4_1);
      EXPECT_EQ(choice_of({{dtype}, planes}, kAmpere), fits ? kTiles : kNone);
      EXPECT_EQ(choice_of({{dtype}, planes}, kAda), kNone);
      EXPECT_EQ(choice_of({{dtype}, planes}, kBlackwell), kTiles);
    }
  }
  Card without_maps = kHopper;
  without_maps.has_tensor_maps = false;
  EXPECT_EQ(choice_of({{DType::Q4_K}, 2}, without_maps), kTiles);
}

TEST(CudaLinearTable, FormsOfBatchTiles) {
  const Products q4({DType::Q4_K}, 2);
  EXPECT_EQ(batch_form(q4.view(), 2, kHopper), (BatchForm{2, 2, 2, 2, 4}));
  EXPECT_EQ(batch_form(q4.view(), 9, kHopper), (BatchForm{2, 4, 2, 1, 4}));
  const Products one({DType::Q4_K}, 1);
  EXPECT_EQ(batch_form(one.view(), 8, kHopper), (BatchForm{1, 1, 3, 2, 4}));
  EXPECT_EQ(batch_form(Products({DType::Q8_0}, 1).view(), 8, kHopper), (BatchForm{1, 1, 2, 2, 8}));
  EXPECT_EQ(batch_form(Products({DType::Q4_K}, 2, 128256).view(), 2, kHopper), (BatchForm{2, 2, 2, 2, 1}))
      << "many rows";
  EXPECT_FALSE(batch_form(Products({DType::Q4_K}, 2, 31).view(), 2, kHopper)) << "fewer rows than a tile's";
  Products endless({DType::Q4_K}, 2);
  endless.cols = 1 << 22;
  EXPECT_FALSE(batch_form(endless.view(), 2, kHopper)) << "rows too long for shared memory";
}

}  // namespace
}  // namespace assay::backend::cuda
