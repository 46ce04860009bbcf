// Every tensor of the file against those of the Hugging Face folder that it was made of (assay/convert.h).
#include <fmt/format.h>

#include "assay/convert.h"
#include "verify/stages/stage_support.h"

namespace assay::verify {

VerifyStage check_folder(const std::string& model_path, const std::string& folder, const StageRun& run) {
  return run_stage(run, "folder", "Folder", [&](Findings& findings) {
    FolderReportOptions options;
    options.n_threads = run.pool.n_threads();
    options.cancelled = run.cancelled;
    options.progress = [&](const std::string&, int64_t i, int64_t n) { show_progress(run, i, n); };
    const FolderReport report = hold_against_folder(model_path, folder, options);
    if (report.cancelled) throw Cancelled();
    findings.summary(fmt::format("{}: {} equal bit for bit, {} as near as their formats come{}",
                                 plural(report.n_tensors, "tensor"), report.n_equal, report.n_near,
                                 report.worst_ratio > 0 ? fmt::format(" (at most {:.2f} times the encoder's error: {})",
                                                                      report.worst_ratio, report.worst_tensor)
                                                        : std::string()));
    if (!report.overall.empty()) findings.fail(report.overall);
    for (const FolderDifference& one : report.differences) {
      findings.fail(fmt::format("{}{}: {}{}{}", one.tensor, one.type.empty() ? "" : " (" + one.type + ")", one.problem,
                                one.cause.empty() ? "" : ": ", one.cause));
    }
    for (const std::string& note : report.notes) findings.warn(note);
  });
}

}  // namespace assay::verify
