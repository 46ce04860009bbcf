// Where the time of a run goes (assay/bench.h).
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "assay/bench.h"
#include "assay/error.h"
#include "engine/context_state.h"
#include "engine/model_state.h"
#include "engine/random_tokens.h"
#include "ops/attention.h"
#include "ops/op_values.h"

namespace assay {
namespace {

// "blk.3.attn_q" -> "attn_q"
std::string without_layer(const ops::Op& op) {
  return op.layer < 0 ? op.name : op.name.substr(op.name.find('.', op.name.find('.') + 1) + 1);
}

struct Work {
  int64_t bytes = 0, multiply_adds = 0;
};

class StepTimes final : public ops::StepTimer {
 public:
  StepTimes(const ops::Plan& plan, const ContextOptions& options, int64_t n_tokens, int64_t n_past)
      : plan_(plan), options_(options), n_tokens_(n_tokens), n_past_(n_past) {}

  void on_step(std::span<const int32_t> i_ops, int64_t nanoseconds) override {
    std::string ops;
    std::set<std::string> named;
    Work work;
    for (const int32_t i : i_ops) {
      const ops::Op& op = plan_.ops[static_cast<size_t>(i)];
      const std::string name = without_layer(op);
      if (named.insert(name).second) ops += (ops.empty() ? "" : " + ") + name;
      add_work(op, work);
    }
    ProfileRow& row = now_[ops.empty() ? "quantisation" : ops];
    ++row.n_steps;
    row.seconds += static_cast<double>(nanoseconds) * 1e-9;
    row.bytes += work.bytes;
    row.multiply_adds += work.multiply_adds;
  }

  void end_run() {
    for (auto& [ops, row] : now_) {
      row.ops = ops;
      runs_[ops].push_back(row);
    }
    now_.clear();
  }

  std::vector<ProfileRow> rows() {
    std::vector<ProfileRow> rows;
    for (auto& [ops, samples] : runs_) {
      const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
      std::nth_element(samples.begin(), middle, samples.end(), [](const ProfileRow& a, const ProfileRow& b) { return a.seconds < b.seconds; });
      rows.push_back(*middle);
    }
    std::sort(rows.begin(), rows.end(), [](const ProfileRow& a, const ProfileRow& b) { return a.seconds > b.seconds; });
    return rows;
  }

 private:
  void add_work(const ops::Op& op, Work& work) const {
    if (const auto* linear = std::get_if<ops::Linear>(&op.record)) {
      const int64_t n_rows = plan_.values[static_cast<size_t>(linear->y)].outputs_only ? 1 : n_tokens_;
      const tensor::TensorView& view = plan_.weights[static_cast<size_t>(linear->w)].view;
      work.bytes += static_cast<int64_t>(view.data.size());
      work.multiply_adds += n_rows * view.shape.elements();
    } else if (const auto* attention = std::get_if<ops::Attention>(&op.record)) {
      const int64_t last = n_past_ + n_tokens_ - 1;
      const int64_t n_keys = last + 1 - ops::first_visible(n_past_, attention->window);
      work.bytes += n_keys * attention->n_kv_heads *
                    (ops::cache_row_bytes(cache_type(options_.cache_k), attention->head_dim) +
                     ops::cache_row_bytes(cache_type(options_.cache_v), attention->head_dim));
      for (int64_t position = n_past_; position <= last; ++position) {
        work.multiply_adds += 2 * attention->n_heads * attention->head_dim * (position + 1 - ops::first_visible(position, attention->window));
      }
    }
  }

  static ops::CacheType cache_type(KvType type) {
    return type == KvType::f16 ? ops::CacheType::f16 : type == KvType::q8_0 ? ops::CacheType::q8_0 : ops::CacheType::f32;
  }

  const ops::Plan& plan_;
  const ContextOptions& options_;
  int64_t n_tokens_, n_past_;
  std::map<std::string, ProfileRow> now_;
  std::map<std::string, std::vector<ProfileRow>> runs_;
};

// Takes the timer out of the executor again, whatever is thrown.
struct Attached {
  Attached(ops::Executor& of, StepTimes& times) : executor(of) {
    if (!executor.set_step_timer(&times)) throw Error(Errc::bad_request, "profile: what runs here cannot tell its steps apart");
  }
  ~Attached() { executor.set_step_timer(nullptr); }
  Attached(const Attached&) = delete;
  Attached& operator=(const Attached&) = delete;
  ops::Executor& executor;
};

}  // namespace

Profile profile(Context& context, int64_t n_tokens, int64_t n_past, int64_t n_repetitions) {
  if (n_tokens < 1 || n_tokens > context.options().n_ubatch || n_past < 0 || n_past + n_tokens > context.n_ctx() || n_repetitions < 1) {
    throw Error(Errc::bad_request, fmt::format("a profile of {} tokens after {}, {} times: needs 1 to {} tokens (-ub) within the {} positions "
                                               "of the context (-c)", n_tokens, n_past, n_repetitions, context.options().n_ubatch,
                                               context.n_ctx()));
  }
  const int64_t vocab_size = context.model().vocab_size();
  const std::vector<TokenId> past = engine::random_tokens(n_past, vocab_size), ids = engine::random_tokens(n_tokens, vocab_size);
  context.clear();
  if (n_past > 0) context.decode(past);
  context.decode(ids);  // warms up
  StepTimes times(context.model().state().built.plan, context.options(), n_tokens, n_past);
  const Attached attached(*context.state().executor, times);
  for (int64_t i = 0; i < n_repetitions; ++i) {
    context.truncate(n_past);
    context.decode(ids);
    times.end_run();
  }
  Profile result{n_tokens, n_past, 0, times.rows()};
  for (const ProfileRow& row : result.rows) result.seconds += row.seconds;
  return result;
}

}  // namespace assay
