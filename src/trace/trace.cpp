// See assay/trace.h: an observer of the executor that gathers statistics and writes the dump.
#include "assay/trace.h"

#include <fmt/format.h>

#include <unordered_map>

#include "assay/error.h"
#include "assay/version.h"
#include "engine/context_state.h"
#include "engine/model_state.h"
#include "ops/plan/op_values.h"
#include "trace/dump.h"
#include "trace/op_filter.h"
#include "trace/own_source.h"
#include "trace/statistics.h"

namespace assay {
namespace {

constexpr size_t kHeaderTextBytesMax =
    64 << 10;  // a longer prompt is left out of the dump's header: the ids are in its batches

// Ops that hand on what another op computed have nothing of their own to dump.
bool computes(const ops::Op& op) { return !ops::passes_on(op); }

class Recorder final : public ops::OpObserver {
 public:
  Recorder(Context& context, std::span<const TokenId> ids, const TraceOptions& options)
      : state_(context.state()), ids_(ids), options_(options), as_f64_(context.options().numerics == Numerics::oracle) {
    const ops::Plan& plan = context.model().state().built.plan;
    const std::vector<bool> chosen = trace::chosen_ops(plan, options);
    for (size_t i = 0; i < plan.ops.size(); ++i) {
      if (!chosen[i]) continue;
      const auto [entry, is_new] = statistics_.emplace(plan.ops[i].name, options.histogram);
      if (!is_new) continue;
      in_plan_.push_back(&entry->second);
      domains_.emplace(plan.ops[i].name, plan.values[static_cast<size_t>(ops::announced_value(plan.ops[i]))].domain);
    }
    if (!options.dump_path.empty()) open_dump(context);
  }

  bool wants(const ops::Op& op) override { return statistics_.contains(op.name); }

  void on_op(const ops::Op& op, int64_t n_rows, int64_t width, std::span<const double> values) override {
    trace::Statistics& statistics = statistics_.at(op.name);
    OpTrace& figures = statistics.figures();
    if (figures.op.empty()) {
      figures.op = op.name;
      figures.kind = ops::kind_name(op);
      figures.layer = op.layer;
      figures.width = width;
    }
    const ops::RowDomain& domain = domains_.at(op.name);
    const std::vector<int64_t> selected = domain.is_of_outputs() ? selected_tokens() : std::vector<int64_t>();
    for (int64_t i = 0; i < n_rows; ++i) {
      if (shows(state_.positions[static_cast<size_t>(domain.token_of(i, selected))])) {
        statistics.add_row(values.subspan(static_cast<size_t>(i * width), static_cast<size_t>(width)),
                           options_.n_first);
      }
    }
    if (dump_ && computes(op)) {
      begin_batch();
      dump_->add(op.name, n_rows, width, values, as_f64_);
    }
  }

  std::vector<OpTrace> finish() {
    if (dump_) dump_->finish();
    std::vector<OpTrace> all;
    all.reserve(in_plan_.size());
    for (trace::Statistics* statistics : in_plan_) {
      if (statistics->figures().op.empty()) continue;  // it did not run
      statistics->finish();
      all.push_back(std::move(statistics->figures()));
    }
    return all;
  }

 private:
  void open_dump(const Context& context) {
    const Model& model = context.model();
    trace::DumpHeader header;
    header.engine = fmt::format("assay {} {}", ASSAY_VERSION, trace::own_name(context.options(), context.kernels()));
    header.model = model.name();
    header.architecture = model.architecture();
    if (options_.text.size() <= kHeaderTextBytesMax) header.text = options_.text;
    header.n_layers = model.n_layers();
    header.d_model = model.d_model();
    header.vocab_size = model.vocab_size();
    header.declared = trace::own_declared(context.options());
    dump_ = std::make_unique<trace::DumpWriter>(options_.dump_path, header);
  }

  // A run of the executor is told by its first position: every run of this one sequence has another.
  void begin_batch() {
    const int64_t first = state_.positions.front();
    if (first == batch_first_) return;
    batch_first_ = first;
    dump_->begin_batch({ids_.subspan(static_cast<size_t>(first), state_.positions.size()), state_.positions,
                        state_.sequences, state_.outputs});
  }

  // Those of the run whose logits are wanted.
  std::vector<int64_t> selected_tokens() const {
    std::vector<int64_t> selected;
    for (size_t i = 0; i < state_.outputs.size(); ++i) {
      if (state_.outputs[i] != 0) selected.push_back(static_cast<int64_t>(i));
    }
    return selected;
  }

  bool shows(int64_t position) const {
    return !options_.positions || (position >= options_.positions->first && position <= options_.positions->second);
  }

  const Context::State& state_;
  const std::span<const TokenId> ids_;
  const TraceOptions& options_;
  const bool as_f64_;
  std::unordered_map<std::string, trace::Statistics> statistics_;
  std::unordered_map<std::string, ops::RowDomain> domains_;  // of what these ops announce
  std::vector<trace::Statistics*> in_plan_;                  // in the plan's order: devices run them in others
  std::unique_ptr<trace::DumpWriter> dump_;
  int64_t batch_first_ = -1;
};

void check_options(std::span<const TokenId> ids, const TraceOptions& options) {
  if (options.n_first < 0)
    throw Error(Errc::bad_request, fmt::format("first values: needs 0 or more, found {}", options.n_first));
  if (!options.positions) return;
  const auto [first, last] = *options.positions;
  if (first < 0 || first > last || last >= static_cast<int64_t>(ids.size())) {
    throw Error(Errc::bad_request, fmt::format("positions: needs a range within 0 to {}, found {} to {}",
                                               static_cast<int64_t>(ids.size()) - 1, first, last));
  }
}

}  // namespace

Trace trace_run(Context& context, std::span<const TokenId> ids, const TraceOptions& options) {
  Context::State& state = context.state();
  context.clear();
  state.check_request(ids, 0);
  check_options(ids, options);
  Recorder recorder(context, ids, options);
  {
    const engine::Watched watched(state, recorder);
    context.decode_all(ids, nullptr, 0, {.cancelled = options.cancelled, .progress = options.progress});
  }
  Trace trace;
  trace.ids.assign(ids.begin(), ids.begin() + context.n_past());
  trace.ops = recorder.finish();
  trace.has_histogram = options.histogram;
  if (context.n_past() > 0) trace.logits_digest = context.logits_digest();
  trace.kv_digest = context.kv_digest();
  return trace;
}

}  // namespace assay
