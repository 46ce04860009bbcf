// One source of a comparison while it runs: every op is judged (op_checker.h), the logits are held
// against the float64 chain, and the bits of every row are remembered as hashes, so that sources
// which promise equal bits can be compared without keeping their values.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "assay/verify.h"
#include "bounds/op_checker.h"

namespace assay::verify {

// By op of the plan and token of the run (in the order they were fed, whatever the batches): a hash
// of the row's bits; 0: no such row.
using RowBits = std::vector<std::vector<uint64_t>>;

struct BitsDifference {
  size_t i_op = 0;
  size_t i_token = 0;
};

// The first op, in the plan's order, that both have and whose bits differ, and its first such
// token.
std::optional<BitsDifference> first_difference(const RowBits& a, const RowBits& b);

class SourceWatch final : public ops::OpObserver {
 public:
  SourceWatch(const ops::Plan& plan, const trace::Declared& declared, int64_t n_ctx, int n_sequences,
              base::ThreadPool& pool);

  void begin(const ops::Batch& batch);  // valid until end()
  bool wants(const ops::Op&) override { return true; }
  void on_op(const ops::Op& op, int64_t n_rows, int64_t width, std::span<const double> values) override;
  void end();

  const bounds::FailedOp* first_failure() const noexcept { return checker_.first_failure(); }
  const RowBits& bits() const noexcept { return bits_; }
  SourceFigures figures(std::string name) const;  // without causes

 private:
  void remember_bits(size_t i_op, int64_t n_rows, int64_t width, std::span<const double> values);

  const ops::Plan& plan_;
  bounds::OpChecker checker_;
  std::unordered_map<std::string, size_t> indices_;
  std::vector<size_t> rows_all_, rows_outputs_;  // of the batch: the token of each row
  size_t n_tokens_ = 0;                          // of the batches before
  size_t n_batch_ = 0;
  RowBits bits_;
  std::vector<double> logits_;  // of the batch
  double error_squares_ = 0, chain_squares_ = 0;
  bool has_logits_ = false;
};

}  // namespace assay::verify
