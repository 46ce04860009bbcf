// Where the time of a run goes (assay/bench.h).
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <set>

#include "assay/bench.h"
#include "assay/error.h"
#include "engine/context_state.h"
#include "engine/model_state.h"
#include "measure/random_tokens.h"
#include "measure/work.h"

namespace assay {
namespace {

// "blk.3.attn_q" -> "attn_q"
std::string without_layer(const ops::Op& op) {
  return op.layer < 0 ? op.name : op.name.substr(op.name.find('.', op.name.find('.') + 1) + 1);
}

template <class T, class Less>
T median(std::vector<T>& samples, const Less& less) {
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end(), less);
  return *middle;
}

class StepTimes final : public ops::StepTimer {
 public:
  StepTimes(const ops::Plan& plan, const ContextOptions& options, int64_t n_tokens, int64_t n_past)
      : plan_(plan), counter_(plan, options), shape_{n_tokens, n_past} {}

  void on_step(std::span<const int32_t> i_ops, int64_t nanoseconds) override {
    std::string ops;
    std::set<std::string> named;
    Work work;
    for (const int32_t i : i_ops) {
      const ops::Op& op = plan_.ops[static_cast<size_t>(i)];
      const std::string name = without_layer(op);
      if (named.insert(name).second) ops += (ops.empty() ? "" : " + ") + name;
      work += counter_.of_op(op, shape_);
    }
    ProfileRow& row = now_[ops.empty() ? "quantisation" : ops];
    ++row.n_steps;
    row.seconds += static_cast<double>(nanoseconds) * 1e-9;
    row.work += work;
  }

  void end_run() {
    for (auto& [ops, row] : now_) {
      row.ops = ops;
      runs_[ops].push_back(row);
    }
    now_.clear();
  }

  void forget_run() { now_.clear(); }

  std::vector<ProfileRow> rows() {
    std::vector<ProfileRow> rows;
    for (auto& [ops, samples] : runs_) {
      rows.push_back(median(samples, [](const ProfileRow& a, const ProfileRow& b) { return a.seconds < b.seconds; }));
    }
    std::sort(rows.begin(), rows.end(), [](const ProfileRow& a, const ProfileRow& b) { return a.seconds > b.seconds; });
    return rows;
  }

 private:
  const ops::Plan& plan_;
  measure::WorkCounter counter_;
  ops::RunShape shape_;
  std::map<std::string, ProfileRow> now_;
  std::map<std::string, std::vector<ProfileRow>> runs_;
};

}  // namespace

Profile profile(Context& context, int64_t n_tokens, int64_t n_past, int64_t n_repetitions) {
  if (n_tokens < 1 || n_tokens > context.options().n_ubatch || n_past < 0 || n_past + n_tokens > context.n_ctx() ||
      n_repetitions < 1) {
    throw Error(
        Errc::bad_request,
        fmt::format("a profile of {} tokens after {}, {} times: needs 1 to {} tokens (-ub) within the {} positions "
                    "of the context (-c)",
                    n_tokens, n_past, n_repetitions, context.options().n_ubatch, context.n_ctx()));
  }
  if (!context.state().executor->supports().timer)
    throw Error(Errc::bad_request, "profile: what runs here cannot tell its steps apart");
  const int64_t vocab_size = context.model().vocab_size();
  const std::vector<TokenId> past = measure::random_tokens(n_past, vocab_size),
                             ids = measure::random_tokens(n_tokens, vocab_size);
  context.clear();
  if (n_past > 0) context.decode(past);
  const auto run = [&] {
    context.truncate(n_past);
    const auto start = std::chrono::steady_clock::now();
    context.decode(ids);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  StepTimes times(context.model().state().built.plan, context.options(), n_tokens, n_past);
  const auto timed_run = [&] {
    const engine::Watched watched(context.state(), times);
    run();
  };
  timed_run();  // warms up
  times.forget_run();
  std::vector<double> untimed;
  for (int64_t i = 0; i < n_repetitions; ++i) {
    untimed.push_back(run());
    timed_run();
    times.end_run();
  }
  Profile result{n_tokens, n_past, 0, median(untimed, std::less<>()), times.rows()};
  for (const ProfileRow& row : result.rows) result.seconds += row.seconds;
  return result;
}

}  // namespace assay
