// The rules of both kinds of vocabularies, on ones small enough to follow by hand.
#include "assay/tokenizer.h"

#include <gtest/gtest.h>

#include "assay/error.h"
#include "base/utf8.h"
#include "support/small_vocabularies.h"

namespace assay {
namespace {

using test::add_token;
using test::byte_level_facts;
using test::sentence_piece_facts;
using text::make_tokenizer;
using text::VocabularyFacts;

std::string spelled(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  std::string all;
  for (const TokenId id : ids) {
    if (!all.empty()) all += ' ';
    all += tokenizer.text(id);
  }
  return all;
}
std::string spelled(const Tokenizer& tokenizer, std::string_view text, bool parse_special = false) {
  EncodeOptions options;
  options.parse_special = parse_special;
  options.add_bos = false;
  return spelled(tokenizer, tokenizer.encode(text, options));
}

TEST(SentencePiece, MergesByScoreAndFallsBackToBytes) {
  const auto tokenizer = make_tokenizer(sentence_piece_facts());
  EXPECT_EQ(spelled(*tokenizer, "ab"), "▁ab");
  EXPECT_EQ(spelled(*tokenizer, "abab"), "▁ab ab");
  EXPECT_EQ(spelled(*tokenizer, "b a"), "▁ b ▁a");
  EXPECT_EQ(spelled(*tokenizer, "aé"), "▁a <0xC3> <0xA9>");
  EXPECT_EQ(spelled(*tokenizer, std::string("a\0", 2)), "▁a <0x00>");
  EXPECT_EQ(spelled(*tokenizer, ""), "");
  EXPECT_EQ(spelled(*tokenizer, "<s>"), "▁ <0x3C> <0x73> <0x3E>") << "a control token's text stays text";
  EXPECT_EQ(tokenizer->encode("ab").front(), *tokenizer->bos());
}

TEST(SentencePiece, SpaceRules) {
  VocabularyFacts facts = sentence_piece_facts();
  const auto tokenizer = make_tokenizer(facts);
  EXPECT_EQ(spelled(*tokenizer, " ab"), "▁ ▁ab");
  EXPECT_EQ(spelled(*tokenizer, "<s>ab", true), "<s> ▁ab") << "a text after a special token opens again";
  EXPECT_EQ(spelled(*tokenizer, "ab<user>ab"), "▁ab <user> ▁ab");
  facts.add_space_prefix = false;
  EXPECT_EQ(spelled(*make_tokenizer(facts), "ab<user>ab"), "ab <user> ab");
  facts.add_space_prefix = true;
  facts.remove_extra_whitespaces = true;
  EXPECT_EQ(spelled(*make_tokenizer(facts), "  ab   ab  "), "▁ab ▁ab");
}

TEST(SentencePiece, DecodeIsTheInverse) {
  const auto tokenizer = make_tokenizer(sentence_piece_facts());
  for (const char* text : {"", "ab", " ab", "  ab", "b", "ab<user>ab", "<user> ab", "é\n", "<s>ab</s>", "ab "}) {
    EncodeOptions options;
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, options)), text);
    options.parse_special = true;
    options.add_bos = false;
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, options), true), text);
  }
  EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{1, *tokenizer->find("▁ab"), 2}, false), "ab");
  EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{1, *tokenizer->find("▁ab"), 2}, true), "<s>ab</s>");
  EXPECT_EQ(tokenizer->piece(*tokenizer->find("▁ab")), " ab");
  EXPECT_EQ(tokenizer->piece(*tokenizer->find("<0xC3>")), "\xC3");
}

TEST(SentencePiece, Phi3SwallowsBlanksAfterSpecialTokens) {
  VocabularyFacts facts = sentence_piece_facts();
  facts.model_name = "Phi-3 mini";
  const auto tokenizer = make_tokenizer(facts);
  EXPECT_EQ(spelled(*tokenizer, "</s> \n ab", true), "</s> ▁ab");
  EXPECT_EQ(spelled(*tokenizer, "<s> ab", true), "<s> ▁ ▁ab");
}

TEST(ByteLevel, MergesByRankLeftmostFirst) {
  const auto tokenizer = make_tokenizer(byte_level_facts());
  EXPECT_EQ(spelled(*tokenizer, "lll"), "ll l");
  EXPECT_EQ(spelled(*tokenizer, "hello hello"), "hello Ġ hello");
  EXPECT_EQ(spelled(*tokenizer, "hell"), "he ll");
  EXPECT_EQ(spelled(*tokenizer, "\xFF"), "ï ¿ ½") << "a byte that is no UTF-8 becomes U+FFFD";
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("é\n\t😀")), "é\n\t😀");
}

TEST(ByteLevel, IgnoresMergesWhereTheModelDoes) {
  VocabularyFacts facts = byte_level_facts();
  add_token(facts, "olleh");  // no merge makes it
  EXPECT_EQ(spelled(*make_tokenizer(facts), "olleh"), "o ll e h");
  facts.pre_tokenizer = "llama-bpe";
  EXPECT_EQ(spelled(*make_tokenizer(facts), "olleh"), "olleh");
}

TEST(SpecialTokens, ParsedOnlyWhereAsked) {
  const auto tokenizer = make_tokenizer(byte_level_facts());
  EXPECT_EQ(spelled(*tokenizer, "<|im_end|>", true), "<|im_end|>");
  EXPECT_NE(spelled(*tokenizer, "<|im_end|>", false), "<|im_end|>");
  EXPECT_EQ(spelled(*tokenizer, "h<user>h", false), "h <user> h") << "user-defined tokens are always found";
  EXPECT_EQ(spelled(*tokenizer, "<user><user>!", true), "<user> <user>!") << "the longest wins";
}

TEST(SpecialTokens, PiecesAreOneText) {
  const auto tokenizer = make_tokenizer(byte_level_facts());
  const auto encode = [&](std::vector<TextPiece> pieces) { return spelled(*tokenizer, tokenizer->encode(pieces)); };
  EXPECT_EQ(encode({{"he", true}, {"llo", false}}), "hello");
  EXPECT_EQ(encode({{"<|im_", true}, {"end|>", true}}), "<|im_end|>");
  EXPECT_EQ(encode({{"<|im_end|>", true}, {"hello", false}, {"<|im_end|>", true}}), "<|im_end|> hello <|im_end|>");
  const std::string plain = spelled(*tokenizer, "<|im_end|>");
  EXPECT_EQ(encode({{"<|im_end|>", false}}), plain);
  EXPECT_EQ(encode({{"<|im_", false}, {"end|>", true}}), plain) << "a token half in a user's text is no token";
  EXPECT_EQ(encode({{"<|im_", true}, {"end|>", false}}), plain);
  EXPECT_EQ(encode({{"<us", false}, {"er>", true}}), "<user>");
  EXPECT_EQ(encode({}), "");
}

TEST(EndOfGeneration, ByIdAndByText) {
  VocabularyFacts facts = byte_level_facts();
  const auto end_texts = [&] {
    const auto tokenizer = make_tokenizer(facts);
    return spelled(*tokenizer, tokenizer->end_of_generation());
  };
  EXPECT_EQ(end_texts(), "<|im_end|>");
  facts.special.eot = 3;
  facts.special.eos = 5;
  const auto tokenizer = make_tokenizer(facts);
  EXPECT_TRUE(tokenizer->is_end_of_generation(3));
  EXPECT_TRUE(tokenizer->is_end_of_generation(5));
  EXPECT_FALSE(tokenizer->is_end_of_generation(4));
  EXPECT_FALSE(tokenizer->is_end_of_generation(-1));
  facts.special = {};
  add_token(facts, "<|end|>");
  add_token(facts, "<|call|>");
  EXPECT_EQ(end_texts(), "<|im_end|> <|end|> <|call|>");
  add_token(facts, "<|return|>");
  EXPECT_EQ(end_texts(), "<|im_end|> <|call|> <|return|>") << "gpt-oss: <|end|> ends a part only";
  add_token(facts, "<|fim_pad|>");
  EXPECT_EQ(end_texts(), "<|im_end|> <|call|> <|return|> <|fim_pad|>");
  EXPECT_EQ(make_tokenizer(facts)->kind(*make_tokenizer(facts)->find("<|fim_pad|>")), TokenKind::control);
}

TEST(BosAndEos, AsTheFileSaysOrTheCaller) {
  VocabularyFacts facts = byte_level_facts();
  EXPECT_FALSE(make_tokenizer(facts)->adds_bos());
  facts.special.bos = 4;
  facts.special.eos = 5;
  EXPECT_FALSE(make_tokenizer(facts)->adds_bos());
  facts.pre_tokenizer = "llama-bpe";
  EXPECT_TRUE(make_tokenizer(facts)->adds_bos()) << "the default of this family";
  facts.add_bos = false;
  facts.add_eos = true;
  const auto tokenizer = make_tokenizer(facts);
  EXPECT_EQ(tokenizer->encode("l"), (std::vector<TokenId>{*tokenizer->find("l"), 5}));
  EncodeOptions options;
  options.add_bos = true;
  options.add_eos = false;
  EXPECT_EQ(tokenizer->encode("l", options), (std::vector<TokenId>{4, *tokenizer->find("l")}));
}

TEST(Requests, OutOfRangeIsAnError) {
  const auto tokenizer = make_tokenizer(byte_level_facts());
  for (const TokenId id : {-1, tokenizer->vocab_size(), INT32_MAX, INT32_MIN}) {
    EXPECT_THROW((void)tokenizer->piece(id), Error);
    EXPECT_THROW((void)tokenizer->text(id), Error);
    EXPECT_THROW((void)tokenizer->kind(id), Error);
    EXPECT_THROW((void)tokenizer->decode({&id, 1}), Error);
  }
  EncodeOptions options;
  options.add_bos = true;
  EXPECT_THROW((void)tokenizer->encode("x", options), Error) << "there is no BOS token";
}

TEST(Requests, B32TextTooLong) {
  const auto tokenizer = make_tokenizer(byte_level_facts());
  const std::string_view far_too_long("x", (size_t{1} << 28) + 1);  // its length is refused before a byte is read
  EXPECT_THROW((void)tokenizer->encode(far_too_long), Error);
}

TEST(StreamDecoder, NeverEmitsHalfACharacter) {
  const auto tokenizer = make_tokenizer(byte_level_facts());
  const std::string text = "é😀한a";
  std::string shown;
  StreamDecoder decoder(tokenizer);
  for (const TokenId id : tokenizer->encode(text)) {
    const std::string part = decoder.push(id);
    EXPECT_TRUE(base::is_utf8(part));
    shown += part;
  }
  EXPECT_EQ(shown, text);
  EXPECT_EQ(decoder.finish(), "");
}

TEST(StreamDecoder, BrokenBytesBecomeReplacementCharacters) {
  const auto tokenizer = make_tokenizer(sentence_piece_facts());
  const auto byte = [&](const char* spelling) { return *tokenizer->find(spelling); };
  StreamDecoder decoder(tokenizer);
  EXPECT_EQ(decoder.push(byte("<0xC3>")), "");
  EXPECT_EQ(decoder.push(byte("<0xC3>")), "\uFFFD");
  EXPECT_EQ(decoder.push(byte("<0xA9>")), "é");
  EXPECT_EQ(decoder.push(byte("<0xFF>")), "\uFFFD");
  EXPECT_EQ(decoder.push(byte("<0xF0>")), "");
  EXPECT_EQ(decoder.push(byte("<0x9F>")), "");
  EXPECT_EQ(decoder.finish(), "\uFFFD");
  EXPECT_EQ(decoder.finish(), "");
}

TEST(StreamDecoder, KeepsTheBlankThatContinuesAPrompt) {
  const auto tokenizer = make_tokenizer(sentence_piece_facts());
  const TokenId ab = *tokenizer->find("▁ab");
  StreamDecoder after_prompt(tokenizer);
  EXPECT_EQ(after_prompt.push(ab), " ab");
  StreamDecoder alone(tokenizer, false, false);
  EXPECT_EQ(alone.push(1), "");
  EXPECT_EQ(alone.push(ab), "ab");
  EXPECT_EQ(alone.push(ab), " ab");
}

}  // namespace
}  // namespace assay
