#include "store/names.h"

#include <gtest/gtest.h>

#include <string>

namespace assay::store {
namespace {

TEST(StoreNames, PartsOfASplitModel) {
  const auto part = part_name("Big-Model-Q4_K_M-00002-of-00003.gguf");
  ASSERT_TRUE(part);
  EXPECT_EQ(part->stem, "Big-Model-Q4_K_M");
  EXPECT_EQ(part->number, 2);
  EXPECT_EQ(part->count, 3);
  EXPECT_EQ(part_file(part->stem, part->number, part->count), "Big-Model-Q4_K_M-00002-of-00003.gguf");
  EXPECT_EQ(part_file("m", 1, 1), "m.gguf");
  for (const char* name :
       {"m.gguf", "m-00004-of-00003.gguf", "m-00000-of-00003.gguf", "m-0002-of-00003.gguf", "m-00002-of-00003.bin",
        "-00001-of-00001.gguf", "m-0000x-of-00003.gguf", "m-00001-in-00003.gguf"}) {
    EXPECT_FALSE(part_name(name)) << name;
  }
}

TEST(StoreNames, QuantisationsAsTheyAreWritten) {
  EXPECT_EQ(quant_of("Llama-3.2-1B-Instruct-Q4_K_M"), "Q4_K_M");
  EXPECT_EQ(quant_of("tinyllama-1.1b-chat-v1.0.Q2_K"), "Q2_K");
  EXPECT_EQ(quant_of("gemma-3-270m-it-UD-Q4_K_XL"), "UD-Q4_K_XL");
  EXPECT_EQ(quant_of("model-q8_0"), "q8_0");
  EXPECT_EQ(quant_of("model-BF16"), "BF16");
  EXPECT_EQ(quant_of("Q4_0"), "Q4_0");
  EXPECT_EQ(quant_of("model-Q4_K_M-v2"), "Q4_K_M");
  EXPECT_EQ(quant_of("model"), "");
  EXPECT_EQ(quant_of("Q4-mini"), "");
  EXPECT_EQ(quant_of(""), "");
  EXPECT_EQ(quant_of("---"), "");
  EXPECT_LT(bits_of_quant("Q4_K_S"), bits_of_quant("q4_k_m"));
  EXPECT_EQ(bits_of_quant("bf16"), 16);
  EXPECT_EQ(bits_of_quant("UD-IQ2_XXS"), bits_of_quant("IQ2_XXS"));
  EXPECT_EQ(bits_of_quant("Q99"), 0);
}

// B81, B82: what becomes a file's name stays in its folder.
TEST(StoreNames, HostileNamesAreNoFiles) {
  using std::string_literals::operator""s;
  for (const std::string& name : {""s, "."s, ".."s, ".hidden"s, "a/b"s, "/etc/passwd"s, "a\\b"s, "a\nb"s, "a\0b"s,
                                  "a\x7f"s, "-rf"s, std::string(300, 'a')}) {
    EXPECT_FALSE(is_safe_file_name(name)) << name;
  }
  EXPECT_TRUE(is_safe_file_name("gemma-3-270m-it-Q4_K_M.gguf"));
  EXPECT_TRUE(is_safe_file_name("model with spaces (1).gguf"));
  for (const char* path : {"", "/a", "a/", "a//b", "../a", "a/../b", "a/./b", "a/..", "a/b\r/c"})
    EXPECT_FALSE(is_safe_relative_path(path)) << path;
  EXPECT_TRUE(is_safe_relative_path("Q4_K_M/model-00001-of-00002.gguf"));
  for (const char* text : {"", "a", "a/b/c", "/b", "a/", "../b", "a/..", "a/b?x", "a b/c", "a/b:c", "a@evil.example/b"})
    EXPECT_FALSE(is_repository(text)) << text;
  EXPECT_TRUE(is_repository("bartowski/Llama-3.2-1B-Instruct-GGUF"));
  EXPECT_TRUE(is_sha256(std::string(64, 'a')));
  EXPECT_FALSE(is_sha256(std::string(63, 'a')));
  EXPECT_FALSE(is_sha256(std::string(64, 'A')));
  EXPECT_FALSE(is_sha256("../" + std::string(61, 'a')));
}

TEST(StoreNames, DistancesIgnoreCase) {
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("GEMMA", "gemma"), 0u);
  EXPECT_TRUE(begins_without_case("SmolLM2-135M", "smollm2"));
  EXPECT_FALSE(begins_without_case("smol", "smollm2"));
}

}  // namespace
}  // namespace assay::store
