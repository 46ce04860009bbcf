// Every op of the plan against float64 and its rounding bound (op_checker.h): as a prefill in
// chunks of different sizes and then token by token. At a failure the dictionary is asked for the
// cause. What the error would do to the choice of tokens is told from the logits.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/model_state.h"
#include "ops/op_values.h"
#include "verify/attention_maps.h"
#include "verify/dictionary.h"
#include "verify/op_checker.h"
#include "verify/stage_support.h"
#include "verify/token_risk.h"

namespace assay::verify {
namespace {

constexpr int64_t kTokens = 272;  // beyond the edge of attention's segments of 256 positions
constexpr int64_t kQuickTokens = 40;
constexpr int64_t kLogitsBytes = 64 << 20;

// Sizes of the runs: chunks that do not divide each other, then single tokens. A run costs more
// than its tokens do: every weight is decoded to float64 in each, so a quick check has two.
std::vector<int64_t> make_runs(int64_t n_tokens, bool quick) {
  std::vector<int64_t> runs;
  const int64_t n_singles = std::min<int64_t>(quick ? 1 : 3, n_tokens - 1);
  int64_t left = n_tokens - n_singles;
  for (const int64_t n : quick ? std::vector<int64_t>{} : std::vector<int64_t>{1, 7, 64}) {
    if (left <= n) break;
    runs.push_back(n);
    left -= n;
  }
  runs.push_back(left);
  runs.insert(runs.end(), static_cast<size_t>(n_singles), 1);
  return runs;
}

// Hands on what the executor announces, and keeps the logits and what the attention maps need.
class Watch final : public ops::OpObserver {
 public:
  Watch(const ops::Plan& plan, OpChecker& checker, AttentionMaps& maps)
      : plan_(plan), checker_(checker), maps_(maps) {}

  void begin(const ops::Batch& batch) {
    logits_.clear();
    checker_.begin(batch);
  }
  bool wants(const ops::Op& op) override { return checker_.wants(op) || maps_.wants(op); }
  void on_op(const ops::Op& op, int64_t n_rows, int64_t width,
             std::span<const double> values) override {
    if (ops::values_of(op).output == plan_.logits) logits_.assign(values.begin(), values.end());
    if (maps_.wants(op)) maps_.on_op(op, values);
    if (checker_.wants(op)) checker_.on_op(op, n_rows, width, values);
  }
  const std::vector<double>& logits() const noexcept { return logits_; }

 private:
  const ops::Plan& plan_;
  OpChecker& checker_;
  AttentionMaps& maps_;
  std::vector<double> logits_;
};

struct Probe {
  std::vector<TokenId> ids;
  std::vector<int64_t> runs;
  std::vector<uint8_t> outputs;  // of each token
  int64_t n_batch_max = 0;
};

Probe make_probe(const Subject& subject, const StageRun& run) {
  Probe probe;
  const int64_t n = std::min(run.quick ? kQuickTokens : kTokens, subject.model->n_ctx_train());
  probe.ids = probe_ids(subject, run, run.prompt.empty() ? n : std::min<int64_t>(n, 2), n);
  const auto n_tokens = static_cast<int64_t>(probe.ids.size());
  probe.runs = make_runs(n_tokens, run.quick);
  probe.n_batch_max = *std::max_element(probe.runs.begin(), probe.runs.end());
  const int64_t n_rows_max = std::max<int64_t>(
      1, kLogitsBytes / (subject.model->vocab_size() * static_cast<int64_t>(sizeof(double))));
  const int64_t stride = (n_tokens + n_rows_max - 1) / n_rows_max;
  for (int64_t i = 0; i < n_tokens; ++i)
    probe.outputs.push_back((n_tokens - 1 - i) % stride == 0 ? 1 : 0);
  return probe;
}

void run_probe(const Subject& subject, const StageRun& run, const Probe& probe, Watch& watch,
               OpChecker& checker, OpsFindings& out) {
  const auto n_tokens = static_cast<int64_t>(probe.ids.size());
  const auto executor = subject.make_executor(n_tokens, probe.n_batch_max, 1);
  executor->set_observer(&watch);
  std::vector<int32_t> positions(probe.ids.size());
  std::iota(positions.begin(), positions.end(), 0);
  const std::vector<int32_t> sequences(probe.ids.size(), 0);
  size_t begin = 0;
  for (const int64_t size : probe.runs) {
    if (is_cancelled(run)) return;
    const auto n = static_cast<size_t>(size);
    const ops::Batch batch{
        std::span(probe.ids).subspan(begin, n), std::span(positions).subspan(begin, n),
        std::span(sequences).subspan(begin, n), std::span(probe.outputs).subspan(begin, n)};
    watch.begin(batch);
    executor->run(batch);
    checker.end();
    add_token_risks(batch, watch.logits(), checker.chain_logits(), out.tokens);
    begin += n;
    show_progress(run, static_cast<int64_t>(begin), n_tokens);
  }
}

double median_slack(const std::vector<OpFigures>& figures) {
  std::vector<double> slack;
  for (const OpFigures& op : figures) {
    if (op.worst_ratio > 0) slack.push_back(1 / op.worst_ratio);
  }
  if (slack.empty()) return 0;
  const auto middle = slack.begin() + static_cast<std::ptrdiff_t>(slack.size() / 2);
  std::nth_element(slack.begin(), middle, slack.end());
  return *middle;
}

void tell_failures(const OpsFindings& found, Findings& findings) {
  for (const OpFigures& op : found.ops) {
    if (op.n_non_finite > 0) {
      findings.fail(fmt::format("{} ({}): {} of {} values are NaN or infinite", op.op, op.kind,
                                op.n_non_finite, op.n_values));
    } else if (op.n_outside > 0) {
      findings.fail(
          fmt::format("{} ({}): {} of {} values are outside their bound, the worst by {:.3g} "
                      "times; relative error {:.2e}",
                      op.op, op.kind, op.n_outside, op.n_values, op.worst_ratio, op.local_error));
    }
  }
}

}  // namespace

OpsFindings check_ops(const Subject& subject, const StageRun& run) {
  OpsFindings out;
  out.stage = run_stage("ops", "Operations", [&](Findings& findings) {
    const ops::Plan& plan = subject.model->state().built.plan;
    const Probe probe = make_probe(subject, run);
    OpChecker checker(plan, subject.declared, static_cast<int64_t>(probe.ids.size()), 1, run.pool);
    AttentionMaps maps(plan, run.attention_layers);
    Watch watch(plan, checker, maps);
    run_probe(subject, run, probe, watch, checker, out);
    out.ops = checker.figures();
    out.attention = maps.maps();
    out.median_slack = median_slack(out.ops);
    out.first_failure = checker.place();
    if (checker.first_failure() != nullptr)
      out.causes = find_causes(plan, *checker.first_failure(), subject.declared, run.pool);
    tell_failures(out, findings);
    if (is_cancelled(run)) return findings.skip("cancelled");
    int64_t n_values = 0;
    double worst = 0;
    for (const OpFigures& op : out.ops) {
      n_values += op.n_values;
      worst = std::max(worst, op.worst_ratio);
    }
    findings.summary(fmt::format(
        "{} of {} over {} in {} runs against float64: {}", plural(n_values, "value"),
        plural(static_cast<int64_t>(out.ops.size()), "op"),
        plural(static_cast<int64_t>(probe.ids.size()), "token"), probe.runs.size(),
        findings.failed() ? fmt::format("the worst is {:.3g} times outside its bound", worst)
                          : fmt::format("the worst is at {:.0f} % of its bound", 100 * worst)));
  });
  return out;
}

}  // namespace assay::verify
