// The smaller tables without a card: floats, decode, attention; and the list of cards.
#include <gtest/gtest.h>

#include <set>
#include <span>
#include <string>
#include <string_view>

#include "backend/cuda/kernels/attention_table.h"
#include "backend/cuda/kernels/decode_table.h"
#include "backend/cuda/kernels/float_table.h"
#include "backend/cuda/kernels/unpack_table.h"
#include "quant/format.h"

namespace assay::backend::cuda {
namespace {

using ops::CacheType;
using tensor::DType;

const Card kHopper = *find_card("h200"), kAmpere = *find_card("a100"), kAda = *find_card("rtx4090");

TEST(CudaCards, AreFoundByName) {
  EXPECT_EQ(find_card(known_cards().front().name), &known_cards().front());
  EXPECT_EQ(find_card("abacus"), nullptr);
  EXPECT_TRUE(kHopper.has_groups());
  EXPECT_FALSE(kAmpere.has_clusters());
}

std::string floats_of(const FloatProduct& product, const Card& card) {
  std::string text;
  const FloatChoice choice(product, card);
  for (const FloatRange& range : choice.ranges()) {
    text += (text.empty() ? "" : ", ") + std::to_string(range.tokens_min) + "..";
    if (range.tokens_max != kAnyTokens) text += std::to_string(range.tokens_max);
    text += " " + std::string(range.row->name);
  }
  return text;
}
FloatProduct floats(DType dtype, int64_t cols, bool fast = false, bool packs_rows = true) {
  const bool is_cut = dtype == DType::Q4_K;
  return {{dtype, 4096, is_cut}, cols, fast, packs_rows, 4096 / kFloatTileRows};
}

// "1..1 floats, 2..2 .. of 2 tokens, .." as far as float skinny goes on a card that has the shared memory.
const std::string kSkinny = "1..1 floats, 2..2 float skinny, 2 tokens, 3..4 float skinny, 4 tokens, 5..";

TEST(CudaFloatTable, Exact) {
  const std::string rows_of_4096 =
      kSkinny + "48 float skinny, 8 tokens, 49..128 float tiles, 16 tokens, 129.. float tiles";
  EXPECT_EQ(floats_of(floats(DType::F16, 4096), kHopper), rows_of_4096);
  EXPECT_EQ(floats_of(floats(DType::Q4_K, 4096), kHopper), rows_of_4096) << "decoded, mode f32";
  EXPECT_EQ(floats_of(floats(DType::F32, 224), kHopper), kSkinny + " float skinny, 8 tokens") << "too short for tiles";
  EXPECT_EQ(floats_of(floats(DType::BF16, 100), kHopper), "1.. floats") << "no whole blocks of 32";
  EXPECT_EQ(floats_of(floats(DType::F32, 4096), kAmpere),
            "1..1 floats, 2..2 float skinny, 2 tokens, 3..4 float skinny, 4 tokens, short rings, 5.. float "
            "skinny, 8 tokens, short rings");
  EXPECT_EQ(floats_of(floats(DType::F32, 4096), kAda),
            "1..1 floats, 2..2 float skinny, 2 tokens, short rings, 3.. float skinny, 4 tokens, short rings");
  EXPECT_EQ(floats_of(floats(DType::F16, 4096), kAda),
            "1..1 floats, 2..2 float skinny, 2 tokens, 3..4 float skinny, 4 tokens, short rings, 5.. float "
            "skinny, 8 tokens, short rings");
}

// Whole tiles where they are work for more than half of the card.
TEST(CudaFloatTable, TilesOf16TokensWhereWholeOnesAreFew) {
  const auto row_at = [](int64_t n_row_tiles, int64_t n_tokens) {
    FloatProduct product = floats(DType::F16, 4096);
    product.n_row_tiles = n_row_tiles;
    return FloatChoice(product, kHopper).at(n_tokens).name;
  };
  EXPECT_EQ(row_at(66, 64), "float tiles, 16 tokens");
  EXPECT_EQ(row_at(66, 65), "float tiles");
  EXPECT_EQ(row_at(67, 49), "float tiles");
  EXPECT_EQ(row_at(1, 66 * 64), "float tiles, 16 tokens");
  EXPECT_EQ(row_at(1, 66 * 64 + 1), "float tiles");
}

const std::string kFastSkinny = "1..8 fast skinny, 8 tokens, 9..16 fast skinny, 16 tokens, 17..";

TEST(CudaFloatTable, Fast) {
  EXPECT_EQ(floats_of(floats(DType::Q4_K, 32768, true), kAda).substr(0, 34), "1..8 fast skinny of blocks, 8 toke");
  EXPECT_EQ(floats_of(floats(DType::F16, 4096, true), kHopper),
            kFastSkinny + "64 fast skinny, 32 tokens, 65.. fast tiles");
  EXPECT_EQ(floats_of(floats(DType::BF16, 4096, true), kAda), kFastSkinny + " fast skinny, 32 tokens");
  EXPECT_EQ(
      floats_of(floats(DType::Q4_K, 4096, true), kHopper),
      "1..1 fast skinny of blocks, one token, 2..8 fast skinny of blocks, 8 tokens, 9..16 fast skinny of blocks, 16 "
      "tokens, 17..64 fast skinny of blocks, 32 tokens, 65.. fast tiles of decoded rows");
  EXPECT_EQ(
      floats_of(floats(DType::IQ4_XS, 4096, true), kHopper),
      "1..8 fast skinny of decoded rows, 8 tokens, 9..16 fast skinny of decoded rows, 16 tokens, 17..64 fast skinny "
      "of decoded rows, 32 tokens, 65.. fast tiles of decoded rows");
  EXPECT_EQ(floats_of(floats(DType::F16, 128, true, false), kHopper), kFastSkinny + " fast skinny, 32 tokens")
      << "no memory for packed rows";
}

TEST(CudaFloatTable, EveryMatrixHasOneRowForEveryNumberOfTokens) {
  for (const FloatRow& row : float_table()) EXPECT_EQ(find_float_row(row.name), &row);
  for (const Card& card : {kHopper, kAmpere, kAda}) {
    for (const quant::Format& format : quant::all_formats()) {
      for (const bool fast : {false, true}) {
        for (const int64_t cols : {32, 33, 256, 4096}) {
          const FloatChoice choice({{format.dtype, 64, fast_decodes(format.dtype)}, cols, fast, true}, card);
          for (int64_t n = 1; n <= 200; ++n) EXPECT_EQ(is_fast(choice.at(n).kernel), fast);
          EXPECT_EQ(choice.ranges().front().tokens_min, 1);
          EXPECT_EQ(choice.ranges().back().tokens_max, kAnyTokens);
        }
      }
    }
  }
}

template <class Row>
void expect_unique_names(std::span<const Row> table) {
  std::set<std::string_view> names;
  for (const Row& row : table) EXPECT_TRUE(names.insert(row.name).second) << row.name;
}

TEST(CudaUnpackTable, EveryMatrixHasARow) {
  expect_unique_names(unpack_table());
  const auto row = [](DType dtype, int64_t cols, bool is_cut) { return find_unpack_row({dtype, cols, is_cut}).kernel; };
  EXPECT_EQ(row(DType::Q4_K, 256, true), UnpackKernel::eights);
  EXPECT_EQ(row(DType::Q4_K, 256, false), UnpackKernel::blocks) << "blocks as the file has them";
  EXPECT_EQ(row(DType::IQ4_NL, 256, false), UnpackKernel::blocks);
  EXPECT_EQ(row(DType::BF16, 104, false), UnpackKernel::eights);
  EXPECT_EQ(row(DType::F32, 100, false), UnpackKernel::floats);
}

TEST(CudaDecodeTable, NamesAreUnique) {
  expect_unique_names(decode_table());
  expect_unique_names(attention_table());
}

TEST(CudaDecodeTable, MainCases) {
  using enum quant::Activation;
  const auto row = [](const DecodeMatrix& w) {
    const DecodeRow* found = find_decode_row(w, kHopper);
    return found == nullptr ? std::string_view() : found->name;
  };
  EXPECT_EQ(row({DType::Q4_K, 4096, 4096, a256}), "decode superblocks");
  EXPECT_EQ(row({DType::Q8_0, 4096, 4096, a32}), "decode blocks");
  EXPECT_EQ(row({DType::F16, 4096, 4096, f32}), "decode floats");
  EXPECT_EQ(row({DType::F16, 4096, 4096, f32, true}), "decode halves");
  EXPECT_EQ(row({DType::F32, 4096, 4096, f32, true}), "");
  EXPECT_EQ(row({DType::Q4_K, 4096, 4096, f32, true}), "") << "quantised weights as halves: not by decode";
  EXPECT_EQ(row({DType::IQ4_XS, 4096, 4096, a256}), "");
  EXPECT_EQ(row({DType::Q4_K, 4096, kDecodeWidthMax, a256}), "decode superblocks");
  EXPECT_EQ(row({DType::Q4_K, 4096, kDecodeWidthMax + 256, a256}), "") << "the row lies in shared memory";
  EXPECT_EQ(row({DType::F16, 4096, 100, f32}), "");
  EXPECT_TRUE(decode_is_narrow(DType::Q6_K, 2048));
  EXPECT_FALSE(decode_is_narrow(DType::Q6_K, 2049));
  EXPECT_FALSE(decode_is_narrow(DType::Q8_0, 1024));
}

// Deep rings where the card's shared memory has room for them beside the row.
TEST(CudaDecodeTable, HalvesByTheCardsSharedMemory) {
  const auto row = [](int64_t cols, bool has_norm, const Card& card) {
    DecodeMatrix w{DType::F16, 4096, cols};
    w.is_fast = true, w.has_norm = has_norm;
    const DecodeRow* found = find_decode_row(w, card);
    return found == nullptr ? std::string_view() : found->name;
  };
  EXPECT_EQ(row(4096, true, kHopper), "decode halves");
  EXPECT_EQ(row(14336, false, kHopper), "decode halves");
  EXPECT_EQ(row(6144, true, kHopper), "decode halves, short rings");
  EXPECT_EQ(row(kDecodeWidthMax, true, kHopper), "decode halves, short rings");
  EXPECT_EQ(row(4096, true, kAmpere), "decode halves, short rings");
  EXPECT_EQ(row(kDecodeWidthMax, false, kAmpere), "decode halves, short rings");
  EXPECT_EQ(row(kDecodeWidthMax, true, kAmpere), "");
  EXPECT_EQ(row(1024, false, kAda), "decode halves, short rings");
  EXPECT_EQ(row(1024, true, kAda), "") << "no room for the norm's floats";
}

TEST(CudaDecodeTable, ARouterIsWhatItsRegistersHold) {
  const auto is_router = [](int64_t n_experts, int64_t cols, const Card& card) {
    DecodeMatrix w{DType::F32, n_experts, cols};
    w.is_routed = true;
    const DecodeRow* found = find_decode_row(w, card);
    return found != nullptr && found->kernel == DecodeKernel::router;
  };
  EXPECT_TRUE(is_router(128, 2048, kHopper));
  EXPECT_FALSE(is_router(129, 2048, kHopper));
  EXPECT_FALSE(is_router(128, 2080, kHopper));
  EXPECT_FALSE(is_router(128, 48, kHopper));
  EXPECT_FALSE(is_router(128, 2048, kAmpere)) << "no clusters of blocks";
}

// "decode attention | batch attention | attention of Hopper"
std::string attention_of(const AttentionShape& shape, const Card& card) {
  const AttentionChoice choice(shape, card);
  const std::string one(choice.one_token.is_empty() ? "none" : choice.one_token.at(1).name);
  return one + " | " + std::string(choice.alone.at(1).name) + " | " + std::string(choice.tiles->name);
}

TEST(CudaAttentionTable, MainCases) {
  constexpr CacheType f16 = CacheType::f16, q8 = CacheType::q8_0;
  EXPECT_EQ(attention_of({128, f16, f16}, kHopper),
            "decode attention of halves | batch attention | attention of Hopper");
  EXPECT_EQ(attention_of({64, q8, q8}, kHopper), "decode attention | batch attention | attention of Hopper");
  EXPECT_EQ(attention_of({256, f16, f16}, kHopper), "decode attention | batch attention | attention of prefill");
  EXPECT_EQ(attention_of({256, q8, f16}, kHopper), "decode attention | batch attention | attention tiles");
  EXPECT_EQ(attention_of({80, q8, q8}, kHopper), "none | split attention | attention tiles");
  EXPECT_EQ(attention_of({80, f16, f16}, kHopper), "decode attention | batch attention | attention tiles");
  EXPECT_EQ(attention_of({128, f16, f16, true}, kHopper),
            "fast decode attention | fast batch attention | fast attention tiles");
  EXPECT_EQ(attention_of({96, f16, f16, true}, kHopper), "decode attention | batch attention | attention tiles");
  EXPECT_EQ(attention_of({128, f16, f16}, kAmpere),
            "decode attention of halves | batch attention | attention of prefill");
  EXPECT_EQ(attention_of({128, f16, f16}, kAda), "decode attention of halves | batch attention | attention tiles")
      << "shared memory";
}

TEST(CudaAttentionTable, EveryShapeHasOneRow) {
  for (const Card& card : {kHopper, kAmpere, kAda}) {
    for (int64_t head_dim = 1; head_dim <= kHeadDimMax; ++head_dim) {
      for (const CacheType k : {CacheType::f32, CacheType::f16, CacheType::q8_0}) {
        for (const CacheType v : {CacheType::f32, CacheType::f16, CacheType::q8_0}) {
          for (const bool fast : {false, true}) {
            const AttentionChoice choice({head_dim, k, v, fast}, card);
            for (const AttentionRows* rows : {&choice.alone, &choice.merge, &choice.one_token}) {
              if (rows == &choice.one_token && rows->is_empty()) continue;
              for (const auto& range : rows->ranges()) ASSERT_NE(range.row, nullptr);
              ASSERT_EQ(rows->ranges().front().tokens_min, 1);
              ASSERT_EQ(rows->ranges().back().tokens_max, kAnyTokens);
            }
            ASSERT_NE(choice.tiles, nullptr);
            EXPECT_EQ(&choice.alone_at(8, 4), &choice.alone.at(1));
          }
        }
      }
    }
  }
  const AttentionChoice choice({128, CacheType::f16, CacheType::f16, false}, kHopper);
  EXPECT_EQ(choice.alone_at(70000, 4).name, "split attention") << "more than a grid's third dimension";
}

// By the number of a query's segments; as many heads as a card holds blocks are few.
TEST(CudaAttentionTable, DecodeTakesFourHeadsWhereTheCardIsFull) {
  constexpr CacheType f16 = CacheType::f16, q8 = CacheType::q8_0;
  for (const AttentionShape& shape :
       {AttentionShape{128, f16, f16, false, 32, 8}, AttentionShape{96, f16, q8, false, 32, 8}}) {
    const bool halves = shape.head_dim == 128;
    const std::string one = halves ? "decode attention of halves" : "decode attention";
    const AttentionChoice choice(shape, kHopper);
    for (int64_t n = 1; n <= 40; ++n)
      EXPECT_EQ(choice.one_token.at(n).name, 32 * n > 2 * 132 ? one + ", four heads" : one) << n;
    AttentionShape odd = shape;
    odd.n_kv_heads = 16;
    EXPECT_EQ(AttentionChoice(odd, kHopper).one_token.at(1000).name, one) << "two heads share their keys";
  }
}

TEST(CudaAttentionTable, AMergeOfFewSegmentsMakesTheIntegers) {
  AttentionShape shape{128, CacheType::f16, CacheType::f16, false, 32, 8, true};
  EXPECT_EQ(AttentionChoice(shape, kHopper).merge.at(8).kernel, AttentionKernel::merge_integers);
  EXPECT_EQ(AttentionChoice(shape, kHopper).merge.at(9).kernel, AttentionKernel::merge);
  shape.makes_integers = false;
  EXPECT_EQ(AttentionChoice(shape, kHopper).merge.at(1).kernel, AttentionKernel::merge);
}

}  // namespace
}  // namespace assay::backend::cuda
