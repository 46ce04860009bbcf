// Files ruined on purpose, held against the folder that they were made of.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fstream>

#include "gguf/file.h"
#include "support/convert_folder.h"

namespace assay {
namespace {

using namespace converting::testing;

std::vector<std::byte> bytes_of(const fs::path& path, std::string_view tensor) {
  const gguf::File file = gguf::File::open(path);
  const auto data = file.find(tensor)->view.data;
  return {data.begin(), data.end()};
}

void put(const fs::path& path, std::string_view tensor, std::span<const std::byte> bytes, size_t at = 0) {
  const uint64_t offset = gguf::File::open(path).find(tensor)->file_offset;
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(offset + at));
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

// Rows of each head as the checkpoint has them: those of the first half, then those of the second.
std::vector<std::byte> halves_again(const std::vector<std::byte>& rows, size_t n_rows, size_t n_heads) {
  const size_t size = rows.size() / n_rows, head = n_rows / n_heads;
  std::vector<std::byte> out(rows.size());
  for (size_t i = 0; i < n_rows; ++i) {
    const size_t within = i % head,
                 from = i / head * head + (within < head / 2 ? 2 * within : 2 * (within - head / 2) + 1);
    std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>(from * size), size,
                out.begin() + static_cast<std::ptrdiff_t>(i * size));
  }
  return out;
}

// The one difference that is there.
FolderDifference only(const ConvertedFolder& folder) {
  const FolderReport report = hold_against_folder(folder.out(), folder.path(), {.n_threads = 2});
  EXPECT_EQ(report.differences.size(), 1u);
  EXPECT_FALSE(report.passed());
  return report.differences.empty() ? FolderDifference{} : report.differences.front();
}

void expect_cause(const FolderDifference& found, std::string_view tensor, std::string_view cause) {
  EXPECT_EQ(found.tensor, tensor);
  EXPECT_NE(found.cause.find(cause), std::string::npos)
      << found.problem << "\n  " << found.cause << "\n  needs: " << cause;
}

TEST(AgainstFolder, WhatWasConvertedIsEqualInEveryFloatType) {
  for (const char* family : {"llama", "gemma2", "gpt2", "gptneox", "gpt_oss", "gpt_oss_mxfp4", "deepseek3", "llama4",
                             "bert", "qwen3next", "qwen35", "qwen35moe_fused", "kimi_linear", "gemma3n"}) {
    const ConvertedFolder folder(family);
    for (const char* type : {"f32", "f16", "bf16"}) {
      folder.convert(type);
      const FolderReport report = hold_against_folder(folder.out(), folder.path(), {.n_threads = 2});
      EXPECT_TRUE(report.passed()) << family << " " << type << ": "
                                   << (report.differences.empty()
                                           ? ""
                                           : report.differences[0].tensor + " " + report.differences[0].problem);
      EXPECT_EQ(report.n_equal, report.n_tensors) << family;
    }
  }
}

TEST(AgainstFolder, BlockFormatsAreAsNearAsTheirEncoder) {
  const ConvertedFolder folder("llama");
  for (const char* type : {"q8_0", "q4_0", "iq4_nl"}) {
    folder.convert(type);
    const FolderReport report = hold_against_folder(folder.out(), folder.path(), {.n_threads = 2});
    EXPECT_TRUE(report.passed()) << type << ": " << (report.differences.empty() ? "" : report.differences[0].problem);
    EXPECT_GT(report.n_near, 5) << type;
    EXPECT_GT(report.worst_ratio, 0.5);
    EXPECT_LT(report.worst_ratio, 1.2);
  }
}

TEST(AgainstFolder, RowsThatWereNotReorderedAreNamed) {
  const ConvertedFolder folder("llama");
  for (const char* type : {"f16", "q8_0", "q4_0"}) {
    SCOPED_TRACE(type);
    folder.convert(type);
    put(folder.out(), "blk.1.attn_q.weight", halves_again(bytes_of(folder.out(), "blk.1.attn_q.weight"), 64, 4));
    const FolderDifference found = only(folder);
    expect_cause(found, "blk.1.attn_q.weight", "not re-ordered");
    EXPECT_NE(found.problem.find("model.layers.1.self_attn.q_proj.weight"), std::string::npos) << found.problem;
  }
}

TEST(AgainstFolder, ANormWithoutItsOneIsNamed) {
  const ConvertedFolder folder("gemma2");
  folder.convert("bf16");
  std::vector<std::byte> bytes = bytes_of(folder.out(), "blk.0.ffn_norm.weight");
  for (size_t at = 0; at < bytes.size(); at += 4) {
    float x;
    std::memcpy(&x, bytes.data() + at, 4);
    x -= 1.0f;
    std::memcpy(bytes.data() + at, &x, 4);
  }
  put(folder.out(), "blk.0.ffn_norm.weight", bytes);
  expect_cause(only(folder), "blk.0.ffn_norm.weight", "lacks the 1");
}

// Value heads of one key head next to one another, as the checkpoint has them: here two key heads with two each.
TEST(AgainstFolder, HeadsInTheOrderOfTheCheckpointAndDecaysAsLogarithmsAreNamed) {
  const ConvertedFolder folder("qwen35");
  constexpr std::array<size_t, 4> kOrder = {0, 2, 1, 3};
  const auto heads_again = [&](const std::vector<std::byte>& bytes, size_t first, size_t size) {
    std::vector<std::byte> old = bytes;
    for (size_t i = 0; i < 4; ++i)
      std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(first + kOrder[i] * size), size,
                  old.begin() + static_cast<std::ptrdiff_t>(first + i * size));
    return old;
  };
  const auto ruin = [&](const std::string& name, auto change) {
    folder.convert("f32");
    put(folder.out(), name, change(bytes_of(folder.out(), name)));
    return only(folder);
  };
  constexpr size_t kWidth = 64 * 4, kHead = 24;
  expect_cause(ruin("blk.0.attn_gate.weight", [&](const auto& b) { return heads_again(b, 0, kHead * kWidth); }),
               "blk.0.attn_gate.weight", "order of the checkpoint");
  expect_cause(
      ruin("blk.0.attn_qkv.weight", [&](const auto& b) { return heads_again(b, 64 * kWidth, kHead * kWidth); }),
      "blk.0.attn_qkv.weight", "order of the checkpoint");
  expect_cause(ruin("blk.0.ssm_out.weight",
                    [&](std::vector<std::byte> b) {
                      for (size_t row = 0; row < 64; ++row) b = heads_again(b, row * 4 * kHead * 4, kHead * 4);
                      return b;
                    }),
               "blk.0.ssm_out.weight", "columns stand as in the checkpoint");
  expect_cause(ruin("blk.0.ssm_a",
                    [&](std::vector<std::byte> b) {
                      for (size_t at = 0; at < b.size(); at += 4) {
                        float x;
                        std::memcpy(&x, b.data() + at, 4);
                        x = std::log(-x);
                        std::memcpy(b.data() + at, &x, 4);
                      }
                      return b;
                    }),
               "blk.0.ssm_a", "logarithm of a decay");
}

TEST(AgainstFolder, SwappedTensorsNameOneAnother) {
  const ConvertedFolder folder("llama");
  folder.convert("q8_0");
  const std::vector<std::byte> gate = bytes_of(folder.out(), "blk.0.ffn_gate.weight"),
                               up = bytes_of(folder.out(), "blk.0.ffn_up.weight");
  put(folder.out(), "blk.0.ffn_gate.weight", up);
  put(folder.out(), "blk.0.ffn_up.weight", gate);
  const FolderReport report = hold_against_folder(folder.out(), folder.path(), {.n_threads = 2});
  ASSERT_EQ(report.differences.size(), 2u);
  for (const FolderDifference& one : report.differences) {
    expect_cause(
        one, one.tensor,
        one.tensor == "blk.0.ffn_gate.weight" ? "values of blk.0.ffn_up.weight" : "values of blk.0.ffn_gate.weight");
  }
}

TEST(AgainstFolder, OtherFaultsOfConvertersAreNamed) {
  const ConvertedFolder folder("llama");
  const auto ruin = [&](auto change) {
    folder.convert("f16");
    std::vector<std::byte> bytes = bytes_of(folder.out(), "blk.0.attn_output.weight");
    change(bytes);
    put(folder.out(), "blk.0.attn_output.weight", bytes);
    return only(folder);
  };
  constexpr size_t kRow = 128;  // 64 columns of two bytes
  expect_cause(ruin([](auto& b) { std::fill(b.begin() + 40 * kRow, b.end(), std::byte{0}); }),
               "blk.0.attn_output.weight", "from row 40 on it holds zeros");
  expect_cause(ruin([](auto& b) {
                 for (size_t i = 0; i < 64; i += 2)
                   std::swap_ranges(b.begin() + static_cast<std::ptrdiff_t>(i * kRow),
                                    b.begin() + static_cast<std::ptrdiff_t>((i + 1) * kRow),
                                    b.begin() + static_cast<std::ptrdiff_t>((i + 1) * kRow));
               }),
               "blk.0.attn_output.weight", "swapped in pairs");
  expect_cause(ruin([](auto& b) {
                 const auto old = b;
                 for (size_t i = 0; i < 64; ++i) {
                   for (size_t j = 0; j < 64; ++j)
                     std::copy_n(old.begin() + static_cast<std::ptrdiff_t>(j * kRow + 2 * i), 2,
                                 b.begin() + static_cast<std::ptrdiff_t>(i * kRow + 2 * j));
                 }
               }),
               "blk.0.attn_output.weight", "changed places");
  const FolderDifference one = ruin([](auto& b) { b[7 * kRow + 3] ^= std::byte{0x20}; });
  EXPECT_NE(one.problem.find("1 of 64 rows differ"), std::string::npos) << one.problem;
  EXPECT_NE(one.problem.find("first row 7, column 1"), std::string::npos) << one.problem;
}

TEST(AgainstFolder, AnotherModelsFileIsCalledSo) {
  const ConvertedFolder folder("llama");
  folder.convert("f16");
  std::vector<std::string> names;
  {
    const gguf::File file = gguf::File::open(folder.out());
    for (const gguf::Tensor& t : file.tensors()) names.emplace_back(t.name);
  }
  for (const std::string& name : names) {
    std::vector<std::byte> bytes = bytes_of(folder.out(), name);
    const bool is_f32 = name.find("norm") != std::string::npos;
    const std::string other =
        random_values("another " + name, static_cast<int64_t>(bytes.size()) / (is_f32 ? 4 : 2), is_f32 ? "F32" : "F16");
    std::memcpy(bytes.data(), other.data(), bytes.size());
    put(folder.out(), name, bytes);
  }
  const FolderReport report = hold_against_folder(folder.out(), folder.path(), {.n_threads = 2});
  EXPECT_EQ(report.differences.size(), names.size());
  EXPECT_NE(report.overall.find("another model"), std::string::npos);
  const ConvertedFolder foreign("qwen2");
  EXPECT_THROW(hold_against_folder(folder.out(), foreign.path()), Error);
}

}  // namespace
}  // namespace assay
