// What differs between two model files: metadata, and the values of each tensor (docs/diff.md).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "assay/edit.h"

namespace assay {

struct MetadataDifference {
  std::string key;
  std::string before, after;       // "u32 7", long ones shortened; empty: it is not in that file
  std::vector<std::string> lines;  // of long texts and lists: "-" or "+", then the line, or the item with its index
};

struct TensorDifference {
  enum class Kind { only_a, only_b, shape, values };
  Kind kind = Kind::values;
  std::string name = {};
  std::string type_a = {}, type_b = {};   // "Q4_K"; empty where the file has no such tensor
  std::vector<int64_t> shape_a = {}, shape_b = {};  // row-major
  // Of `values`, over all elements as numbers: b - a, in double, in the order of the file.
  double rmse = 0;
  double relative_rmse = 0;  // rmse / the root mean square of a; infinite where a is all zeros
  double largest = 0;        // the largest |b - a|
  std::vector<int64_t> place = {};  // of that one: its index in each dimension
  double cosine = 1;         // of the angle between a and b; NaN where one is all zeros
  double changed = 0;        // share of the elements that differ
  int64_t n_not_finite = 0;  // elements of either that are no finite number; those figures leave them out, but for `changed`
};

struct DiffResult {
  std::string a, b;  // the paths
  std::vector<MetadataDifference> metadata;
  std::vector<TensorDifference> tensors;  // those that differ: in one file only, of another shape, then by relative_rmse, the worst first
  int64_t n_tensors_same = 0;             // of both files, with the same values; the types of these may differ
  bool cancelled = false;

  bool differs() const noexcept { return !metadata.empty() || !tensors.empty(); }
  std::string to_text() const;  // for people; ends with a newline
  std::string to_json() const;  // one object; ends with a newline
};

// Either file may be split; what says so is no difference. Throws as gguf files do that cannot be opened.
DiffResult diff_files(const std::string& a, const std::string& b, const FileProgress& watch = {});

}  // namespace assay
