// See tokenizer_causes.h.
#include "verify/tokenizer_causes.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>

#include "assay/error.h"
#include "base/ascii.h"
#include "engine/model_state.h"
#include "text/from_gguf.h"
#include "text/pre_tokenizers.h"

namespace assay::verify {
namespace {

using text::VocabularyFacts;

constexpr size_t kCausesMax = 4;

struct Candidate {
  std::string what;
  std::function<void(VocabularyFacts& facts)> facts;     // empty: read as they are
  std::string (*text)(std::string_view text) = nullptr;  // what becomes of a text before; nullptr: nothing
};

std::string joined_blanks(std::string_view text) {
  std::string changed(text);
  const auto both_blank = [](char a, char b) { return a == ' ' && b == ' '; };
  changed.erase(std::unique(changed.begin(), changed.end(), both_blank), changed.end());
  return changed;
}
std::string white_space_as_blank(std::string_view text) {
  std::string changed(text);
  std::replace_if(
      changed.begin(), changed.end(), [](char c) { return c == '\n' || c == '\t'; }, ' ');
  return changed;
}
std::string newline_as_blank(std::string_view text) {
  std::string changed(text);
  std::replace(changed.begin(), changed.end(), '\n', ' ');
  return changed;
}
std::string without_ends(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\n\r";
  const size_t begin = text.find_first_not_of(kBlanks), end = text.find_last_not_of(kBlanks);
  return begin == std::string_view::npos ? std::string() : std::string(text.substr(begin, end - begin + 1));
}
std::string blank_in_front(std::string_view text) { return fmt::format(" {}", text); }

// One candidate for all names that stand for the same rules.
void add_pre_tokenizers(const VocabularyFacts& right, std::vector<Candidate>& all) {
  struct Rules {
    text::PreTokenizerRules rules;
    std::string names;
  };
  const auto same = [](const text::PreTokenizerRules& a, const text::PreTokenizerRules& b) {
    return a.steps.data() == b.steps.data() && a.ignores_merges == b.ignores_merges;
  };
  const auto own = text::find_pre_tokenizer(right.pre_tokenizer);
  std::vector<Rules> others;
  for (const std::string_view name : text::pre_tokenizer_names()) {
    const text::PreTokenizerRules rules = text::find_pre_tokenizer(name).value();
    if (own && same(*own, rules)) continue;
    const auto known =
        std::find_if(others.begin(), others.end(), [&](const Rules& other) { return same(other.rules, rules); });
    if (known != others.end()) {
      known->names += fmt::format(", {}", name);
      continue;
    }
    others.push_back({rules, std::string(name)});
    all.push_back({{}, [name](VocabularyFacts& facts) { facts.pre_tokenizer = name; }});
  }
  for (size_t i = 0; i < others.size(); ++i) {
    all[all.size() - others.size() + i].what =
        fmt::format("texts are cut into words as those of pre-tokenizer {} are; the file's is {}", others[i].names,
                    right.pre_tokenizer);
  }
}

std::vector<Candidate> candidates(const VocabularyFacts& right) {
  std::vector<Candidate> all;
  if (right.model == "gpt2" || right.model == "gemma4") {
    if (right.model == "gpt2") add_pre_tokenizers(right, all);
    all.push_back({"the order of the merges is reversed",
                   [](VocabularyFacts& f) { std::reverse(f.merges.begin(), f.merges.end()); }});
    all.push_back({"the last merges are lost", [](VocabularyFacts& f) { f.merges.resize(f.merges.size() / 2); }});
  } else {
    const bool is_unigram = right.model == "t5";
    all.push_back({is_unigram ? "the vocabulary's scores are not read, or all the same"
                              : "the vocabulary's scores are not read, or all the same: pieces merge from the left",
                   [](VocabularyFacts& f) { f.scores.assign(f.scores.size(), 0.0f); }});
    all.push_back({"the vocabulary's scores have the wrong sign", [](VocabularyFacts& f) {
                     for (float& score : f.scores) score = -score;
                   }});
    const bool prefix = right.add_space_prefix.value_or(true);
    all.push_back({prefix ? "no blank is put before a text, where the file asks for one"
                          : "a blank is put before a text, where the file asks for none",
                   [prefix](VocabularyFacts& f) { f.add_space_prefix = !prefix; }});
  }
  all.push_back({"runs of blanks are joined to one before a text is encoded", {}, joined_blanks});
  all.push_back({"newlines and tabs are taken as blanks", {}, white_space_as_blank});
  all.push_back({"newlines are taken as blanks", {}, newline_as_blank});
  all.push_back({"blanks and newlines at the ends of a text are cut off", {}, without_ends});
  all.push_back({"one blank too many is put before a text", {}, blank_in_front});
  all.push_back({"texts are made lower-case", {}, base::lower});
  return all;
}

std::shared_ptr<const Tokenizer> changed_tokenizer(const VocabularyFacts& right, const Candidate& candidate) {
  VocabularyFacts facts = right;
  if (candidate.facts) candidate.facts(facts);
  try {
    return text::make_tokenizer(facts);
  } catch (const Error&) {
    return nullptr;  // facts that contradict each other are nobody's tokenizer
  }
}

}  // namespace

std::vector<std::string> tokenizer_causes(const Subject& subject, std::span<const std::string> texts) {
  const EncodeOptions plain{.parse_special = false, .add_bos = false, .add_eos = false};
  std::vector<std::vector<TokenId>> found;
  for (const std::string& text : texts) found.push_back(subject.encode(text, plain));
  const VocabularyFacts right = text::read_facts(subject.model->state().file.metadata());
  std::shared_ptr<const Tokenizer> unchanged;
  std::vector<std::string> causes;
  for (const Candidate& candidate : candidates(right)) {
    if (causes.size() == kCausesMax) break;
    std::shared_ptr<const Tokenizer> tokenizer = candidate.facts ? changed_tokenizer(right, candidate) : unchanged;
    if (!candidate.facts && !unchanged) tokenizer = unchanged = subject.model->tokenizer();
    if (!tokenizer) continue;
    bool same = true;
    for (size_t i = 0; same && i < texts.size(); ++i) {
      same = tokenizer->encode(candidate.text != nullptr ? candidate.text(texts[i]) : texts[i], plain) == found[i];
    }
    if (same) causes.push_back(candidate.what);
  }
  return causes;
}

}  // namespace assay::verify
