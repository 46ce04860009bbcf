// See one_token.h. The push struct is the shader's.
#include "backend/vulkan/runtime/one_token.h"

#include <algorithm>
#include <string>

#include "backend/vulkan/linear/matrices.h"
#include "backend/vulkan/runtime/groups.h"
#include "backend/vulkan/runtime/kernels.h"
#include "base/index.h"
#include "ops/linear/linear.h"
#include "ops/rows/gate.h"

namespace assay::backend::vulkan {
namespace {

using ops::kNone;
using Address = VkDeviceAddress;
using Kind = lower::FusionGroup::Kind;

constexpr int64_t kThreads = 128, kOwnThreads = 256;  // of a workgroup; of one that makes the row's twin
constexpr int64_t kOwnGroups = 264;                   // of these at most, each with several rows
constexpr int64_t kOwnWidth = 8192;                   // of a row at most
constexpr int64_t kSharedRest = 512;                  // bytes besides what the shape says

uint32_t word(int64_t n) { return static_cast<uint32_t>(n); }

// How a workgroup shares out rows of weights: so many lanes for a row that all its loads are on their way at once.
struct OneShape {
  int64_t k = 0, blocks = 0, lanes = 32, teams = 0, rows = 2, segment = 1, planes = 2;
  bool is_own = false;
  int64_t threads() const { return is_own ? kOwnThreads : kThreads; }
  int64_t n_outputs() const { return teams * rows; }
  int64_t bytes() const {
    const int64_t twin = is_own ? planes * (k + k / 4) + blocks * 12 : 0;
    return n_outputs() * (blocks * 4 + segment * 72 + 32) + blocks * 4 + twin + kSharedRest;
  }
};
OneShape one_shape(const tensor::TensorView& w, int64_t planes, bool is_own, int64_t shared_bytes) {
  OneShape shape;
  const int64_t elements = tensor::traits(w.dtype).block_elements;
  shape.k = w.shape.cols(), shape.blocks = shape.k / elements, shape.planes = planes, shape.is_own = is_own;
  shape.segment = elements == 256 ? std::min<int64_t>(shape.blocks, 32) : 1;
  const Team team = team_for(w, 1);
  shape.lanes = team.lanes, shape.teams = shape.threads() / team.lanes, shape.rows = team.rows;
  while (shape.bytes() > shared_bytes && shape.segment > 8) shape.segment /= 2;
  return shape;
}

class Finder {
 public:
  Finder(const ops::Plan& plan, const ops::ExecutorOptions& options, const lower::Lowering& lowering,
         const Facts& device)
      : plan_(plan), options_(options), lowering_(lowering), device_(device) {}

  std::vector<OneStep> find() {
    for (int32_t g = 0; g < static_cast<int32_t>(lowering_.groups.size()); ++g) add(g);
    return std::move(steps_);
  }

 private:
  const lower::FusionGroup* group(int32_t g) const {
    return g < 0 || at(g) >= lowering_.groups.size() ? nullptr : &lowering_.groups[at(g)];
  }
  const ops::Linear& linear(int32_t op) const { return plan_.ops[at(op)].get<ops::Linear>(); }
  const tensor::TensorView& matrix(int32_t op) const { return plan_.weights[at(linear(op).w)].view; }

  bool is_served(int32_t g, bool is_own) const {
    const lower::FusionGroup* linears = group(g);
    if (linears == nullptr || linears->kind != Kind::linears || linears->twin == kNone) return false;
    return std::ranges::all_of(linears->ops, [&](int32_t op) {
      const auto kernels = kernels_for(plan_, options_, plan_.ops[at(op)]);
      const bool has_rows = !kernels.empty() && kernels.front()->name == "linear_rows";
      return has_rows && one_shape(matrix(op), options_.planes, is_own, device_.shared_bytes).bytes() <=
                             static_cast<int64_t>(device_.shared_bytes);
    });
  }
  // Whether the group's products can make the twin that they read, which nobody else needs then.
  bool can_make(int32_t g, int32_t twin) const {
    if (!is_served(g, true) || group(g)->twin != twin || matrix(group(g)->ops.front()).shape.cols() > kOwnWidth)
      return false;
    return std::ranges::count(lowering_.twins.read_by_op, twin) == static_cast<int64_t>(group(g)->ops.size());
  }

  void add(int32_t g) {
    const lower::FusionGroup *here = group(g), *next = group(g + 1);
    if (next != nullptr && here->kind == Kind::heads && next->ops.size() == 1 &&
        takes_attention(plan_, *here, next->ops.front()) &&
        !kernels_for(plan_, options_, plan_.ops[at(next->ops.front())]).empty()) {
      steps_.push_back({g, g + 1, kNone, false, kNone, next->ops.front()});
    }
    if (!is_served(g, false)) return;
    OneStep step{g, g, g, false, kNone, kNone};
    if (const lower::FusionGroup* ahead = group(g - 1); ahead != nullptr && can_make(g, ahead->twin)) {
      // A gate's kernel has made it, unless the gate is behind the products before.
      const bool is_left = ahead->kind == Kind::gate && !steps_.empty() && steps_.back().last == g - 1;
      step.makes_twin = is_left || ahead->kind == Kind::quantise;
      if (ahead->kind == Kind::quantise) --step.first;
    }
    if (ends_with_gate(g)) step.gate = group(++step.last)->ops.front();
    if (step.makes_twin || step.gate != kNone) steps_.push_back(step);
  }

  // Whether the next group is the gate of the two products of this one, and whoever reads its twin can make it.
  bool ends_with_gate(int32_t g) const {
    const lower::FusionGroup *linears = group(g), *next = group(g + 1);
    if (next == nullptr || next->ops.size() != 1 || linears->ops.size() != 2) return false;
    const ops::Op& op = plan_.ops[at(next->ops.front())];
    const auto* gate = op.as<ops::Gate>();
    if (gate == nullptr || kernels_for(plan_, options_, op).empty()) return false;
    const int32_t a = linears->ops[0], b = linears->ops[1];
    const bool is_of_both = (linear(a).y == gate->gate && linear(b).y == gate->up) ||
                            (linear(b).y == gate->gate && linear(a).y == gate->up);
    const auto width = [&](ops::ValueId id) { return plan_.values[at(id)].width; };
    return is_of_both && matrix(a).dtype == matrix(b).dtype && width(gate->gate) == width(gate->y) &&
           width(gate->up) == width(gate->y) && (next->kind != Kind::gate || can_make(g + 2, next->twin));
  }

  const ops::Plan& plan_;
  const ops::ExecutorOptions& options_;
  const lower::Lowering& lowering_;
  const Facts& device_;
  std::vector<OneStep> steps_;
};

struct OnePush {
  Address x = 0, w[kProductsMax] = {}, bias[kProductsMax] = {}, y[kProductsMax] = {};
  uint32_t n_rows[kProductsMax] = {}, flags = 0;
};
static_assert(sizeof(OnePush) <= 128);
constexpr uint32_t kHasBias = 1;

class Recorder {
 public:
  Recorder(DeviceState& state, const OneStep& step)
      : s_(state), step_(step), linears_(state.lowering.groups[at(step.linears)]) {}

  void record() {
    const std::vector<std::vector<int32_t>> all = dispatches();
    s_.device.set_together(all.size() > 1);
    for (const std::vector<int32_t>& ops : all) dispatch(ops);
    s_.device.set_together(false);
  }

 private:
  const ops::Linear& linear(int32_t op) const { return s_.plan.ops[at(op)].get<ops::Linear>(); }
  const tensor::TensorView& matrix(int32_t op) const { return s_.plan.weights[at(linear(op).w)].view; }
  const ops::Gate* gate() const { return step_.gate == kNone ? nullptr : s_.plan.ops[at(step_.gate)].as<ops::Gate>(); }

  // Products of one format together; the gate's ahead of what it is multiplied by.
  std::vector<std::vector<int32_t>> dispatches() const {
    if (gate() != nullptr) {
      std::vector<int32_t> both = linears_.ops;
      if (linear(both[0]).y != gate()->gate) std::swap(both[0], both[1]);
      return {both};
    }
    std::vector<std::vector<int32_t>> all;
    for (const int32_t op : linears_.ops) {
      const auto fits = [&](const std::vector<int32_t>& some) {
        return some.size() < kProductsMax && matrix(some.front()).dtype == matrix(op).dtype;
      };
      const auto found = std::ranges::find_if(all, fits);
      found == all.end() ? all.push_back({op}) : found->push_back(op);
    }
    return all;
  }

  void dispatch(const std::vector<int32_t>& ops) {
    const tensor::TensorView& w = matrix(ops.front());
    const bool is_own = step_.makes_twin;
    const OneShape shape = one_shape(w, s_.options.planes, is_own, s_.device.facts().shared_bytes);
    const int64_t together = gate() == nullptr ? shape.n_outputs() : shape.n_outputs() / 2;
    OnePush push;
    push.x = is_own ? s_.value(s_.lowering.twins.list[at(linears_.twin)].x) : s_.twin(linears_.twin).address;
    int64_t n_groups = 0;
    for (size_t i = 0; i < ops.size(); ++i) {
      const ops::Linear& product = linear(ops[i]);
      push.w[i] = s_.matrix(product.w), push.bias[i] = s_.small(product.bias), push.y[i] = s_.value(product.y);
      push.n_rows[i] = word(s_.width(product.y));
      if (product.bias != kNone) push.flags |= kHasBias << i;
      n_groups += (s_.width(product.y) + together - 1) / together;
    }
    if (gate() != nullptr) push.y[2] = s_.value(gate()->y), n_groups /= 2;
    if (is_own) n_groups = std::min(n_groups, kOwnGroups);
    const int64_t n = shape.n_outputs(), row_groups = is_own ? shape.k / 16 : 1;
    const Constants constants = {word(number_of_format(w.dtype)),
                                 word(shape.lanes),
                                 word(shape.planes),
                                 word(shape.teams),
                                 word(shape.rows),
                                 word(shape.blocks),
                                 word(shape.segment),
                                 word(n * shape.blocks),
                                 word(n * shape.segment * 4),
                                 word(n * 8),
                                 is_own ? 1u : 0u,
                                 gate() == nullptr ? 0u : 1u,
                                 gate() == nullptr ? 7u : static_cast<uint32_t>(gate()->activation),
                                 is_own ? word((shape.k / 4 + kOwnThreads - 1) / kOwnThreads) : 1u,
                                 word(row_groups),
                                 word(shape.planes == 2 ? row_groups : 1),
                                 word(is_own ? shape.blocks : 1)};
    s_.device.dispatch(std::string(kOneToken) + (s_.device.uses_dots() ? "_1" : "_0"), constants, push,
                       std::min(n_groups, kGroupsMax));
  }

  DeviceState& s_;
  const OneStep& step_;
  const lower::FusionGroup& linears_;
};

}  // namespace

std::vector<OneStep> find_one_steps(const ops::Plan& plan, const ops::ExecutorOptions& options,
                                    const lower::Lowering& lowering, const Facts& device) {
  return Finder(plan, options, lowering, device).find();
}

std::vector<int32_t> find_step_of_group(size_t n_groups, std::span<const OneStep> one_steps) {
  std::vector<int32_t> steps;
  int32_t next = 0;
  auto step = one_steps.begin();
  for (int32_t g = 0; at(g) < n_groups; ++g) {
    if (step != one_steps.end() && g > step->last) ++step;
    const bool is_within = step != one_steps.end() && g > step->first && g <= step->last;
    steps.push_back(is_within ? next - 1 : next++);
  }
  return steps;
}

bool has_one_step(const DeviceState& s, const OneStep& step) {
  if (step.attention != kNone) return s.n_tokens() == 1 && s.n_segments() == 0;
  return s.n_rows(s.lowering.links.output(s.lowering.groups[at(step.linears)].ops.front())) == 1;
}

void record_one_step(DeviceState& state, const OneStep& step) {
  if (step.attention != kNone)
    return record_heads_and_attention(state, state.lowering.groups[at(step.first)], step.attention);
  Recorder(state, step).record();
}

}  // namespace assay::backend::vulkan
