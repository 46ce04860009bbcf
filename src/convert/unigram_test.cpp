// Unigram vocabularies: parts of tokenizer.json in their several spellings, parts that are not known, SentencePiece's
// own file, and what the encoders that have them are refused for.
#include <gtest/gtest.h>

#include <functional>

#include "gguf/file.h"
#include "support/convert_folder.h"
#include "support/unigram_facts.h"

namespace assay {
namespace {

using namespace converting::testing;

json::object tokenizer_json(const ConvertedFolder& folder) {
  return json::parse(test::content(folder.path() / "tokenizer.json")).as_object();
}

// The folder of an XLM-RoBERTa whose tokenizer.json was changed.
struct Changed {
  ConvertedFolder folder{"xlm_roberta"};
  explicit Changed(const std::function<void(json::object&)>& change) {
    json::object all = tokenizer_json(folder);
    change(all);
    folder.write_text("tokenizer.json", json::serialize(all));
  }
};

std::string refusal(const std::function<void(json::object&)>& change) {
  return Changed(change).folder.refusal(Errc::unsupported, "f16");
}

json::value sequence(const char* parts, const json::array& all) {
  return json::object{{"type", "Sequence"}, {parts, all}};
}
json::value metaspace(const char* scheme) {
  return json::object{{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", scheme}, {"split", true}};
}
json::value of_type(const char* type) { return json::object{{"type", type}}; }
json::value joins(const char* by) {
  return json::object{{"type", "Replace"}, {"pattern", json::object{{"Regex", " {2,}"}}}, {"content", by}};
}
json::value strips(bool left, bool right) {
  return json::object{{"type", "Strip"}, {"strip_left", left}, {"strip_right", right}};
}

void expect_part(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(ConvertUnigram, PartsThatAreNotKnownAreRefusedByName) {
  expect_part(refusal([](auto& t) { t["normalizer"] = of_type("NFKC"); }), "the normalizer 'NFKC'");
  expect_part(refusal([](auto& t) { t["normalizer"].as_object()["precompiled_charsmap"] = "?"; }), "'Precompiled'");
  expect_part(refusal([](auto& t) {
                t["normalizer"] = sequence("normalizers", {strips(false, true), t["normalizer"]});
              }),
              "'Precompiled'");
  expect_part(refusal([](auto& t) { t["pre_tokenizer"] = of_type("BertPreTokenizer"); }), "'BertPreTokenizer'");
  expect_part(refusal([](auto& t) { t["pre_tokenizer"] = of_type("WhitespaceSplit"); }), "no pre-tokenizer Metaspace");
  expect_part(refusal([](auto& t) {
                t["pre_tokenizer"] = sequence("pretokenizers", {of_type("WhitespaceSplit"), metaspace("never")});
              }),
              "without the blanks");
  expect_part(refusal([](auto& t) {
                t["pre_tokenizer"] = metaspace("always");
                t["pre_tokenizer"].as_object()["replacement"] = "_";
              }),
              "'Metaspace'");
  expect_part(refusal([](auto& t) { t["decoder"] = of_type("WordPiece"); }), "the decoder 'WordPiece'");
  expect_part(refusal([](auto& t) { t["model"].as_object()["unk_id"] = nullptr; }), "unk_id");
  expect_part(refusal([](auto& t) {
                t["normalizer"] = sequence("normalizers", {t["normalizer"], strips(true, true)});
                t["pre_tokenizer"] = metaspace("always");
              }),
              "strips ends");
}

struct Kept {
  bool joins_blanks, has_prefix;
  std::string notes;
};
Kept kept(const std::function<void(json::object&)>& change) {
  const Changed changed(change);
  const ConvertResult result = changed.folder.convert("f16");
  EXPECT_GT(result.n_texts_checked, 10);
  const gguf::File file = gguf::File::open(changed.folder.out());
  const auto flag = [&](const char* key) { return file.metadata().find_bool(key).value(); };
  std::string notes;
  for (const std::string& note : result.notes) notes += note + "\n";
  return {flag("tokenizer.ggml.remove_extra_whitespaces"), flag("tokenizer.ggml.add_space_prefix"), notes};
}

// As transformers writes a folder anew: the blanks are joined by the normalizer.
TEST(ConvertUnigram, OtherSpellingsOfTheSame) {
  const Kept anew = kept([](auto& t) {
    t["normalizer"] = sequence("normalizers", {t["normalizer"], strips(false, true), joins("\u2581")});
    t["pre_tokenizer"] = metaspace("always");
  });
  EXPECT_TRUE(anew.joins_blanks && anew.has_prefix);
  EXPECT_EQ(anew.notes.find("blank"), std::string::npos) << anew.notes;
  const Kept with_end = kept([](auto& t) {
    t["normalizer"] = sequence("normalizers", {t["normalizer"], joins(" ")});
    t["pre_tokenizer"] = metaspace("always");
    t["decoder"] = nullptr;
  });
  EXPECT_TRUE(with_end.joins_blanks && with_end.has_prefix);
  expect_part(with_end.notes, "a blank at the end of a text stays");
}

TEST(ConvertUnigram, BlanksThatStay) {
  const Kept prefixed = kept([](auto& t) { t["pre_tokenizer"] = metaspace("first"); });
  EXPECT_TRUE(!prefixed.joins_blanks && prefixed.has_prefix);
  expect_part(prefixed.notes, "gets no further one");
  expect_part(prefixed.notes, "behind special tokens too");
}

TEST(ConvertUnigram, BlanksThatStayAndNoPrefix) {
  const Kept all = kept([](auto& t) {
    t["normalizer"] = nullptr;
    t["pre_tokenizer"] = metaspace("never");
  });
  EXPECT_FALSE(all.joins_blanks || all.has_prefix);
}

// Protocol buffers, as much as SentencePiece's file needs.
std::string varint(uint64_t value) {
  std::string out;
  for (; value >= 128; value >>= 7) out += static_cast<char>(value | 128);
  return out + static_cast<char>(value);
}
std::string field(int number, std::string_view bytes) {
  return varint(static_cast<uint64_t>(number) << 3 | 2) + varint(bytes.size()) + std::string(bytes);
}
std::string field(int number, uint64_t value) { return varint(static_cast<uint64_t>(number) << 3) + varint(value); }
std::string field(int number, float value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return varint(static_cast<uint64_t>(number) << 3 | 5) + bytes;
}

// The vocabulary "usual" of tests/data/tokenizers/unigram.json, of which the goldens' tokenizer.json was made.
std::string sentence_piece_file(const std::string& trainer, const std::string& normalizer) {
  std::string out;
  test::for_each_unigram_vocabulary([&](const test::UnigramVocabulary& one) {
    if (one.name != "usual") return;
    one.facts.tokens.for_each([&](size_t i, std::string_view text) {
      const auto kind = static_cast<uint64_t>(one.facts.kinds[i]) + 1;
      out += field(1, field(1, text) + field(2, one.facts.scores[i]) + field(3, kind));
    });
    out += field(2, trainer) + field(3, field(2, test::text_of(one.rules)) + normalizer);
  });
  return out;
}

TEST(ConvertUnigram, SentencePiecesOwnFileGivesTheSameTokenizer) {
  ConvertedFolder folder("xlm_roberta");
  folder.convert("f16");
  const gguf::File by_json = gguf::File::open(folder.out());
  ConvertedFolder other("xlm_roberta");
  fs::remove(other.path() / "tokenizer.json");
  other.write_text("sentencepiece.bpe.model", sentence_piece_file(field(3, uint64_t{1}), ""));
  other.convert("f16");
  const gguf::File by_pieces = gguf::File::open(other.out());
  int n_keys = 0;
  for (const gguf::Entry& entry : by_json.metadata().entries()) {
    if (!entry.key.starts_with("tokenizer.")) continue;
    const gguf::Entry* found = by_pieces.metadata().find(entry.key);
    ASSERT_NE(found, nullptr) << entry.key;
    EXPECT_TRUE(std::ranges::equal(entry.bytes, found->bytes)) << entry.key;
    ++n_keys;
  }
  EXPECT_GE(n_keys, 15);
}

TEST(ConvertUnigram, SentencePieceFilesThatCannotBe) {
  const auto problem = [](const std::string& content, Errc code) {
    ConvertedFolder folder("xlm_roberta");
    fs::remove(folder.path() / "tokenizer.json");
    folder.write_text("sentencepiece.bpe.model", content);
    return folder.refusal(code, "f16");
  };
  const std::string unigram = field(3, uint64_t{1});
  expect_part(problem(sentence_piece_file(field(3, uint64_t{2}), ""), Errc::unsupported), "a model of merges");
  expect_part(problem(sentence_piece_file(unigram + field(24, uint64_t{1}), ""), Errc::unsupported), "the word before");
  expect_part(problem(sentence_piece_file(unigram, field(5, uint64_t{0})), Errc::unsupported), "U+2581");
  expect_part(problem(field(1, field(1, "a")), Errc::bad_file), "1 pieces");
  const std::string whole = sentence_piece_file(unigram, "");
  for (size_t n = 1; n < whole.size(); n = 3 * n + 1) {
    EXPECT_NE(problem(whole.substr(0, whole.size() - n), Errc::bad_file), "converted") << n;
  }
}

TEST(ConvertUnigram, PositionsBeforeTheFirstAreDropped) {
  ConvertedFolder folder("xlm_roberta");
  folder.set("max_position_embeddings", 2);
  expect_part(folder.refusal(Errc::bad_file, "f16"), "max_position_embeddings is 2");
  folder.set("max_position_embeddings", 128);
  for (StoredFact& t : folder.tensors()) {
    if (t.name.ends_with("position_embeddings.weight")) t.shape[0] = 2;
  }
  folder.write_weights();
  expect_part(folder.refusal(Errc::bad_file, "f16"), "position_embd.weight has 2 rows");
  ConvertedFolder adapted("xlm_roberta");
  adapted.set("lora_adaptations", json::array{"retrieval.query"});
  expect_part(adapted.refusal(Errc::unsupported, "f16"), "lora_adaptations");
}

TEST(ConvertUnigram, ExpertsOfNomicBert) {
  const ConvertedFolder folder("nomic_bert_moe");
  std::string notes;
  for (const std::string& note : folder.convert("f16").notes) notes += note + "\n";
  expect_part(notes, "experts.bias is left out");
  const auto changed = [](const char* key, const json::value& value) {
    ConvertedFolder other("nomic_bert_moe");
    other.set(key, value);
    return other.refusal(Errc::unsupported, "f16");
  };
  expect_part(changed("num_shared_experts", 1), "num_shared_experts");
  expect_part(changed("moe_normalize_expert_weights", true), "moe_normalize_expert_weights");
  expect_part(changed("activation_function", "swiglu"), "activation_function");
  ConvertedFolder short_one("nomic_bert_moe");
  for (StoredFact& t : short_one.tensors()) {
    if (t.name.ends_with("mlp.w2")) t.shape[0] -= 1;
  }
  short_one.write_weights();
  expect_part(short_one.refusal(Errc::bad_file, "f16"), "needs 4 experts of 96 rows");
}

}  // namespace
}  // namespace assay
