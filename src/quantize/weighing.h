// An importance matrix held against the model whose weights' errors it is to weigh.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "assay/imatrix.h"
#include "assay/quantize.h"
#include "gguf/file.h"

namespace assay::quantizing {

class Weighing {
 public:
  // Of options.imatrix, or none. Error(bad_request) where the matrix is of another model, naming the first entry that
  // is no weight of `file` or has another size; for include_weights beside exclude_weights, and for one of them that no
  // entry's name has. Those of reading it else.
  Weighing(const gguf::File& file, const QuantizeOptions& options);

  bool given() const noexcept { return !matrix_.entries.empty(); }
  // How much the error of each column counts, for each expert in turn: [experts, columns], the largest of an expert
  // from 1 to below 2. Empty: the matrix says nothing of this weight.
  std::vector<float> of(std::string_view source_name) const;
  bool has(std::string_view source_name) const noexcept { return matrix_.find(source_name) != nullptr; }
  // Experts of the weight that no token came to: all their columns count the same.
  std::vector<int64_t> experts_without_data(std::string_view source_name) const;

  const std::string& path() const noexcept { return path_; }
  const Imatrix& matrix() const noexcept { return matrix_; }
  // What decides how errors are weighed, as text: for the digest of a run that may be resumed.
  std::string described() const;

 private:
  std::string path_;
  Imatrix matrix_;
};

}  // namespace assay::quantizing
