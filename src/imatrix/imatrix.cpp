// What can be done with a matrix in memory, and reading one from a path.
#include "assay/imatrix.h"

#include <fmt/core.h>

#include <algorithm>

#include "assay/error.h"
#include "base/mapped_file.h"
#include "base/shown.h"
#include "imatrix/imatrix_read.h"

namespace assay {

std::vector<float> ImatrixEntry::importance() const {
  std::vector<float> out(sums.size(), 1.0f);
  const auto cols = static_cast<size_t>(n_columns());
  for (size_t row = 0; row < counts.size(); ++row) {
    if (counts[row] == 0) continue;
    for (size_t i = row * cols; i < (row + 1) * cols; ++i) out[i] = sums[i] / counts[row];
  }
  return out;
}

const ImatrixEntry* Imatrix::find(std::string_view name) const noexcept {
  const auto it = std::ranges::lower_bound(entries, name, {},
                                           [](const ImatrixEntry& entry) -> std::string_view { return entry.name; });
  return it != entries.end() && it->name == name ? &*it : nullptr;
}

Imatrix read_imatrix(const std::string& path) {
  const base::MappedFile map(path);
  return imatrix::read_bytes(map.bytes(), path);
}

void merge_imatrix(Imatrix& into, const Imatrix& other) {
  if (into.chunk_size == 0 && other.chunk_size != 0) {  // chunks to tokens
    for (ImatrixEntry& entry : into.entries) {
      for (float& sum : entry.sums) sum *= static_cast<float>(other.chunk_size);
      for (float& count : entry.counts) count *= static_cast<float>(other.chunk_size);
    }
    into.chunk_size = other.chunk_size;
  }
  const float scale = other.chunk_size == 0 && into.chunk_size != 0 ? static_cast<float>(into.chunk_size) : 1.0f;
  for (const ImatrixEntry& entry : other.entries) {
    const auto it = std::ranges::lower_bound(into.entries, entry.name, {}, &ImatrixEntry::name);
    const bool is_new = it == into.entries.end() || it->name != entry.name;
    ImatrixEntry& sum = is_new ? *into.entries.insert(it, {entry.name, std::vector<float>(entry.sums.size()),
                                                           std::vector<float>(entry.counts.size())})
                               : *it;
    if (sum.sums.size() != entry.sums.size() || sum.counts.size() != entry.counts.size()) {
      throw Error(Errc::bad_request, fmt::format("{} has {} sums and {} counts in one matrix, {} and {} in the other",
                                                 base::shown(entry.name), sum.sums.size(), sum.counts.size(),
                                                 entry.sums.size(), entry.counts.size()));
    }
    for (size_t i = 0; i < entry.sums.size(); ++i) sum.sums[i] += scale * entry.sums[i];
    for (size_t i = 0; i < entry.counts.size(); ++i) sum.counts[i] += scale * entry.counts[i];
  }
  into.n_chunks += other.n_chunks;
  for (const std::string& dataset : other.datasets) {
    if (std::ranges::find(into.datasets, dataset) == into.datasets.end()) into.datasets.push_back(dataset);
  }
}

}  // namespace assay
