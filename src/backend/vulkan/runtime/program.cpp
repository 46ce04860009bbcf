// See program.h.
#include "backend/vulkan/runtime/program.h"

#include <algorithm>
#include <utility>

#include "backend/vulkan/runtime/groups.h"
#include "base/index.h"
#include "ops/linear/linear.h"
#include "ops/plan/work.h"

namespace assay::backend::vulkan {
namespace {

// Multiply-adds after which what was recorded is sent: so that a long prefill leaves room for whoever else uses the
// device, and ends before a driver's watchdog thinks that it never will.
constexpr int64_t kWorkTogether = int64_t{1} << 35;
constexpr size_t kProgramsMax = 32;  // shapes whose commands are kept

}  // namespace

const Program& Programs::find(int64_t n_outputs) {
  for (Program& kept : kept_) {
    if (kept.n_tokens != state_.n_tokens() || kept.n_outputs != n_outputs || kept.n_segments != state_.n_segments())
      continue;
    kept.last_used = ++n_runs_;
    return kept;
  }
  Program made = record(n_outputs, false);
  made.last_used = ++n_runs_;
  if (kept_.size() < kProgramsMax) return kept_.emplace_back(std::move(made));
  const auto oldest = std::ranges::min_element(kept_, {}, [](const Program& p) { return p.last_used; });
  return *oldest = std::move(made);
}

Program Programs::record(int64_t n_outputs, bool ends_with_groups) const {
  Program made{state_.n_tokens(), n_outputs, state_.n_segments(), {}, 0};
  // Replayed at any position: attention is counted as at the end of the context.
  const int64_t n_past = std::max<int64_t>(0, state_.options.n_ctx - made.n_tokens);
  const ops::RunShape shape = {.n_tokens = made.n_tokens, .n_past = n_past, .n_outputs = n_outputs, .n_sequences = 1};
  const ops::WorkScope scope(state_.plan, state_.options, shape);
  int64_t work = 0;
  state_.record_begin();
  for (int32_t g = 0; at(g) < lowering_.groups.size(); ++g) {
    std::vector<int32_t> seen;
    for (const int32_t last = record_step(g, made);; ++g) {
      const std::vector<int32_t>& of_group = lowering_.groups[at(g)].ops;
      seen.insert(seen.end(), of_group.begin(), of_group.end());
      if (g == last) break;
    }
    for (const int32_t i : seen) {
      const ops::Record& record = state_.plan.ops[at(i)].record;
      const bool is_long = record.role() == ops::Role::product || record.role() == ops::Role::attention;
      work += is_long ? record.work(scope).multiply_adds : 0;
    }
    if (work > kWorkTogether) {
      cut(made, ops::kNone);
      work = 0;
    }
    if (!ends_with_groups) continue;
    cut(made, ops::kNone);
    made.parts.back().ends_group = true;
    made.parts.back().seen = std::move(seen);
  }
  record_end_();
  cut(made, ops::kNone);
  return made;
}

int32_t Programs::record_step(int32_t g, Program& made) const {
  const auto one = std::ranges::lower_bound(one_steps_, g, {}, &OneStep::first);
  if (one != one_steps_.end() && one->first == g && has_one_steps(state_)) {
    record_heads_and_attention(state_, lowering_.groups[at(g)], one->attention);
    return one->last();
  }
  const lower::FusionGroup& group = lowering_.groups[at(g)];
  if (kernel_of(state_, group).empty()) {
    record_ops(group, made);
  } else {
    record_group(state_, group);
  }
  return g;
}

void Programs::cut(Program& program, int32_t borrowed) const {
  program.parts.push_back({state_.device.keep(), borrowed, false, {}});
}

// The ops of a group one by one, products of one kernel and format together.
void Programs::record_ops(const lower::FusionGroup& group, Program& made) const {
  std::vector<int32_t> left, together, borrowed;
  for (const int32_t i : group.ops) {
    const ops::ValueId y = lowering_.links.output(i);
    if (y == ops::kNone || state_.n_rows(y) > 0) left.push_back(i);
  }
  if (left.size() > 1) state_.device.set_together(true);
  while (!left.empty()) {
    const int32_t first = left.front();
    const Kernel* kernel = kernel_for(first);
    together.clear();
    std::erase_if(left, [&](int32_t i) {
      const bool fits = i == first || (kernel != nullptr && together.size() < kProductsMax && kernel_for(i) == kernel &&
                                       is_alike(first, i));
      if (fits) together.push_back(i);
      return fits;
    });
    if (kernel != nullptr) {
      kernel->run(state_, together);
    } else {
      borrowed.push_back(first);
    }
  }
  state_.device.set_together(false);
  for (const int32_t i : borrowed) cut(made, i);
}

bool Programs::is_alike(int32_t a, int32_t b) const {
  const auto* first = state_.plan.ops[at(a)].as<ops::Linear>();
  const auto* second = state_.plan.ops[at(b)].as<ops::Linear>();
  return first != nullptr && second != nullptr &&
         state_.plan.weights[at(first->w)].view.dtype == state_.plan.weights[at(second->w)].view.dtype;
}

const Kernel* Programs::kernel_for(int32_t op) const {
  const auto& rows = chosen_[at(op)];
  const ops::ValueId y = lowering_.links.output(op);
  const int64_t n = y == ops::kNone ? state_.n_tokens() : state_.n_rows(y);
  const auto fits = [n](const Kernel* kernel) {
    return n >= kernel->tokens_min && (kernel->tokens_max == 0 || n <= kernel->tokens_max);
  };
  const auto kernel = std::ranges::find_if(rows, fits);
  return kernel == rows.end() ? nullptr : *kernel;
}

}  // namespace assay::backend::vulkan
