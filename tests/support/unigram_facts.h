// The unigram vocabularies of tests/data/tokenizers/unigram.json.
#pragma once

#include <boost/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "support/chars_map_builder.h"
#include "support/json_facts.h"
#include "text/facts.h"

namespace assay::test {

// One of the file's vocabularies with what the facts point into. Not to be moved.
struct UnigramVocabulary {
  std::string name;
  std::vector<std::byte> rules;
  text::VocabularyFacts facts;
  boost::json::array cases;  // [text in hexadecimal, ids]

  UnigramVocabulary(const boost::json::object& from, std::vector<std::byte> own_rules)
      : name(from.at("name").as_string()), rules(std::move(own_rules)), cases(from.at("cases").as_array()) {
    facts.model = "t5";
    for (const auto& token : from.at("tokens").as_array()) facts.tokens.push_back(std::string_view(token.as_string()));
    constexpr TokenKind kKinds[] = {TokenKind::unused,       TokenKind::normal, TokenKind::unknown, TokenKind::control,
                                    TokenKind::user_defined, TokenKind::unused, TokenKind::byte};
    for (const auto& kind : from.at("kinds").as_array()) facts.kinds.push_back(kKinds[kind.to_number<int>()]);
    for (const auto& score : from.at("scores").as_array()) facts.scores.push_back(score.to_number<float>());
    facts.special.unknown = from.at("unknown").to_number<TokenId>();
    facts.add_space_prefix = from.at("add_space_prefix").as_bool();
    facts.remove_extra_whitespaces = from.at("remove_extra_whitespaces").as_bool();
    facts.chars_map = rules;
  }
  UnigramVocabulary(const UnigramVocabulary&) = delete;
  UnigramVocabulary& operator=(const UnigramVocabulary&) = delete;
};

template <class Visit>
void for_each_unigram_vocabulary(const Visit& visit) {
  const boost::json::value all = boost::json::parse(content(data("tokenizers/unigram.json")));
  std::vector<std::byte> first;
  for (const auto& one : all.as_array()) {
    const std::string_view rules = one.at("rules").as_string();
    if (first.empty()) first = from_hex(rules);
    visit(UnigramVocabulary(one.as_object(), rules.empty() ? first : from_hex(rules)));
  }
}

inline std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace assay::test
