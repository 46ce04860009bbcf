// See schedule.h.
#include "backend/cuda/schedule/schedule.h"

#include <algorithm>
#include <utility>

#include "backend/cuda/kernels/float_table.h"
#include "backend/cuda/kernels/limits.h"
#include "backend/cuda/kernels/op_table.h"
#include "backend/cuda/schedule/decode_handover.h"
#include "ops/linear/gather.h"
#include "ops/rows/activation.h"

namespace assay::backend::cuda {
namespace {

using ops::kNone;

lower::DeviceLimits limits_for(const ops::Plan& plan, const ops::ExecutorOptions& options) {
  lower::DeviceLimits limits;
  limits.norm_width_max = kNormWidthMax;
  limits.head_dim_max = kHeadDimMax;
  limits.products_max = kLinearsMax;
  limits.gate_makes_twin = [&plan](const ops::Gate& gate) { return is_usual(plan, gate); };
  limits.attention_makes_twin = [&plan](const ops::Attention& attention) { return is_usual(plan, attention); };
  limits.has_kernel = has_op_kernel;
  if (options.fast) {
    limits.reads_floats = [&plan, &options](const ops::Linear& linear) {
      const tensor::TensorView& w = plan.weights[static_cast<size_t>(linear.w)].view;
      return is_multiplied_fast(options, w.dtype, w.shape.cols());
    };
  }
  return limits;
}

// What one kernel reads and writes never shares memory, whether it is decode's or not.
lower::Lifetimes find_lifetimes(const ops::Plan& plan, const Schedule& schedule,
                                const std::vector<int32_t>& of_member) {
  lower::Lifetimes lifetimes =
      lower::find_lifetimes(plan, schedule.links, schedule.twins, lower::find_steps(plan, schedule, of_member));
  for (size_t i = 0; i < schedule.selected_from.size(); ++i) {  // of one token selected rows are those rows themselves
    if (schedule.selected_from[i] != kNone) lifetimes.extend(schedule.selected_from[i], lifetimes.values[i].last_step);
  }
  for (size_t g = 0; g < schedule.decode.size(); ++g) {
    const DecodeGroup& group = schedule.decode[g];
    const auto step = static_cast<int32_t>(g);
    if (group.sum_made != kNone)
      lifetimes.values[static_cast<size_t>(schedule.links.output(group.sum_made))].first_step = step;
    if (group.of_own_columns)
      lifetimes.extend(plan.ops[static_cast<size_t>(group.gather_awaited)].get<ops::Gather>().x, step);
  }
  return lifetimes;
}

}  // namespace

bool is_usual(const ops::Plan& plan, const ops::Attention& attention) noexcept {
  const ops::CacheLayer& cache = plan.cache_layers[static_cast<size_t>(attention.layer)];
  return attention.softcap == 0 && attention.sinks == kNone && attention.chunk == 0 && attention.causal &&
         cache.stored_v_dim() == cache.head_dim && cache.head_dim <= kHeadDimMax;
}

bool is_usual(const ops::Plan& plan, const ops::Gate& gate) noexcept {
  return is_usual(gate.activation) &&
         plan.values[static_cast<size_t>(gate.gate)].width == plan.values[static_cast<size_t>(gate.y)].width;
}

Schedule make_schedule(const ops::Plan& plan, const ops::ExecutorOptions& options, const Card& card) {
  Schedule schedule{lower::lower(plan, options, limits_for(plan, options)), {}, {}, {}, {}, lower::find_selected(plan)};
  const DecodeProducts products(plan, options, schedule, card);
  schedule.decode = find_decode_groups(products);
  find_sends(products, schedule.decode);
  schedule.column_linears = find_columns(products, schedule.decode);
  find_adds(products, schedule.decode);
  find_narrow_readers(products, schedule.decode);
  std::vector<int32_t> of_member(schedule.groups.size(), kNone);  // per fusion group: the decode group it is in
  for (size_t g = 0; g < schedule.decode.size(); ++g) {
    for (const int32_t member : schedule.decode[g].members) {
      of_member[static_cast<size_t>(member)] = static_cast<int32_t>(g);
    }
  }
  schedule.read_by_other_groups = find_read_by_others(products, schedule.decode, of_member);
  schedule.lifetimes = find_lifetimes(plan, schedule, of_member);
  return schedule;
}

}  // namespace assay::backend::cuda
