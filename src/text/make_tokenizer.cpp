// From the facts of a file to a tokenizer: checks them, and settles what the file leaves open by
// the rules of its kind.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "assay/error.h"
#include "text/encoders/bpe.h"
#include "text/encoders/piece_bpe.h"
#include "text/encoders/spm.h"
#include "text/encoders/unigram.h"
#include "text/encoders/word_piece.h"
#include "text/facts.h"
#include "text/pre_tokenizers.h"
#include "text/special_tokens.h"
#include "text/tokenizer_state.h"

namespace assay::text {
namespace {

void require_in_range(const SpecialIds& special, const Vocabulary& vocabulary) {
  const auto check = [&](std::string_view name, std::optional<TokenId> id) {
    if (!id || vocabulary.has(*id)) return;
    throw Error(Errc::bad_file, fmt::format("tokenizer.ggml.{}_token_id is {}, the vocabulary has {} tokens", name, *id,
                                            vocabulary.size()));
  };
  check("bos", special.bos);
  check("eos", special.eos);
  check("eot", special.eot);
  check("eom", special.eom);
  check("unknown", special.unknown);
  check("cls", special.cls);
  check("separator", special.separator);
  check("fim_pre", special.fim_prefix);
  check("fim_suf", special.fim_suffix);
  check("fim_mid", special.fim_middle);
  check("fim_pad", special.fim_pad);
  check("fim_rep", special.fim_repo);
  check("fim_sep", special.fim_separator);
}

// Llama's own ids, which old files leave out.
void fill_llama_defaults(SpecialIds& special, const Vocabulary& vocabulary) {
  const auto fill = [&](std::optional<TokenId>& id, TokenId usual) {
    if (!id && vocabulary.has(usual)) id = usual;
  };
  fill(special.unknown, 0);
  fill(special.bos, 1);
  fill(special.eos, 2);
}

// Hugging Face's tokenizer of Phi-3 lets most special tokens swallow the blanks after them; GGUF
// has no field for that, so the model's name decides, as in llama.cpp.
void set_phi3_strips(Tokenizer::State& state, std::string_view model_name) {
  std::string name(model_name);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  if (name.find("phi-3") == std::string::npos && name.find("phi3") == std::string::npos) return;
  const Vocabulary& vocabulary = state.vocabulary;
  state.strips_right.resize(vocabulary.size());
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const TokenKind kind = vocabulary.kind(id);
    state.strips_right[id] =
        kind == TokenKind::control || kind == TokenKind::user_defined || kind == TokenKind::unknown;
  }
  for (const std::string_view keeps : {"<unk>", "<s>", "<|endoftext|>"}) {
    if (const auto id = vocabulary.find(keeps)) state.strips_right[*id] = false;
  }
}

// The mask token of Jina's embedding models swallows the blanks before it.
void set_jina_strips(Tokenizer::State& state) {
  const std::string_view pre = state.pre_tokenizer;
  if (pre != "jina-v2-de" && pre != "jina-v2-es" && pre != "jina-v2-code") return;
  if (const auto mask = state.vocabulary.find("<mask>")) {
    state.strips_left.resize(state.vocabulary.size());
    state.strips_left[*mask] = true;
  }
}

void make_llama(const VocabularyFacts& facts, const SpecialIds& special, Tokenizer::State& state) {
  const SpmRules rules{facts.add_space_prefix.value_or(true), facts.remove_extra_whitespaces.value_or(false)};
  state.words = std::make_unique<SpmEncoder>(state.vocabulary, rules, special.unknown.value_or(-1));
  state.adds_bos = facts.add_bos.value_or(state.bos.has_value());
  set_phi3_strips(state, facts.model_name);
}

void make_gpt2(const VocabularyFacts& facts, Tokenizer::State& state, base::ThreadPool& pool) {
  if (facts.pre_tokenizer.empty()) {
    throw Error(Errc::bad_file,
                "tokenizer.ggml.pre is missing: a \"gpt2\" vocabulary must name its pre-tokenizer, "
                "convert the model anew");
  }
  const auto rules = find_pre_tokenizer(facts.pre_tokenizer);
  if (!rules) {
    throw Error(Errc::unsupported,
                fmt::format("unknown pre-tokenizer \"{}\" (tokenizer.ggml.pre)", facts.pre_tokenizer));
  }
  if (facts.merges.empty())
    throw Error(Errc::bad_file, "tokenizer.ggml.merges is missing, a \"gpt2\" vocabulary needs it");
  state.pre_tokenizer = facts.pre_tokenizer;
  state.words = std::make_unique<BpeEncoder>(state.vocabulary, facts.merges, *rules, pool);
  state.adds_bos = facts.add_bos.value_or(rules->adds_bos && state.bos.has_value());
  set_jina_strips(state);
}

// A text of this kind begins with BOS, also where a file says otherwise, as the first ones did.
void make_gemma4(const VocabularyFacts& facts, const SpecialIds& special, Tokenizer::State& state,
                 base::ThreadPool& pool) {
  if (facts.merges.empty())
    throw Error(Errc::bad_file, "tokenizer.ggml.merges is missing, a \"gemma4\" vocabulary needs it");
  state.words = std::make_unique<PieceBpeEncoder>(state.vocabulary, facts.merges, special.unknown.value_or(-1), pool);
  state.adds_bos = state.bos.has_value();
}

// [CLS] stands where others have BOS, [SEP] where they have EOS, and both belong to a text unless the file says
// otherwise.
void make_bert(const VocabularyFacts& facts, const SpecialIds& special, Tokenizer::State& state) {
  const auto or_named = [&](std::optional<TokenId> id, std::optional<TokenId> other, std::string_view text) {
    return id ? id : other ? other : state.vocabulary.find(text);
  };
  const std::optional<TokenId> unknown = or_named(special.unknown, std::nullopt, "[UNK]");
  if (!unknown)
    throw Error(Errc::bad_file,
                "tokenizer.ggml.unknown_token_id is missing, and no token is [UNK]: a \"bert\" vocabulary needs one");
  state.bos = or_named(special.cls, special.bos, "[CLS]");
  state.eos = or_named(special.separator, special.eos, "[SEP]");
  state.adds_bos = facts.add_bos.value_or(state.bos.has_value());
  state.words = std::make_unique<WordPieceEncoder>(state.vocabulary, *unknown);
}

// The unknown token where no key names it: the one of that kind. What follows a text is "</s>", unless a file says
// otherwise.
void make_unigram(const VocabularyFacts& facts, const SpecialIds& special, Tokenizer::State& state) {
  const Vocabulary& vocabulary = state.vocabulary;
  std::optional<TokenId> unknown = special.unknown;
  for (TokenId id = 0; id < vocabulary.size() && !unknown; ++id) {
    if (vocabulary.kind(id) == TokenKind::unknown) unknown = id;
  }
  if (!unknown)
    throw Error(
        Errc::bad_file,
        "tokenizer.ggml.unknown_token_id is missing, and no token is of that kind: a \"t5\" vocabulary needs one");
  if (!state.bos) state.bos = special.cls;
  if (!state.eos) state.eos = special.separator ? special.separator : vocabulary.find("</s>");
  const UnigramRules rules{facts.add_space_prefix.value_or(true), facts.remove_extra_whitespaces.value_or(false)};
  state.words = std::make_unique<UnigramEncoder>(vocabulary, rules, facts.chars_map, *unknown);
  state.adds_bos = facts.add_bos.value_or(false);
}

// What a text ends with where the file does not say.
bool adds_eos(const VocabularyFacts& facts, const Tokenizer::State& state) {
  const bool usual = facts.model == "t5" && state.eos.has_value();
  if (facts.model == "bert") return facts.add_separator.value_or(facts.add_eos.value_or(state.eos.has_value()));
  return facts.add_eos.value_or(usual);
}

constexpr std::array<std::string_view, 5> kServed = {"llama", "gpt2", "gemma4", "bert", "t5"};

}  // namespace

bool is_served(std::string_view model) noexcept {
  return std::find(kServed.begin(), kServed.end(), model) != kServed.end();
}

std::shared_ptr<const Tokenizer> make_tokenizer(VocabularyFacts facts) {
  const bool is_llama = facts.model == "llama", is_unigram = facts.model == "t5";
  if (!is_served(facts.model)) {
    throw Error(Errc::unsupported, fmt::format("tokenizer model \"{}\" is not served; \"{}\" are", facts.model,
                                               fmt::join(kServed, "\", \"")));
  }
  const bool has_scores = !facts.scores.empty();
  base::ThreadPool pool(
      facts.tokens.size() < SplitTable::kSplitFrom ? 1 : std::min(SplitTable::kParts, base::physical_cores()));
  auto state = std::make_unique<Tokenizer::State>(
      Vocabulary(facts.tokens, std::move(facts.kinds), std::move(facts.scores), pool));
  state->model = facts.model;
  SpecialIds special = facts.special;
  require_in_range(special, state->vocabulary);
  if (is_llama) fill_llama_defaults(special, state->vocabulary);
  state->bos = special.bos;
  state->eos = special.eos;
  state->ends = find_end_of_generation(state->vocabulary, special);
  if ((is_llama || is_unigram) && !has_scores) {
    throw Error(Errc::bad_file,
                fmt::format("tokenizer.ggml.scores is missing, a \"{}\" vocabulary needs it", facts.model));
  }
  if (is_llama) {
    make_llama(facts, special, *state);
  } else if (is_unigram) {
    make_unigram(facts, special, *state);
  } else if (facts.model == "bert") {
    make_bert(facts, special, *state);
  } else if (facts.model == "gemma4") {
    make_gemma4(facts, special, *state, pool);
  } else {
    make_gpt2(facts, *state, pool);
  }
  state->adds_eos = adds_eos(facts, *state);
  if (state->adds_bos && !state->bos) throw Error(Errc::bad_file, "the file asks for a BOS token but names none");
  if (state->adds_eos && !state->eos) throw Error(Errc::bad_file, "the file asks for an EOS token but names none");
  state->specials = std::make_unique<SpecialMatcher>(state->vocabulary);
  return std::make_shared<const Tokenizer>(std::move(state));
}

}  // namespace assay::text
