// Importance matrices: for each weight, how large the numbers are that it is multiplied with, column by column. What
// they are for: docs/imatrix.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace assay {

// Of one weight: the sums over tokens of the squares of its input, and how many tokens those were.
struct ImatrixEntry {
  std::string name;           // "blk.0.attn_q.weight"
  std::vector<float> sums;    // [counts.size(), n_columns], row-major: a row for each expert
  std::vector<float> counts;  // one for each expert, or one in all

  int64_t n_columns() const noexcept { return counts.empty() ? 0 : static_cast<int64_t>(sums.size() / counts.size()); }
  // sums / counts: the mean square of each input; 1 in the rows of experts that no token came to.
  std::vector<float> importance() const;
};

struct Imatrix {
  std::vector<std::string> datasets;  // the texts it was made of
  int64_t n_chunks = 0;
  int64_t chunk_size = 0;  // tokens in a chunk; 0: not known, and counts are chunks (the old form does not say)
  std::vector<ImatrixEntry> entries;  // by name, ascending

  const ImatrixEntry* find(std::string_view name) const noexcept;
};

// Both forms: GGUF with general.type "imatrix", and the old one, whose files end in .dat. In the old form an entry has
// one row in all, whatever its experts: counts has one item. Error(io), and Error(bad_file) for what breaks the form:
// sizes that disagree, sums or counts that are no finite number or negative, names twice.
Imatrix read_imatrix(const std::string& path);

// In the old form where the path ends in .dat, else as GGUF; through a file beside it and a rename. Error(io).
void write_imatrix(const Imatrix& imatrix, const std::string& path);

// Adds the sums, counts and chunks of `other`. Error(bad_request) where an entry of both has another size. Where
// `other` counts chunks it is scaled to tokens, and the other way round.
void merge_imatrix(Imatrix& into, const Imatrix& other);

}  // namespace assay
