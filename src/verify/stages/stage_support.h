// What the stages share: collecting findings, and the one place where an Error of the subject
// becomes a finding.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "verify/stages/stages.h"

namespace assay::verify {

// The findings of one stage. Of each kind the first kLinesMax are kept word for word, the others
// counted.
class Findings {
 public:
  static constexpr int64_t kLinesMax = 24;

  void fail(std::string line);
  void warn(std::string line);
  void note(std::string line);  // worth a line of its own, and fine
  void skip(std::string why);   // the stage could not run
  void summary(std::string line) { summary_ = std::move(line); }
  bool failed() const noexcept { return n_failures_ > 0; }

  VerifyStage stage(std::string_view id, std::string_view title) &&;

 private:
  std::vector<std::string> failures_, warnings_, notes_;
  int64_t n_failures_ = 0, n_warnings_ = 0;
  std::string summary_;
  std::string skipped_;
};

// Thrown where a stage finds that it was asked to end; run_stage makes a skipped stage of it.
struct Cancelled {};
inline bool is_cancelled(const StageRun& run) { return run.cancelled && run.cancelled(); }
inline void end_if_cancelled(const StageRun& run) {
  if (is_cancelled(run)) throw Cancelled();
}
inline void show_progress(const StageRun& run, int64_t done, int64_t total) {
  if (run.progress && total > 0) run.progress(static_cast<double>(done) / static_cast<double>(total));
}

// Runs body(findings), unless the run was cancelled before; what it throws as an Error is a failure,
// but for a lack of memory, which is nobody's fault and goes on.
VerifyStage run_stage(const StageRun& run, std::string_view id, std::string_view title,
                      const std::function<void(Findings&)>& body);

// "row 12, element 3" and the like need values that read back: 9 digits for what was a float.
std::string shown_value(double value);
std::string shown_ids(std::span<const TokenId> ids, size_t n_max = 12);
std::string token_with_text(const Subject& subject, TokenId id);  // 338 " hills"
std::string plural(int64_t n, std::string_view thing);            // "1 row", "3 rows"

}  // namespace assay::verify
