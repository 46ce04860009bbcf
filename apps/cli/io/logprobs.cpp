// See logprobs.h.
#include "io/logprobs.h"

#include <fmt/format.h>

#include <cmath>

#include "assay/utf8.h"

namespace assay::cli {
namespace {

std::string label(const Tokenizer* tokenizer, TokenId id) {  // quoted, control characters escaped
  return tokenizer == nullptr ? fmt::format("{}", id) : quoted_text(tokenizer->piece(id));
}

}  // namespace

void LogprobsFlag::add(Flags& flags) {
  flags.value("--logprobs", n, "N",
              "Log-probability of each token of the answer and of the N likeliest in its place (0 to 20), before "
              "sampling: with "
              "--json in it, else as a table on standard error");
}

int64_t LogprobsFlag::count() const {
  if (!n) return -1;
  if (*n < 0 || *n > kTopLogprobsMax)
    throw UsageError(fmt::format("--logprobs {}: needs 0 to {}", *n, kTopLogprobsMax));
  return *n;
}

boost::json::value logprobs_value(const Tokenizer* tokenizer, std::span<const TokenLogprobs> places) {
  return boost::json::parse(logprobs_json(tokenizer, places));
}

std::string logprobs_table(const Tokenizer* tokenizer, std::span<const TokenLogprobs> places) {
  std::string text = fmt::format("{:>8}  {:>9}  {:>8}  token{}\n", "id", "logprob", "p",
                                 places.empty() || places.back().top.empty() ? "" : "  (likeliest)");
  for (const TokenLogprobs& place : places) {
    const auto& [id, logprob, top] = place;
    text += std::isnan(logprob) ? fmt::format("{:>8}  {:>9}  {:>8}  {}", id, "", "", label(tokenizer, id))
                                : fmt::format("{:>8}  {:>9.5f}  {:>7.3f}%  {}", id, logprob, 100 * std::exp(logprob),
                                              label(tokenizer, id));
    for (size_t i = 0; i < top.size(); ++i) {
      text += fmt::format("{}{} {:.3f}", i == 0 ? "  (" : ", ", label(tokenizer, top[i].first), top[i].second);
    }
    text += top.empty() ? "\n" : ")\n";
  }
  return text;
}

}  // namespace assay::cli
