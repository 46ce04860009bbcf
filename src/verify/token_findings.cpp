// See token_findings.h.
#include "verify/token_findings.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/shown.h"

namespace assay::verify {
namespace {

using Ids = std::span<const int32_t>;

size_t common_prefix(Ids a, Ids b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

bool begins_with(Ids ids, Ids prefix) { return common_prefix(ids, prefix) == prefix.size(); }

Ids without_bos(Ids ids, std::optional<int32_t> bos) {
  while (bos && !ids.empty() && ids.front() == *bos) ids = ids.subspan(1);
  return ids;
}

std::string bytes_of(const Tokenizer& tokenizer, Ids ids) {
  std::string bytes;
  for (const int32_t id : ids) bytes += tokenizer.piece(id);
  return bytes;
}

std::string shown_token(const Tokenizer& tokenizer, Ids ids, size_t i) {
  if (i >= ids.size()) return "nothing";
  return fmt::format("{} {}", ids[i], base::shown(tokenizer.piece(ids[i])));
}

// What turns ours into found.
std::string reason(const Tokenizer& tokenizer, Ids ours, Ids found) {
  const std::optional<int32_t> bos = tokenizer.bos();
  const size_t n_bos_found = found.size() - without_bos(found, bos).size();
  const size_t n_bos_ours = ours.size() - without_bos(ours, bos).size();
  if (n_bos_found != n_bos_ours && begins_with(without_bos(found, bos), without_bos(ours, bos))) {
    if (n_bos_found >= 2)
      return "the source begins with BOS more than once: the template or the prompt has one, and "
             "its tokenizer adds "
             "another";
    if (n_bos_found > n_bos_ours) return "the source begins with a BOS that this file's rules do not add";
    return "the source leaves out the BOS that this file's rules add";
  }
  const std::string own = bytes_of(tokenizer, without_bos(ours, bos));
  const std::string other = bytes_of(tokenizer, without_bos(found, bos));
  if (own == " " + other) return "the source leaves out the blank that this file's rules put before the first word";
  if (other == " " + own) return "the source puts a blank before the first word, which this file's rules do not";
  if (own == other) return "the same text cut at other places: another pre-tokenizer, or merges in another order";
  return "the source has another text, or another vocabulary";
}

}  // namespace

std::optional<std::string> explain_tokens(const Tokenizer& tokenizer, const Encode& encode, std::string_view text,
                                          std::span<const int32_t> found) {
  EncodeOptions options;
  std::vector<TokenId> ours = encode(text, options);
  options.parse_special = true;
  std::vector<TokenId> ours_special = encode(text, options);
  if (begins_with(found, ours) || begins_with(found, ours_special)) return std::nullopt;
  if (common_prefix(found, ours_special) > common_prefix(found, ours)) ours.swap(ours_special);
  const size_t i = common_prefix(found, ours);
  return fmt::format(
      "token ids differ from those of this file's tokenizer first at position {}: the source has "
      "{}, here it is {}: {}",
      i, shown_token(tokenizer, found, i), shown_token(tokenizer, ours, i), reason(tokenizer, ours, found));
}

}  // namespace assay::verify
