// B45 and its kin: a megabyte of anything takes well under a second, for every vocabulary and every
// pre-tokenizer. A share of the tests reads a quarter of it in a quarter of the time: even a search
// by vector instructions through what is left of the text, at each of its bytes, would take longer.
#include <gtest/gtest.h>

#include <ctime>
#include <iostream>
#include <set>
#include <utility>

#include "assay/tokenizer.h"
#include "programs/patience.h"
#include "support/rounds.h"
#include "support/shared_data.h"
#include "support/unigram_facts.h"
#include "text/splitter.h"

namespace assay {
namespace {

constexpr size_t kMegabyte = size_t{1} << 20;
constexpr double kSecondsMax = 1.0 * test::kPatience;  // of processor time for a megabyte; 0.1 to 0.4 are usual

size_t text_bytes() { return test::rounds(kMegabyte, kMegabyte / 4); }
double seconds_max() { return kSecondsMax * static_cast<double>(text_bytes()) / kMegabyte; }

std::string repeated(const std::string& unit, size_t bytes) {
  std::string text;
  while (text.size() + unit.size() <= bytes) text += unit;
  return text;
}

std::vector<std::pair<std::string, std::string>> hostile_texts() {
  const size_t bytes = text_bytes();
  std::vector<std::pair<std::string, std::string>> texts;
  for (const char* unit : {"a",
                           "A",
                           "\t",
                           "\r\n",
                           " ",
                           "\xE2",
                           "0",
                           "1a",
                           "\n",
                           "!",
                           "'",
                           "'s",
                           "\xFF",
                           "<",
                           "\x01",
                           "ab",
                           "\xF0\x9F\x98\x80",
                           "中",
                           "é",
                           "e\xCC\x81",
                           "\xCC\x81",
                           "a b ",
                           " \n",
                           "<|",
                           "<0x",
                           "\xE3\x80\x80",
                           "\xC2\xA0",
                           "ǅ",
                           "ʰ"}) {
    texts.emplace_back(unit, repeated(unit, bytes));
  }
  texts.emplace_back("blanks, x", repeated(" ", bytes) + "x");
  texts.emplace_back("blanks, line end", repeated(" ", bytes) + "\nx");
  texts.emplace_back("digits, letter", repeated("1", bytes) + "x");
  texts.emplace_back("capitals, digit", repeated("A", bytes) + "1");
  std::string noise;
  uint64_t state = 1;
  while (noise.size() < bytes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    noise += static_cast<char>(state >> 56);
  }
  texts.emplace_back("noise", noise);
  return texts;
}

template <class Work>
double seconds(Work work) {  // of processor time, so that a busy machine does not fail a test
  const std::clock_t begin = std::clock();
  work();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

void expect_fast(const Tokenizer& tokenizer, const std::string& vocabulary, bool all) {
  double worst = 0;
  std::string worst_name;
  int i_text = 0;
  for (const auto& [name, text] : hostile_texts()) {
    if (!all && i_text++ % 4 != 0) continue;
    const double taken = seconds([&] {
      EncodeOptions options;
      options.parse_special = true;
      EXPECT_FALSE(tokenizer.encode(text, options).empty());
    });
    EXPECT_LT(taken, seconds_max()) << vocabulary << ": " << text.size() << " bytes of "
                                    << ::testing::PrintToString(name);
    if (taken > worst) {
      worst = taken;
      worst_name = name;
    }
  }
  std::cout << vocabulary << ": slowest " << text_bytes() << " bytes: " << worst << " s, of "
            << ::testing::PrintToString(worst_name) << "\n";
}

void expect_fast(const std::filesystem::path& path, bool all) {
  expect_fast(*Tokenizer::load(path.string()), path.filename().string(), all);
}

class LinearTime : public ::testing::TestWithParam<const char*> {};

TEST_P(LinearTime, B45) {
  const auto path = test::shared("vectors/tokenizers/ggml-vocab-" + std::string(GetParam()) + ".gguf");
  ASSAY_REQUIRE_FILE(path);
  expect_fast(path, false);
}

INSTANTIATE_TEST_SUITE_P(Shared, LinearTime,
                         ::testing::Values("llama-spm", "phi-3", "llama-bpe", "qwen2", "gpt-2", "deepseek-coder",
                                           "starcoder"));

TEST(LinearTimeOfModels, B45SmolLm2) {
  ASSAY_REQUIRE_FILE(test::smollm2());
  expect_fast(test::smollm2(), true);
}

TEST(LinearTimeOfModels, B45Gemma3) {
  ASSAY_REQUIRE_FILE(test::gemma3());
  expect_fast(test::gemma3(), true);
}

// What no token crosses is cut there; "across_words" has tokens that cross blanks, and joins none.
TEST(LinearTimeOfUnigrams, B45) {
  test::for_each_unigram_vocabulary([](const test::UnigramVocabulary& one) {
    if (one.name != "usual" && one.name != "across_words") return;
    text::VocabularyFacts facts = one.facts;
    facts.add_eos = true;  // a text of nothing but blanks has no other token
    expect_fast(*text::make_tokenizer(facts), one.name, one.name == "across_words");
  });
}

TEST(LinearTimeOfSplitters, B44EveryName) {
  const std::vector<std::pair<std::string, std::string>> texts = hostile_texts();
  double worst = 0;
  std::string worst_name;
  std::set<const text::Step*> done;
  for (const std::string_view name : text::pre_tokenizer_names()) {
    const auto rules = *text::find_pre_tokenizer(name);
    if (!done.insert(rules.steps.data()).second) continue;  // names that share their steps
    const text::Splitter splitter(rules);
    for (const auto& [what, text] : texts) {
      if (what == "noise" || what == "\xFF" || what == "\xE2") continue;  // a splitter is given UTF-8
      const double taken = seconds([&] { EXPECT_FALSE(splitter.split(text).empty()); });
      EXPECT_LT(taken, seconds_max()) << name << ": " << text.size() << " bytes of " << ::testing::PrintToString(what);
      if (taken > worst) {
        worst = taken;
        worst_name = std::string(name) + " on " + ::testing::PrintToString(what);
      }
    }
  }
  std::cout << "slowest: " << worst << " s, " << worst_name << "\n";
}

}  // namespace
}  // namespace assay
