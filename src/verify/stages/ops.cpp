// Every op of the plan against float64 and its rounding bound (op_checker.h): as a prefill in
// chunks of different sizes and then token by token. At a failure the dictionary is asked for the
// cause. What the error would do to the choice of tokens is told from the logits.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "assay/tokenizer.h"
#include "bounds/op_checker.h"
#include "engine/model_state.h"
#include "faults/dictionary.h"
#include "ops/attention/choose_keys.h"
#include "ops/plan/op_values.h"
#include "verify/attention_maps.h"
#include "verify/stages/stage_support.h"
#include "verify/token_risk.h"

namespace assay::verify {
namespace {

constexpr int64_t kOpsTokens = 272;  // beyond the edge of attention's segments of 256 positions
constexpr int64_t kQuickOpsTokens = 40;
constexpr int64_t kRunMax = 512;  // of a long prompt: what is kept of a run in float64 grows with it
constexpr int64_t kReferenceLogitsBytes = 16 << 20;

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
  for (; left > kRunMax; left -= kRunMax) runs.push_back(kRunMax);
  runs.push_back(left);
  runs.insert(runs.end(), static_cast<size_t>(n_singles), 1);
  return runs;
}

// Hands on what the executor announces, and keeps the logits and what the attention maps need.
class Watch final : public ops::OpObserver {
 public:
  // progress: told the share of the running batch that is done; may throw, which ends the batch.
  Watch(const ops::Plan& plan, bounds::OpChecker& checker, AttentionMaps& maps, std::function<void(double)> progress)
      : plan_(plan), checker_(checker), maps_(maps), progress_(std::move(progress)) {}

  void begin(const ops::Batch& batch) {
    logits_.clear();
    n_ops_done_ = 0;
    checker_.begin(batch);
  }
  bool wants(const ops::Op& op) override { return checker_.wants(op) || maps_.wants(op); }
  void on_op(const ops::Op& op, int64_t n_rows, int64_t width, std::span<const double> values) override {
    if (ops::values_of(op).output == plan_.output()) logits_.assign(values.begin(), values.end());
    if (maps_.wants(op)) maps_.on_op(op, values);
    if (checker_.wants(op)) checker_.on_op(op, n_rows, width, values);
    progress_(static_cast<double>(++n_ops_done_) / static_cast<double>(plan_.ops.size()));
  }
  const std::vector<double>& logits() const noexcept { return logits_; }

 private:
  const ops::Plan& plan_;
  bounds::OpChecker& checker_;
  AttentionMaps& maps_;
  std::function<void(double)> progress_;
  int64_t n_ops_done_ = 0;
  std::vector<double> logits_;
};

struct Probe {
  std::vector<TokenId> ids;
  std::vector<int32_t> positions;
  std::vector<int64_t> runs;
  std::vector<uint8_t> outputs;  // of each token
  int64_t n_batch_max = 0;
};

Probe make_probe(const Subject& subject, const StageRun& run) {
  Probe probe;
  const int64_t n = probe_size(subject, run, kQuickOpsTokens, kOpsTokens), n_prompt = prompt_size(subject, run);
  probe.ids = n_prompt > 0 ? probe_ids(subject, run, std::min<int64_t>(n, 2), n) : probe_ids(subject, run, n, n);
  const auto n_tokens = static_cast<int64_t>(probe.ids.size());
  for (int64_t i = 0; i < n_tokens; ++i) probe.positions.push_back(static_cast<int32_t>(i));
  const ops::Plan& plan = subject.model->state().built.plan;
  probe.runs = plan.causal ? make_runs(n_tokens, run.quick) : std::vector<int64_t>{n_tokens};
  probe.n_batch_max = *std::max_element(probe.runs.begin(), probe.runs.end());
  // Logits of positions spread evenly, of the first two and of all that run alone.
  const int64_t n_rows = std::max<int64_t>(
      16, kReferenceLogitsBytes / (subject.model->vocab_size() * static_cast<int64_t>(sizeof(double))));
  const int64_t stride = (n_tokens + n_rows - 1) / n_rows;
  for (int64_t i = 0; i < n_tokens; ++i) {
    const bool chosen = i < 2 || i + 4 >= n_tokens || (n_tokens - 1 - i) % stride == 0;
    probe.outputs.push_back(chosen ? 1 : 0);
  }
  return probe;
}

// n_begun, n_running: tokens of the runs that are done, and of the one at work, for the progress.
struct Steps {
  int64_t n_begun = 0, n_running = 0;
};

void run_probe(const Subject& subject, const StageRun& run, const Probe& probe, Watch& watch,
               bounds::OpChecker& checker, Steps& steps, OpsFindings& out) {
  const auto n_tokens = static_cast<int64_t>(probe.ids.size());
  const auto executor = subject.make_executor(n_tokens, probe.n_batch_max, 1);
  size_t begin = 0;
  for (const int64_t size : probe.runs) {
    end_if_cancelled(run);
    const auto n = static_cast<size_t>(size);
    const ops::Batch batch{std::span(probe.ids).subspan(begin, n),
                           std::span(probe.positions).subspan(begin, n),
                           {},
                           std::span(probe.outputs).subspan(begin, n),
                           {.observer = &watch}};
    steps = {static_cast<int64_t>(begin), size};
    watch.begin(batch);
    executor->run(batch);
    checker.end();
    if (subject.model->state().built.plan.logits != ops::kNone)
      add_token_risks(batch, watch.logits(), checker.chain_logits(), out.tokens);
    begin += n;
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

// The summary's word of a window whose edge so many tokens do not reach.
std::string not_reached(const ops::Plan& plan, int64_t n_tokens) {
  int64_t longest = 0;
  for (const ops::CacheLayer& layer : plan.cache_layers) longest = std::max(longest, layer.window);
  if (longest < n_tokens) return {};
  return fmt::format("; the edge of windows of {} positions is not reached", longest);
}

// Routers and indexers whose choice rounding decided: no fault. A few word for word, the others as a number.
void tell_ties(const Subject& subject, const ops::Plan& plan, const std::vector<bounds::RoutingTie>& ties,
               Findings& findings) {
  constexpr int64_t kShown = 3;
  for (const bool of_chain : {false, true}) {
    int64_t n = 0;
    for (const bounds::RoutingTie& t : ties) {
      if (t.tie.of_chain != of_chain || ++n > kShown) continue;
      const ops::Op& op = plan.ops[static_cast<size_t>(t.i_op)];
      const bool of_keys = op.is<ops::ChooseKeys>();
      findings.note(fmt::format(
          "{} is a tie within rounding: {}, position {} (token {}), rank {}: {} {} was taken, {} takes {}; their "
          "scores differ by {:.3g}, "
          "{} {:.3g}; what was taken is followed",
          of_keys ? "the choice of keys" : "routing", op.name, t.position, token_with_text(subject, t.token),
          t.tie.rank, of_keys ? "key" : "expert", t.tie.found,
          of_chain ? "the float64 run of the whole chain" : "float64", t.tie.exact, t.tie.margin,
          of_chain ? "its scores lie apart from those found by" : "rounding may move them by", t.tie.bound));
    }
    if (n > kShown)
      findings.note(fmt::format("and {} more such ties{}", n - kShown, of_chain ? " of the whole chain" : ""));
  }
}

void tell_failures(const OpsFindings& found, Findings& findings) {
  for (const OpFigures& op : found.ops) {
    if (op.n_non_finite > 0) {
      findings.fail(
          fmt::format("{} ({}): {} of {} values are NaN or infinite", op.op, op.kind, op.n_non_finite, op.n_values));
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
  out.stage = run_stage(run, "ops", "Operations", [&](Findings& findings) {
    const ops::Plan& plan = subject.model->state().built.plan;
    const Probe probe = make_probe(subject, run);
    bounds::OpChecker checker(plan, subject.declared, static_cast<int64_t>(probe.ids.size()), 1, run.pool);
    AttentionMaps maps(plan, run.attention_layers);
    Steps steps;
    Watch watch(plan, checker, maps, [&](double share) {
      end_if_cancelled(run);
      if (!run.progress) return;
      run.progress((static_cast<double>(steps.n_begun) + share * static_cast<double>(steps.n_running)) /
                   static_cast<double>(probe.ids.size()));
    });
    try {
      run_probe(subject, run, probe, watch, checker, steps, out);
    } catch (const Cancelled&) {  // what was found until then is told
    }
    out.ops = checker.figures();
    out.attention = maps.maps();
    out.median_slack = median_slack(out.ops);
    out.first_failure = checker.place();
    if (checker.first_failure() != nullptr && !is_cancelled(run))
      out.causes = faults::find_causes(plan, *checker.first_failure(), subject.declared, run.pool);
    tell_failures(out, findings);
    tell_ties(subject, plan, checker.ties(), findings);
    end_if_cancelled(run);
    int64_t n_values = 0;
    double worst = 0;
    for (const OpFigures& op : out.ops) {
      n_values += op.n_values;
      worst = std::max(worst, op.worst_ratio);
    }
    findings.summary(fmt::format(
        "{} of {} over {} in {} runs against float64: {}{}", plural(n_values, "value"),
        plural(static_cast<int64_t>(out.ops.size()), "op"), plural(static_cast<int64_t>(probe.ids.size()), "token"),
        probe.runs.size(),
        findings.failed()
            ? fmt::format("the worst is {:.3g} times outside its bound", worst)
            : fmt::format("all as near as right rounding is, the farthest at {:.0f} % of what it allows", 100 * worst),
        not_reached(plan, static_cast<int64_t>(probe.ids.size()))));
  });
  return out;
}

}  // namespace assay::verify
