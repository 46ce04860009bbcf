// See check_written.h.
#include "io/check_written.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "assay/error.h"
#include "assay/verify.h"
#include "io/terminal.h"

namespace assay::cli {
namespace {

VerifyReport report_of(const std::filesystem::path& path) {
  VerifyOptions options;
  options.file_only = true;
  options.cancelled = [] { return interrupted() != 0; };
  return verify_model(path.string(), options);
}

// Of a file that cannot be opened as a model: none.
std::optional<VerifyReport> try_report_of(const std::filesystem::path& path) {
  try {
    return report_of(path);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// is_known: whether a failing stage is no fault of the command. should_open: the same of a file that cannot be opened
// as a model.
bool check_written(const std::filesystem::path& written, const std::function<bool(const VerifyStage&)>& is_known,
                   const std::function<bool()>& should_open) {
  VerifyReport report;
  try {
    report = report_of(written);
  } catch (const Error& error) {
    const bool should = should_open();
    notice(fmt::format("the new file cannot be opened as a model{}: {}",
                       should ? "" : ", no more than the old one, and is not checked", error.what()));
    return !should;
  }
  bool passed = true;
  for (const VerifyStage& stage : report.stages) {
    if (stage.verdict != Verdict::fail) continue;
    const bool known = is_known(stage);
    passed = passed && known;
    if (!known) notice(stage.to_text());
  }
  return passed;
}

}  // namespace

bool check_converted(const ConvertResult& result) {
  const bool is_served =
      result.n_texts_checked > 0;  // by a tokenizer of ours; if not, a note of the conversion says so
  return check_written(
      result.path, [&](const VerifyStage& stage) { return stage.id == "tokenizer" && !is_served; },
      [] { return true; });
}

bool check_made_of(const std::filesystem::path& written, const std::filesystem::path& source) {
  std::optional<std::optional<VerifyReport>> old;  // asked for where something fails
  const auto report_of_source = [&]() -> const std::optional<VerifyReport>& {
    if (!old) old = try_report_of(source);
    return *old;
  };
  const auto is_known = [&](const VerifyStage& stage) {
    const auto& report = report_of_source();
    const bool is_old = report && std::ranges::any_of(report->stages, [&](const VerifyStage& one) {
                          return one.id == stage.id && one.verdict == Verdict::fail;
                        });
    if (is_old) notice(fmt::format("as in the old file: {}", stage.to_text()));
    return is_old;
  };
  return check_written(written, is_known, [&] { return report_of_source().has_value(); });
}

}  // namespace assay::cli
