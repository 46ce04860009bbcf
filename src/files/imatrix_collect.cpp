// Gathers an importance matrix: an observer of the executor sums the squares of what each matrix is multiplied with.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "assay/error.h"
#include "assay/imatrix_run.h"
#include "assay/score.h"
#include "engine/context_state.h"
#include "engine/model_state.h"
#include "ops/linear/expert_linear.h"
#include "ops/linear/linear.h"
#include "ops/plan/op_values.h"

namespace assay {
namespace {

// Sums are rounded to what a file holds after so many chunks, always, so that work which was interrupted ends with the
// same bytes.
constexpr int64_t kChunksBetweenSaves = 10;

bool is_collected(std::string_view weight, bool process_output) {
  return weight.starts_with("blk.") || (process_output && weight == "output.weight");
}

// What matrices are multiplied with: its squares, summed over rows in their order, in double; of experts row by row of
// the matrix that each is.
struct Input {
  std::vector<std::string> weights;
  std::vector<double> sums;
  std::vector<int64_t> n_rows;  // by expert, or one
  bool has_one_count = true;    // matrices that every token goes through have the same: llama-imatrix writes it once

  Input() = default;
  Input(int64_t n_experts, int64_t n_columns, bool one_count)
      : sums(static_cast<size_t>(n_experts * n_columns)), n_rows(static_cast<size_t>(n_experts)),
        has_one_count(one_count) {}
  size_t n_counts() const noexcept { return has_one_count ? 1 : n_rows.size(); }
  void add_weight(const std::string& name) {
    if (std::ranges::find(weights, name) == weights.end()) weights.push_back(name);  // two products may share a matrix
  }
  void add(size_t expert, std::span<const double> x) noexcept {
    double* own = sums.data() + expert * x.size();
    for (size_t i = 0; i < x.size(); ++i) own[i] += x[i] * x[i];
    ++n_rows[expert];
  }
};

// The input of products that take a matrix of several by token or by head, as the first of them reads it.
struct ExpertInput {
  ops::ExpertLinear first;  // the sums are made when its output is there: x and routes are, then
  Input input;
};

class Collector final : public ops::OpObserver {
 public:
  // The plan must outlive it.
  Collector(const ops::Plan& plan, bool process_output) : plan_(plan) {
    for (const ops::Op& op : plan.ops) {
      const auto weight = [&](ops::WeightId id) -> const std::string& {
        return plan.weights[static_cast<size_t>(id)].name;
      };
      if (const auto* linear = op.as<ops::Linear>(); linear && is_collected(weight(linear->w), process_output)) {
        const auto [it, is_new] = inputs_.try_emplace(linear->x);
        if (is_new) it->second = Input(1, plan.values[static_cast<size_t>(linear->x)].width, true);
        it->second.add_weight(weight(linear->w));
      } else if (const auto* experts = op.as<ops::ExpertLinear>();
                 experts && is_collected(weight(experts->w), process_output)) {
        add_experts(*experts, weight(experts->w));
      }
    }
  }
  bool empty() const noexcept { return inputs_.empty() && expert_inputs_.empty(); }

  bool wants(const ops::Op& op) override {
    const ops::ValueId output = ops::values_of(op).output;
    return inputs_.contains(output) || kept_.contains(output) ||
           std::ranges::any_of(expert_inputs_, [&](const ExpertInput& e) { return e.first.y == output; });
  }

  void on_op(const ops::Op& op, int64_t n_rows, int64_t width, std::span<const double> values) override {
    const ops::ValueId output = ops::values_of(op).output;
    const auto row_of = [&](int64_t row) {
      return values.subspan(static_cast<size_t>(row * width), static_cast<size_t>(width));
    };
    if (const auto it = inputs_.find(output); it != inputs_.end()) {
      for (int64_t row = 0; row < n_rows; ++row) it->second.add(0, row_of(row));
    }
    if (const auto it = kept_.find(output); it != kept_.end()) it->second.assign(values.begin(), values.end());
    for (ExpertInput& e : expert_inputs_) {
      if (e.first.y == output) add_rows(e, n_rows);
    }
  }

  // The entries that there will be, by name, all zeros.
  std::vector<ImatrixEntry> empty_entries() const {
    std::vector<ImatrixEntry> entries;
    each_input([&](const Input& input) {
      for (const std::string& weight : input.weights)
        entries.push_back({weight, std::vector<float>(input.sums.size()), std::vector<float>(input.n_counts())});
    });
    std::ranges::sort(entries, {}, &ImatrixEntry::name);
    return entries;
  }

  // What was summed since the last call, as entries by name.
  std::vector<ImatrixEntry> take() {
    std::vector<ImatrixEntry> entries;
    each_input([&](Input& input) {
      const std::vector<float> sums(input.sums.begin(), input.sums.end()),
          counts(input.n_rows.begin(), input.n_rows.begin() + static_cast<int64_t>(input.n_counts()));
      for (size_t i = 0; i < sums.size(); ++i) {
        if (!std::isfinite(sums[i]))
          throw Error(Errc::bad_file,
                      fmt::format("{}: column {} of its input is no finite number", input.weights.front(), i));
      }
      for (const std::string& weight : input.weights) entries.push_back({weight, sums, counts});
      std::ranges::fill(input.sums, 0.0);
      std::ranges::fill(input.n_rows, 0);
    });
    std::ranges::sort(entries, {}, &ImatrixEntry::name);
    return entries;
  }

 private:
  void add_experts(const ops::ExpertLinear& op, const std::string& weight) {
    auto it = std::ranges::find_if(expert_inputs_, [&](const ExpertInput& e) {
      return e.first.x == op.x && e.first.routes == op.routes && e.first.n_experts == op.n_experts;
    });
    if (it == expert_inputs_.end()) {
      it = expert_inputs_.insert(it, {op, Input(op.n_experts, op.d_in, op.routes == ops::kNone)});
      kept_[op.x];
      if (op.routes != ops::kNone) kept_[op.routes];
    }
    it->input.add_weight(weight);
  }

  void add_rows(ExpertInput& e, int64_t n_rows) {
    const ops::ExpertLinear& op = e.first;
    const ops::Value& of_x = plan_.values[static_cast<size_t>(op.x)];
    const std::span<const double> x = kept_.at(op.x);
    for (int64_t pair = 0; pair < op.n_pairs(n_rows); ++pair) {
      const double* routes =
          op.routes == ops::kNone ? nullptr : kept_.at(op.routes).data() + pair / op.n_used * 2 * op.n_used;
      const auto [row, column] = op.input_of(of_x, pair);
      e.input.add(static_cast<size_t>(ops::expert_of(routes, op.n_used, pair % op.n_used)),
                  x.subspan(static_cast<size_t>(row * of_x.width + column), static_cast<size_t>(op.d_in)));
    }
  }

  template <class F>
  void each_input(F f) {
    for (auto& [value, input] : inputs_) f(input);
    for (ExpertInput& e : expert_inputs_) f(e.input);
  }
  template <class F>
  void each_input(F f) const {
    for (const auto& [value, input] : inputs_) f(input);
    for (const ExpertInput& e : expert_inputs_) f(e.input);
  }

  const ops::Plan& plan_;
  std::map<ops::ValueId, Input> inputs_;
  std::vector<ExpertInput> expert_inputs_;
  std::map<ops::ValueId, std::vector<double>> kept_;  // of the rows at work, for expert_inputs_
};

// The tokens of the second half, as perplexity scores them.
struct Likelihood {
  double nll = 0;
  int64_t n = 0;

  double perplexity() const {
    return n == 0 ? std::numeric_limits<double>::quiet_NaN() : std::exp(nll / static_cast<double>(n));
  }
};

void check(const Context& context, std::span<const TokenId> ids, const ImatrixOptions& options) {
  if (options.n_chunk < 4)
    throw Error(Errc::bad_request, fmt::format("chunks of {} tokens: at least 4 are needed", options.n_chunk));
  if (options.n_chunk > context.n_ctx())
    throw Error(Errc::bad_request,
                fmt::format("chunks of {} tokens: the context has {} positions", options.n_chunk, context.n_ctx()));
  const auto n_ids = static_cast<int64_t>(ids.size());
  if (n_ids < 2 * options.n_chunk)
    throw Error(Errc::bad_request,
                fmt::format("the text has {} tokens; two chunks of {} are needed at least", n_ids, options.n_chunk));
  if (options.n_chunks_max < 0)
    throw Error(Errc::bad_request, fmt::format("{} chunks: at least 0 are needed", options.n_chunks_max));
}

void check_resumed(const Imatrix& resumed, std::span<const ImatrixEntry> wanted, int64_t n_chunk) {
  if (resumed.chunk_size != n_chunk)
    throw Error(Errc::bad_request, fmt::format("the matrix to go on with has chunks of {} tokens; {} are asked for",
                                               resumed.chunk_size, n_chunk));
  for (size_t i = 0; i < std::max(wanted.size(), resumed.entries.size()); ++i) {
    const bool same = i < wanted.size() && i < resumed.entries.size() && wanted[i].name == resumed.entries[i].name &&
                      wanted[i].sums.size() == resumed.entries[i].sums.size() &&
                      wanted[i].counts.size() == resumed.entries[i].counts.size();
    if (same) continue;
    throw Error(Errc::bad_request,
                fmt::format("the matrix to go on with is of another model: {} is not what this one has",
                            i < resumed.entries.size() ? resumed.entries[i].name : wanted[i].name));
  }
}

}  // namespace

ImatrixResult collect_imatrix(Context& context, std::span<const TokenId> ids, const ImatrixOptions& options) {
  check(context, ids, options);
  const Model& model = context.model();
  Collector collector(model.state().built.plan, options.process_output);
  if (collector.empty()) throw Error(Errc::unsupported, "the model has no matrix that a sum could be made for");
  ImatrixResult result;
  result.imatrix = {{options.dataset}, 0, options.n_chunk, collector.empty_entries()};
  if (options.resumed) {
    check_resumed(*options.resumed, result.imatrix.entries, options.n_chunk);
    result.imatrix = *options.resumed;
  }
  result.n_chunks_asked = static_cast<int64_t>(ids.size()) / options.n_chunk;
  if (options.n_chunks_max > 0) result.n_chunks_asked = std::min(result.n_chunks_asked, options.n_chunks_max);

  const auto& tokenizer = model.tokenizer();
  const std::optional<TokenId> first = tokenizer && tokenizer->adds_bos() ? tokenizer->bos() : std::nullopt;
  const auto fold = [&](int64_t n_chunks) {  // the entries of so many chunks into the result
    merge_imatrix(result.imatrix, Imatrix{{}, n_chunks, options.n_chunk, collector.take()});
    if (options.on_save) options.on_save(result.imatrix);
  };
  const engine::Watched watched(context.state(), collector);
  Likelihood total;
  int64_t n_open = 0;  // chunks that are not folded yet
  for (int64_t chunk = result.imatrix.n_chunks; chunk < result.n_chunks_asked; ++chunk) {
    const auto own = ids.subspan(static_cast<size_t>(chunk * options.n_chunk), static_cast<size_t>(options.n_chunk));
    std::vector<TokenId> tokens(own.begin(), own.end());
    if (first) tokens.front() = *first;
    context.clear();
    Likelihood here;
    const auto score = [&](int64_t position, std::span<const double> logits) {
      if (position < options.n_chunk / 2 || position + 1 == options.n_chunk) return;
      here.nll += log_sum_exp(logits) - logits[static_cast<size_t>(tokens[static_cast<size_t>(position + 1)])];
      ++here.n;
    };
    const int64_t n_run = context.decode_all(tokens, score, 0, {.cancelled = options.cancelled});
    if (n_run < options.n_chunk || (options.cancelled && options.cancelled())) {
      result.cancelled = true;
      break;
    }
    total.nll += here.nll;
    total.n += here.n;
    if (++n_open, (chunk + 1) % kChunksBetweenSaves == 0) fold(std::exchange(n_open, 0));
    if (options.progress) options.progress(chunk + 1, result.n_chunks_asked, total.perplexity());
  }
  if (!result.cancelled && n_open != 0) fold(n_open);
  result.perplexity = total.perplexity();
  return result;
}

}  // namespace assay
