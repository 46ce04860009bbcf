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
#include "ops/linear.h"
#include "ops/op_values.h"

namespace assay {
namespace {

// Sums are rounded to what a file holds after so many chunks, always, so that work which was interrupted ends with the same bytes.
constexpr int64_t kChunksBetweenSaves = 10;

bool is_collected(std::string_view weight, bool process_output) {
  return weight.starts_with("blk.") || (process_output && weight == "output.weight");
}

// A value that matrices are multiplied with: its squares, summed over rows in their order, in double.
struct Input {
  std::vector<std::string> weights;
  std::vector<double> sums;
  int64_t n_rows = 0;
};

class Collector final : public ops::OpObserver {
 public:
  Collector(const ops::Plan& plan, bool process_output) {
    for (const ops::Op& op : plan.ops) {
      const auto* linear = op.as<ops::Linear>();
      if (!linear) continue;
      const std::string& weight = plan.weights[static_cast<size_t>(linear->w)].name;
      if (!is_collected(weight, process_output)) continue;
      Input& input = inputs_[linear->x];
      input.weights.push_back(weight);
      input.sums.resize(static_cast<size_t>(plan.values[static_cast<size_t>(linear->x)].width));
    }
  }
  bool empty() const noexcept { return inputs_.empty(); }

  bool wants(const ops::Op& op) override { return inputs_.contains(ops::values_of(op).output); }

  void on_op(const ops::Op& op, int64_t n_rows, int64_t width, std::span<const double> values) override {
    Input& input = inputs_.at(ops::values_of(op).output);
    for (int64_t row = 0; row < n_rows; ++row) {
      const auto x = values.subspan(static_cast<size_t>(row * width), static_cast<size_t>(width));
      for (size_t i = 0; i < x.size(); ++i) input.sums[i] += x[i] * x[i];
    }
    input.n_rows += n_rows;
  }

  // The entries that there will be, by name, all zeros.
  std::vector<ImatrixEntry> empty_entries() const {
    std::vector<ImatrixEntry> entries;
    for (const auto& [value, input] : inputs_) {
      for (const std::string& weight : input.weights) entries.push_back({weight, std::vector<float>(input.sums.size()), {0.0f}});
    }
    std::ranges::sort(entries, {}, &ImatrixEntry::name);
    return entries;
  }

  // What was summed since the last call, as entries by name.
  std::vector<ImatrixEntry> take() {
    std::vector<ImatrixEntry> entries;
    for (auto& [value, input] : inputs_) {
      const std::vector<float> sums(input.sums.begin(), input.sums.end());
      for (size_t i = 0; i < sums.size(); ++i) {
        if (!std::isfinite(sums[i])) throw Error(Errc::bad_file, fmt::format("{}: column {} of its input is no finite number", input.weights.front(), i));
      }
      for (const std::string& weight : input.weights) entries.push_back({weight, sums, {static_cast<float>(input.n_rows)}});
      std::ranges::fill(input.sums, 0.0);
      input.n_rows = 0;
    }
    std::ranges::sort(entries, {}, &ImatrixEntry::name);
    return entries;
  }

 private:
  std::map<ops::ValueId, Input> inputs_;
};

class Observed {  // an observer, for as long as this lives
 public:
  Observed(ops::Executor& executor, ops::OpObserver& observer) : executor_(executor) { executor_.set_observer(&observer); }
  ~Observed() { executor_.set_observer(nullptr); }
  Observed(const Observed&) = delete;
  Observed& operator=(const Observed&) = delete;

 private:
  ops::Executor& executor_;
};

// The tokens of the second half, as perplexity scores them.
struct Likelihood {
  double nll = 0;
  int64_t n = 0;

  double perplexity() const { return n == 0 ? std::numeric_limits<double>::quiet_NaN() : std::exp(nll / static_cast<double>(n)); }
};

void check(const Context& context, std::span<const TokenId> ids, const ImatrixOptions& options) {
  if (options.n_chunk < 4) throw Error(Errc::bad_request, fmt::format("chunks of {} tokens: at least 4 are needed", options.n_chunk));
  if (options.n_chunk > context.n_ctx())
    throw Error(Errc::bad_request, fmt::format("chunks of {} tokens: the context has {} positions", options.n_chunk, context.n_ctx()));
  const auto n_ids = static_cast<int64_t>(ids.size());
  if (n_ids < 2 * options.n_chunk)
    throw Error(Errc::bad_request, fmt::format("the text has {} tokens; two chunks of {} are needed at least", n_ids, options.n_chunk));
  if (options.n_chunks_max < 0) throw Error(Errc::bad_request, fmt::format("{} chunks: at least 0 are needed", options.n_chunks_max));
}

void check_resumed(const Imatrix& resumed, std::span<const ImatrixEntry> wanted, int64_t n_chunk) {
  if (resumed.chunk_size != n_chunk)
    throw Error(Errc::bad_request, fmt::format("the matrix to go on with has chunks of {} tokens; {} are asked for", resumed.chunk_size, n_chunk));
  for (size_t i = 0; i < std::max(wanted.size(), resumed.entries.size()); ++i) {
    const bool same = i < wanted.size() && i < resumed.entries.size() && wanted[i].name == resumed.entries[i].name &&
                      wanted[i].sums.size() == resumed.entries[i].sums.size() && wanted[i].counts.size() == resumed.entries[i].counts.size();
    if (same) continue;
    throw Error(Errc::bad_request, fmt::format("the matrix to go on with is of another model: {} is not what this one has",
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
  const Observed observed(*context.state().executor, collector);
  Likelihood total;
  int64_t n_open = 0;  // chunks that are not folded yet
  for (int64_t chunk = result.imatrix.n_chunks; chunk < result.n_chunks_asked; ++chunk) {
    const auto own = ids.subspan(static_cast<size_t>(chunk * options.n_chunk), static_cast<size_t>(options.n_chunk));
    std::vector<TokenId> tokens(own.begin(), own.end());
    if (first) tokens.front() = *first;
    context.clear();
    Likelihood here;
    const int64_t n_run = context.decode_all(tokens, [&](int64_t position, std::span<const double> logits) {
      if (position < options.n_chunk / 2 || position + 1 == options.n_chunk) return;
      here.nll += log_sum_exp(logits) - logits[static_cast<size_t>(tokens[static_cast<size_t>(position + 1)])];
      ++here.n;
    });
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
