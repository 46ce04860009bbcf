// See assay/logprobs.h.
#include "assay/logprobs.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

#include "assay/error.h"
#include "assay/score.h"
#include "assay/utf8.h"
#include "engine/metadata_json.h"
#include "engine/sampling/best_logits.h"

namespace assay {
namespace {

void write_token(const Tokenizer* tokenizer, TokenId id, double logprob, std::string& out) {
  const auto end = std::back_inserter(out);
  if (tokenizer != nullptr) {
    fmt::format_to(end, "\"token\":{},", engine::json_string(token_label(*tokenizer, id)));
  }
  fmt::format_to(end, "\"id\":{},", id);
  if (tokenizer != nullptr) {
    out += "\"bytes\":[";
    const std::string bytes = tokenizer->piece(id);
    for (size_t i = 0; i < bytes.size(); ++i)
      fmt::format_to(end, "{}{}", i > 0 ? "," : "", static_cast<unsigned char>(bytes[i]));
    out += "],";
  }
  if (std::isfinite(logprob)) {
    fmt::format_to(end, "\"logprob\":{}", logprob);
  } else {
    out += "\"logprob\":null";
  }
}

}  // namespace

TokenLogprobs token_logprobs(std::span<const double> logits, TokenId id, int64_t n_top) {
  const auto size = static_cast<int64_t>(logits.size());
  if (id < 0 || id >= size)
    throw Error(Errc::bad_request, fmt::format("token {}: the vocabulary has ids 0 to {}", id, size - 1));
  if (n_top < 0 || n_top > size)
    throw Error(Errc::bad_request, fmt::format("{} top logprobs: needs 0 to {}", n_top, size));
  const double total = log_sum_exp(logits);
  TokenLogprobs result{id, logits[static_cast<size_t>(id)] - total, engine::best_logits(logits, n_top)};
  for (auto& [best, logprob] : result.top) logprob -= total;
  return result;
}

std::string token_label(const Tokenizer& tokenizer, TokenId id) {
  const std::string bytes = tokenizer.piece(id);
  std::string_view rest = bytes;
  std::string label;
  while (const auto bad = find_invalid_utf8(rest)) {
    label += rest.substr(0, *bad);
    label += fmt::format("<0x{:02X}>", static_cast<unsigned char>(rest[*bad]));
    rest.remove_prefix(*bad + 1);
  }
  return label.append(rest);
}

std::string logprobs_json(const Tokenizer* tokenizer, std::span<const TokenLogprobs> places) {
  std::string out = "{\"content\":[";
  for (size_t i = 0; i < places.size(); ++i) {
    out += i > 0 ? ",{" : "{";
    write_token(tokenizer, places[i].id, places[i].logprob, out);
    out += ",\"top_logprobs\":[";
    for (size_t j = 0; j < places[i].top.size(); ++j) {
      out += j > 0 ? ",{" : "{";
      write_token(tokenizer, places[i].top[j].first, places[i].top[j].second, out);
      out += '}';
    }
    out += "]}";
  }
  return out + "]}";
}

}  // namespace assay
