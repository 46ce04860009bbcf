// See modes.h.
#include "verify/modes.h"

#include <charconv>

#include "assay/error.h"

namespace assay::verify {
namespace {

constexpr std::string_view kChunks = "chunks/";
constexpr int64_t kChunkMax = int64_t{1} << 20;

std::optional<int64_t> parse_chunk(std::string_view text) {
  int64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size() || n < 1 || n > kChunkMax) return std::nullopt;
  return n;
}

}  // namespace

std::optional<Mode> parse_mode(std::string_view text, const ContextOptions& base) {
  if (const auto options = with_mode(base, text)) {
    require_judged(*options);
    return Mode{*options};
  }
  if (text.starts_with(kChunks)) {
    const std::optional<int64_t> n_chunk = parse_chunk(text.substr(kChunks.size()));
    if (n_chunk) return Mode{base, *n_chunk};
  }
  return std::nullopt;
}

std::string mode_names() {
  constexpr std::string_view kNotJudged = "fast, ";
  std::string names = std::string(kModeNames) + ", chunks/N";
  return names.erase(names.find(kNotJudged), kNotJudged.size());
}

void require_judged(const ContextOptions& options) {
  if (options.numerics != Numerics::fast) return;
  throw Error(
      Errc::bad_request,
      "verify: mode fast has a tolerance for its logits, none for each operation, so there is nothing to judge it by; "
      "`assay perplexity --numerics exact --against fast` measures how far it is, and mode exact can be verified");
}

bool promise_same_bits(const ContextOptions& a, const ContextOptions& b) {
  if (a.numerics != b.numerics) return false;
  if (a.numerics == Numerics::oracle) return true;
  if (a.cache_k != b.cache_k || a.cache_v != b.cache_v) return false;
  return (a.numerics != Numerics::exact && a.numerics != Numerics::fast) || a.activation_bits == b.activation_bits;
}

}  // namespace assay::verify
