// Vocabularies that contradict themselves, by the ids of the bad-input list: each is an Error, and
// quickly.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "assay/error.h"
#include "gguf/file.h"
#include "support/gguf_writer.h"
#include "support/small_vocabularies.h"
#include "text/encoders/bpe.h"
#include "text/from_gguf.h"
#include "text/vocabulary.h"

namespace assay {
namespace {

using test::add_token;
using test::GgufWriter;

std::vector<std::string> strings(const std::vector<std::string_view>& views) { return {views.begin(), views.end()}; }

std::vector<std::string> strings(const text::PackedTexts& texts) {
  std::vector<std::string> all;
  texts.for_each([&](size_t, std::string_view text) { all.emplace_back(text); });
  return all;
}

std::vector<int32_t> kind_numbers(const text::VocabularyFacts& facts) {
  std::vector<int32_t> numbers;
  for (const TokenKind kind : facts.kinds) numbers.push_back(static_cast<int32_t>(kind) + 1);
  return numbers;
}

// A file of the facts without what the callers set themselves.
struct Parts {
  bool tokens = true, kinds = true, scores = true, merges = true, model = true, pre = true;
};
GgufWriter file_of(const text::VocabularyFacts& facts, Parts parts = {}) {
  GgufWriter file;
  file.set("general.architecture", "llama");
  if (parts.model) file.set("tokenizer.ggml.model", facts.model);
  if (parts.pre && !facts.pre_tokenizer.empty()) file.set("tokenizer.ggml.pre", facts.pre_tokenizer);
  if (parts.tokens) file.set("tokenizer.ggml.tokens", strings(facts.tokens));
  if (parts.kinds) file.set("tokenizer.ggml.token_type", kind_numbers(facts));
  if (parts.scores && !facts.scores.empty()) file.set("tokenizer.ggml.scores", facts.scores);
  if (parts.merges && !facts.merges.empty()) file.set("tokenizer.ggml.merges", strings(facts.merges));
  return file;
}

std::shared_ptr<const Tokenizer> load(const GgufWriter& writer) {
  const test::Bytes bytes = writer.bytes();
  return text::make_tokenizer(gguf::File::parse(bytes).metadata());  // keeps nothing of the bytes
}

void expect_error(const GgufWriter& writer, Errc code, const std::string& part) {
  try {
    load(writer);
    FAIL() << "no error; wanted one about " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code, code) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

text::VocabularyFacts spm() { return test::sentence_piece_facts(); }
text::VocabularyFacts bpe() { return test::byte_level_facts(); }

TEST(BadVocabulary, WellFormedFilesLoadAndOutliveTheirBytes) {
  const auto llama = load(file_of(spm()));
  EXPECT_EQ(llama->decode(llama->encode("ab é")), "ab é");
  EXPECT_EQ(llama->model(), "llama");
  EXPECT_EQ(llama->pre_tokenizer(), "");
  const auto gpt2 = load(file_of(bpe()));
  EXPECT_EQ(gpt2->decode(gpt2->encode("hello é")), "hello é");
  EXPECT_EQ(gpt2->pre_tokenizer(), "gpt-2");
}

TEST(BadVocabulary, UnknownKindsAreNamed) {
  Parts no_model;
  no_model.model = false;
  for (const char* model : {"rwkv", "plamo2", "no_vocab", "none", "hybriddna", ""}) {
    expect_error(file_of(spm(), no_model).set("tokenizer.ggml.model", model), Errc::unsupported,
                 "\"" + std::string(model) + "\"");
  }
  expect_error(file_of(spm(), no_model), Errc::bad_file, "tokenizer.ggml.model");
  Parts no_pre;
  no_pre.pre = false;
  expect_error(file_of(bpe(), no_pre), Errc::bad_file, "tokenizer.ggml.pre");
  expect_error(file_of(bpe(), no_pre).set("tokenizer.ggml.pre", "brand-new"), Errc::unsupported, "\"brand-new\"");
  Parts no_merges;
  no_merges.merges = false;
  expect_error(file_of(bpe(), no_merges), Errc::bad_file, "tokenizer.ggml.merges");
  Parts other_model;
  other_model.model = false;
  expect_error(file_of(spm(), other_model).set("tokenizer.ggml.model", "gemma4"), Errc::bad_file,
               "tokenizer.ggml.merges");
  Parts no_scores;
  no_scores.scores = false;
  expect_error(file_of(spm(), no_scores), Errc::bad_file, "tokenizer.ggml.scores");
}

TEST(BadVocabulary, B31TokenTextTooLong) {
  text::VocabularyFacts facts = bpe();
  const std::string long_text(text::kTokenBytesMax + 1, 'x');
  add_token(facts, long_text);
  expect_error(file_of(facts), Errc::bad_file, "16385 bytes long, the limit is 16384");
}

TEST(BadVocabulary, B33ByteTokenMisspelled) {
  for (const char* text : {"<0x-1>", "<0xZZ>", "<0x0>", "<0x000>", "0x41", "<0X41>", "<0x4 >"}) {
    text::VocabularyFacts facts = spm();
    add_token(facts, text, TokenKind::byte);
    facts.scores.push_back(0);
    expect_error(file_of(facts), Errc::bad_file, text);
  }
}

TEST(BadVocabulary, B34ArraysOfAnotherType) {
  const text::VocabularyFacts facts = spm();
  Parts no_kinds;
  no_kinds.kinds = false;
  expect_error(file_of(facts, no_kinds).set("tokenizer.ggml.token_type", std::vector<uint8_t>(facts.tokens.size(), 1)),
               Errc::bad_file, "tokenizer.ggml.token_type");
  expect_error(file_of(facts, no_kinds).set("tokenizer.ggml.token_type", std::vector<float>(facts.tokens.size(), 1)),
               Errc::bad_file, "tokenizer.ggml.token_type");
  expect_error(file_of(facts, no_kinds).set("tokenizer.ggml.token_type", uint32_t{1}), Errc::bad_file,
               "tokenizer.ggml.token_type");
  expect_error(file_of(facts, no_kinds).set("tokenizer.ggml.token_type", std::vector<int32_t>(facts.tokens.size(), 7)),
               Errc::bad_file, "tokenizer.ggml.token_type");
  Parts no_scores;
  no_scores.scores = false;
  expect_error(file_of(facts, no_scores).set("tokenizer.ggml.scores", std::vector<uint8_t>(facts.tokens.size(), 1)),
               Errc::bad_file, "tokenizer.ggml.scores");
  expect_error(file_of(facts, no_scores).set("tokenizer.ggml.scores", std::vector<float>(facts.tokens.size() - 1, 1)),
               Errc::bad_file, "tokenizer.ggml.scores");
  const float nan = std::numeric_limits<float>::quiet_NaN();
  expect_error(file_of(facts, no_scores).set("tokenizer.ggml.scores", std::vector<float>(facts.tokens.size(), nan)),
               Errc::bad_file, "NaN");
  expect_error(file_of(facts, no_kinds).set("tokenizer.ggml.token_type", std::vector<int32_t>(3, 1)), Errc::bad_file,
               "token_type has 3 entries");
}

TEST(BadVocabulary, B35SpecialIdsOutOfRange) {
  for (const char* name : {"bos", "eos", "eot", "eom", "unknown", "padding", "seperator", "mask", "fim_pre", "fim_suf",
                           "fim_mid", "fim_pad", "fim_rep", "fim_sep", "prefix", "suffix", "middle"}) {
    const std::string key = "tokenizer.ggml." + std::string(name) + "_token_id";
    const auto n_tokens = static_cast<uint32_t>(spm().tokens.size());
    expect_error(file_of(spm()).set(key, n_tokens), Errc::bad_file, std::to_string(n_tokens));
    expect_error(file_of(spm()).set(key, uint32_t{0xFFFFFFFF}), Errc::bad_file, "4294967295");
    expect_error(file_of(spm()).set(key, uint64_t{1} << 40), Errc::bad_file, std::to_string(uint64_t{1} << 40));
    expect_error(file_of(spm()).set(key, int32_t{-1}), Errc::bad_file, key);
    EXPECT_NO_THROW(load(file_of(spm()).set(key, n_tokens - 1)));
  }
}

TEST(BadVocabulary, B36FewerTokensThanUsualIds) {
  text::VocabularyFacts facts;
  facts.model = "llama";
  facts.tokens = {"a"};
  facts.kinds = {TokenKind::normal};
  facts.scores = {0};
  const auto tokenizer = load(file_of(facts));
  EXPECT_FALSE(tokenizer->bos());
  EXPECT_FALSE(tokenizer->eos());
  EXPECT_TRUE(tokenizer->end_of_generation().empty());
  EXPECT_FALSE(tokenizer->adds_bos());
  EXPECT_EQ(tokenizer->encode("b"), (std::vector<TokenId>{0, 0}))
      << "the blank and b are unknown, and token 0 is the unknown token";
  expect_error(file_of(facts).set("tokenizer.ggml.add_bos_token", true), Errc::bad_file, "BOS");
  expect_error(file_of(facts).set("tokenizer.ggml.add_eos_token", true), Errc::bad_file, "EOS");
}

TEST(BadVocabulary, B37SameTextTwice) {
  text::VocabularyFacts facts = bpe();
  for (int i = 0; i < 300; ++i) add_token(facts, "same");
  expect_error(file_of(facts), Errc::bad_file, "have the same text");
}

TEST(BadVocabulary, B38NoTokens) {
  Parts no_tokens;
  no_tokens.tokens = no_tokens.kinds = no_tokens.scores = false;
  expect_error(file_of(spm(), no_tokens).set("tokenizer.ggml.tokens", std::vector<std::string>()), Errc::bad_file,
               "tokenizer.ggml");
  expect_error(file_of(spm(), no_tokens), Errc::bad_file, "tokenizer.ggml.tokens");
  expect_error(file_of(spm(), no_tokens).set("tokenizer.ggml.tokens", std::vector<int32_t>(5, 5)), Errc::bad_file,
               "tokenizer.ggml.tokens");
}

TEST(BadVocabulary, B39TextsThatAreNoUtf8) {
  for (const char* text : {"\xFF", "a\xC3", "\xED\xA0\x80", "\xC0\x80", "\xF4\x90\x80\x80"}) {
    text::VocabularyFacts facts = bpe();
    add_token(facts, text);
    expect_error(file_of(facts), Errc::bad_file, "token 263");
  }
  text::VocabularyFacts split = bpe();  // fine when put together, but neither is a text
  add_token(split, "x\xC3");
  add_token(split, "\xA9");
  expect_error(file_of(split), Errc::bad_file, "token 263");
}

TEST(BadVocabulary, B39EmptyTextIsNeverFound) {
  text::VocabularyFacts facts = bpe();
  add_token(facts, "");
  add_token(facts, "", TokenKind::control);
  add_token(facts, "", TokenKind::user_defined);
  const auto tokenizer = load(file_of(facts));
  EXPECT_FALSE(tokenizer->find(""));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("hello")), "hello");
  EXPECT_EQ(tokenizer->piece(263), "");
}

TEST(BadVocabulary, B39Merges) {
  for (const char* merge : {"nobody e", "h nobody", "l e", "hello", " hello", "hello ", ""}) {
    text::VocabularyFacts facts = bpe();
    facts.merges.push_back(merge);
    expect_error(file_of(facts), Errc::bad_file, "entry 4");
  }
  text::VocabularyFacts cyclic = bpe();  // each token made of two of the other: there is no such text
  add_token(cyclic, "xx");
  add_token(cyclic, "xxxx");
  cyclic.merges.insert(cyclic.merges.end(), {"xx xx", "x x", "xx xx", "x x"});
  const auto tokenizer = load(file_of(cyclic));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("xxxxxxxxxxx")), "xxxxxxxxxxx");
}

TEST(BadVocabulary, B39TooManyMerges) {
  text::VocabularyFacts facts = bpe();
  facts.merges.assign(text::kMergesMax + 1, "l l");
  EXPECT_THROW(text::make_tokenizer(facts), Error);
}

TEST(BadVocabulary, B39EndOfTurnThatIsBos) {
  const auto tokenizer = load(
      file_of(spm()).set("tokenizer.ggml.bos_token_id", uint32_t{1}).set("tokenizer.ggml.eot_token_id", uint32_t{1}));
  EXPECT_TRUE(tokenizer->is_end_of_generation(1));
  EXPECT_EQ(tokenizer->encode("").size(), 1u);
}

// So many that two threads share them out.
TEST(ManyTokens, AreFoundAndCheckedAsFewAre) {
  const auto make = [](int32_t changed, std::string_view text) {
    text::PackedTexts texts;
    for (int32_t id = 0; id < 70'000; ++id) {  // some are longer than 127 bytes
      const std::string own =
          std::to_string(id) + std::string(static_cast<size_t>(id % 512 == 0 ? 130 + id % 150 : id % 20), 'x');
      texts.push_back(id == changed ? text : id % 7 == 0 ? own + "ü" : std::string_view(own));
    }
    base::ThreadPool pool(2);
    return text::Vocabulary(texts, {}, {}, pool);
  };
  const auto problem = [&](int32_t changed, std::string_view text) -> std::string {
    try {
      make(changed, text);
    } catch (const Error& error) {
      EXPECT_EQ(error.code, Errc::bad_file);
      return error.what();
    }
    return "none";
  };
  const text::Vocabulary vocabulary = make(-1, "");
  for (TokenId id = 0; id < vocabulary.size(); id += 5) {
    ASSERT_EQ(vocabulary.find_id(std::string(vocabulary.text(id))), id);
    ASSERT_EQ(vocabulary.find_id(std::string(vocabulary.text(id)) + "?"), -1);
  }
  EXPECT_EQ(problem(69'999, "1x"), "tokens 1 and 69999 have the same text");
  EXPECT_EQ(problem(40'000, ""), "none");
  EXPECT_EQ(problem(35'001, "\xC3"), "the text of token 35001 is not UTF-8");
  EXPECT_EQ(problem(35'001, std::string(0x82, 'x') + "\xC3"), "the text of token 35001 is not UTF-8");
  EXPECT_EQ(problem(3, "\xC3"), "the text of token 3 is not UTF-8");
  EXPECT_EQ(problem(69'999, "\x82"), "the text of token 69999 is not UTF-8");
  EXPECT_EQ(problem(68'000, std::string(text::kTokenBytesMax + 1, 'x')),
            "token 68000 is 16385 bytes long, the limit is 16384");
}

}  // namespace
}  // namespace assay
