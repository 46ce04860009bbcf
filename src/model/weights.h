// The tensors of a file by name, each checked against the shape that the hyper-parameters ask for, entered into the
// Plan once.
#pragma once

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "gguf/file.h"
#include "ops/plan/plan.h"

namespace assay::model {

class Weights {
 public:
  // Both must outlive this; the file also the plan.
  Weights(const gguf::File& file, ops::Plan& plan) : file_(&file), plan_(&plan) {}

  // [rows, cols] in any weight format. Error(bad_file) with needed and found where it is missing or has another shape,
  // Error(unsupported) where its type is no weight format.
  ops::WeightId matrix(const std::string& name, int64_t rows, int64_t cols);
  // f32 [n].
  ops::WeightId vector(const std::string& name, int64_t n);
  // [n_experts, rows, cols] in any weight format.
  ops::WeightId experts(const std::string& name, int64_t n_experts, int64_t rows, int64_t cols);
  // One of them as a matrix of its own.
  ops::WeightId expert_matrix(const std::string& name, int64_t n_experts, int64_t rows, int64_t cols, int64_t i);
  int64_t rows_of(const std::string& name) const { return require(name).view.shape.rows(); }
  void ignore(const std::string& prefix) {
    ignored_.push_back(prefix);
  }  // tensors that this build knows and does not need
  // Rows [begin, begin + n) of a matrix [rows, cols] as a matrix of their own (parts of fused projections), elements of
  // a vector likewise.
  ops::WeightId matrix_rows(const std::string& name, int64_t rows, int64_t cols, int64_t begin, int64_t n);
  ops::WeightId vector_part(const std::string& name, int64_t n_all, int64_t begin, int64_t n);
  bool has(const std::string& name) const { return file_->find(name) != nullptr; }
  ops::WeightId stacked_vector(const std::string& name, int64_t rows, int64_t n);  // f32 [rows, n], as one vector
  // The same, kNone where the file has none.
  ops::WeightId optional_matrix(const std::string& name, int64_t rows, int64_t cols);
  // f32, n elements in any shape: what files write as [n], [n, 1] or [1, 1, n, 1].
  ops::WeightId elements(const std::string& name, int64_t n);
  ops::WeightId optional_vector(const std::string& name, int64_t n);
  // The values of an f32 vector that the plan's ops do not read (rope_freqs.weight); empty where the file has none.
  std::vector<float> optional_values(const std::string& name, int64_t n);

  // Error(unsupported) where the file has a tensor that nobody asked for: running without it would give wrong answers
  // in silence.
  void check_all_used(std::string_view architecture) const;

 private:
  const gguf::Tensor& require(const std::string& name) const;
  ops::WeightId enter(const gguf::Tensor& tensor);
  ops::WeightId part_of_rows(ops::WeightId whole, const std::string& part_name, int64_t begin, int64_t n, int64_t cols);

  const gguf::File* file_;
  ops::Plan* plan_;
  std::unordered_map<std::string, ops::WeightId> entered_;
  std::unordered_set<std::string> read_otherwise_;
  std::vector<std::string> ignored_;
};

}  // namespace assay::model
