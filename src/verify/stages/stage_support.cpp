// See stage_support.h.
#include "verify/stages/stage_support.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "assay/error.h"
#include "assay/tokenizer.h"
#include "assay/utf8.h"
#include "trace/token_text.h"

namespace assay::verify {
namespace {

void keep(std::vector<std::string>& lines, std::string line) {
  if (static_cast<int64_t>(lines.size()) < Findings::kLinesMax) lines.push_back(std::move(line));
}

void append(std::vector<std::string>& out, std::vector<std::string>& lines, int64_t n, std::string_view thing) {
  for (std::string& line : lines) out.push_back(std::move(line));
  const int64_t more = n - static_cast<int64_t>(lines.size());
  if (more > 0) out.push_back(fmt::format("and {} more", plural(more, thing)));
}

}  // namespace

void Findings::fail(std::string line) {
  ++n_failures_;
  keep(failures_, std::move(line));
}

void Findings::warn(std::string line) {
  ++n_warnings_;
  keep(warnings_, "warning: " + std::move(line));
}

void Findings::note(std::string line) { keep(notes_, std::move(line)); }

void Findings::skip(std::string why) { skipped_ = std::move(why); }

VerifyStage Findings::stage(std::string_view id, std::string_view title) && {
  VerifyStage stage;
  stage.id = id;
  stage.title = title;
  stage.verdict = n_failures_ > 0 ? Verdict::fail : n_warnings_ > 0 ? Verdict::warn : Verdict::pass;
  if (stage.verdict != Verdict::fail && !skipped_.empty()) stage.verdict = Verdict::skip;
  stage.summary = stage.verdict == Verdict::skip ? std::move(skipped_) : std::move(summary_);
  if (n_failures_ > 0)
    stage.summary += fmt::format("{}{}", stage.summary.empty() ? "" : "; ", plural(n_failures_, "failure"));
  if (n_warnings_ > 0)
    stage.summary += fmt::format("{}{}", stage.summary.empty() ? "" : "; ", plural(n_warnings_, "warning"));
  append(stage.details, failures_, n_failures_, "failure");
  append(stage.details, warnings_, n_warnings_, "warning");
  append(stage.details, notes_, static_cast<int64_t>(notes_.size()), "note");
  return stage;
}

VerifyStage run_stage(const StageRun& run, std::string_view id, std::string_view title,
                      const std::function<void(Findings&)>& body) {
  Findings findings;
  try {
    end_if_cancelled(run);
    body(findings);
  } catch (const Cancelled&) {
    findings.skip("cancelled");
  } catch (const Error& error) {
    if (error.code == Errc::out_of_memory) throw;
    findings.fail(error.what());
  }
  return std::move(findings).stage(id, title);
}

std::string shown_value(double value) { return fmt::format("{:.9g}", value); }

std::string shown_ids(std::span<const TokenId> ids, size_t n_max) {
  std::string text = fmt::format("[{}", fmt::join(ids.first(std::min(n_max, ids.size())), " "));
  return text + (ids.size() > n_max ? " ...]" : "]");
}

std::string token_with_text(const Subject& subject, TokenId id) {
  const std::shared_ptr<const Tokenizer>& tokenizer = subject.model->tokenizer();
  const bool is_known = tokenizer && id >= 0 && id < tokenizer->vocab_size();
  return trace::token_with_text(id, is_known ? quoted_text(tokenizer->piece(id)) : std::string());
}

std::string plural(int64_t n, std::string_view thing) { return fmt::format("{} {}{}", n, thing, n == 1 ? "" : "s"); }

}  // namespace assay::verify
