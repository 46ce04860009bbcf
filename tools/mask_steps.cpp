// Answers drawn at random from a constraint's masks, for another library to judge (tools/judge_masks.py), and what
// masks cost.
//   mask_steps tokens MODEL                 the vocabulary: a line of JSON a token, {"bytes": hex, "end": bool, "control": bool}
//   mask_steps steps MODEL N SEED <LIST     a line of LIST is a schema; N answers each, as lines of JSON {"line", "ids", "masks", "text", "whole"}, where a mask is
//                                           the allowed ids as ranges [first, last]; one that is refused has {"line", "refused"}
//   mask_steps cost MODEL N SEED <LIST      microseconds of the processor for a mask, over all draws of such answers: median, mean, p99, most; and the slowest, with the answers before them
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <boost/json.hpp>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "assay/constraint.h"
#include "assay/model.h"

namespace {

using assay::TokenId;

// Of the processor: others on the machine do not count.
double processor_us() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) / 1e3;
}

std::string quoted(std::string_view text) {
  return boost::json::serialize(boost::json::string_view(text.data(), text.size()));
}

int print_tokens(const assay::Tokenizer& tokenizer) {
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    std::string hex;
    for (const char c : tokenizer.piece(id)) hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
    const auto kind = tokenizer.kind(id);
    const bool is_text =
        kind == assay::TokenKind::normal || kind == assay::TokenKind::byte || kind == assay::TokenKind::user_defined;
    fmt::print("{{\"bytes\": \"{}\", \"end\": {}, \"control\": {}}}\n", hex, tokenizer.is_end_of_generation(id),
               !is_text);
  }
  return 0;
}

std::vector<TokenId> ids_of(std::span<const uint64_t> words) {
  std::vector<TokenId> ids;
  for (size_t w = 0; w < words.size(); ++w) {
    for (uint64_t rest = words[w]; rest != 0; rest &= rest - 1)
      ids.push_back(static_cast<TokenId>(w * 64 + static_cast<size_t>(__builtin_ctzll(rest))));
  }
  return ids;
}

std::string ranges(const std::vector<TokenId>& ids) {
  std::string text;
  for (size_t i = 0; i < ids.size();) {
    size_t last = i;
    while (last + 1 < ids.size() && ids[last + 1] == ids[last] + 1) ++last;
    text += fmt::format("{}[{},{}]", text.empty() ? "" : ",", ids[i], ids[last]);
    i = last + 1;
  }
  return "[" + text + "]";
}

struct Cost {
  double us = 0;
  int line = 0;
  std::string text;  // before the mask
  bool operator<(const Cost& other) const { return us < other.us; }
};

struct Drawn {
  std::vector<TokenId> ids;
  std::string masks, text;
  bool whole = false;
};

// At most 60 tokens, the end preferred where it may come.
Drawn draw(const assay::Tokenizer& tokenizer, const assay::TokenMask& mask, std::mt19937_64& random, int line,
           std::vector<Cost>* costs) {
  Drawn d;
  while (d.ids.size() < 60 && !d.whole) {
    const double start = processor_us();
    const auto words = mask(d.ids);
    if (costs != nullptr) costs->push_back({processor_us() - start, line, d.text});
    const std::vector<TokenId> ids = ids_of(words);
    if (costs == nullptr) d.masks += fmt::format("{}{}", d.masks.empty() ? "" : ",", ranges(ids));
    if (ids.empty()) break;
    TokenId id = ids[random() % ids.size()];
    for (const TokenId end : ids) {
      if (tokenizer.is_end_of_generation(end) && random() % 2 == 0) id = end;
    }
    d.whole = tokenizer.is_end_of_generation(id);
    if (!d.whole) d.text += tokenizer.piece(id);
    d.ids.push_back(id);
  }
  return d;
}

int steps(const assay::Tokenizer& tokenizer, const assay::TokenTree& tokens, int n, uint64_t seed, bool measures) {
  const std::shared_ptr<const assay::TokenTree> tree(&tokens, [](const assay::TokenTree*) {});
  std::mt19937_64 random(seed);
  std::vector<Cost> costs;
  std::string line;
  for (int number = 1; std::getline(std::cin, line); ++number) {
    std::shared_ptr<const assay::Constraint> constraint;
    try {
      constraint = assay::Constraint::from_schema(line);
    } catch (const assay::Error& error) {
      if (!measures) fmt::print("{{\"line\": {}, \"refused\": {}}}\n", number, quoted(error.what()));
      continue;
    }
    for (int i = 0; i < n; ++i) {
      const Drawn d = draw(tokenizer, assay::constrain(constraint, tree), random, number, measures ? &costs : nullptr);
      if (!measures)
        fmt::print("{{\"line\": {}, \"ids\": [{}], \"masks\": [{}], \"text\": {}, \"whole\": {}}}\n", number,
                   fmt::join(d.ids, ","), d.masks, quoted(d.whole ? d.text : ""), d.whole);
    }
  }
  if (!measures || costs.empty()) return 0;
  std::sort(costs.begin(), costs.end());
  double sum = 0;
  for (const Cost& c : costs) sum += c.us;
  fmt::print("{} masks of {} tokens: median {:.1f} us, mean {:.1f} us, p99 {:.1f} us, most {:.1f} us\n", costs.size(),
             tokenizer.vocab_size(), costs[costs.size() / 2].us, sum / static_cast<double>(costs.size()),
             costs[costs.size() * 99 / 100].us, costs.back().us);
  for (size_t i = costs.size(); i > 0 && costs.size() - i < 12; --i)
    fmt::print("  {:.1f} us: line {} after {}\n", costs[i - 1].us, costs[i - 1].line, quoted(costs[i - 1].text));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if ((mode == "tokens" && argc == 3) || ((mode == "steps" || mode == "cost") && argc == 5)) {
    const auto tokenizer = assay::Tokenizer::load(argv[2]);
    if (mode == "tokens") return print_tokens(*tokenizer);
    return steps(*tokenizer, assay::TokenTree(*tokenizer, tokenizer->vocab_size()), std::stoi(argv[3]),
                 std::stoull(argv[4]), mode == "cost");
  }
  fmt::print(stderr, "usage: mask_steps tokens MODEL | mask_steps steps|cost MODEL N SEED <LIST\n");
  return 2;
}
