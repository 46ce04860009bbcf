// Tests of what every device shares of a lowering: links, twins, groups and their order, lifetimes, memory.
#include "lower/lowering.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "assay/error.h"
#include "lower/placement.h"
#include "ops/linear/linear.h"
#include "ops/rows/gate.h"
#include "support/tiny_plan.h"

namespace assay::lower {
namespace {

using ops::kNone;
using Kind = FusionGroup::Kind;

// A device that fuses all there is to fuse.
DeviceLimits widest() {
  DeviceLimits limits;
  limits.norm_width_max = 1 << 20;
  limits.head_dim_max = 1 << 20;
  limits.products_max = 8;
  limits.gate_makes_twin = [](const ops::Gate&) { return true; };
  limits.attention_makes_twin = [](const ops::Attention&) { return true; };
  return limits;
}

// Plans that differ in what can be fused, and devices that fuse all of it and nothing.
template <class Visit>
void each_lowering(Visit visit) {
  for (const bool gemma : {false, true}) {
    for (const tensor::DType dtype : {tensor::DType::Q4_0, tensor::DType::F32}) {
      test::TinyShape shape;
      shape.gemma = gemma;
      shape.dtype = dtype;
      const test::TinyPlan tiny(shape);
      for (const DeviceLimits& limits : {widest(), DeviceLimits{}}) visit(tiny.plan, lower(tiny.plan, {}, limits));
    }
  }
}

Steps step_each(const ops::Plan& plan, const Lowering& lowering) {
  std::vector<int32_t> steps(lowering.groups.size());
  std::iota(steps.begin(), steps.end(), 0);
  return find_steps(plan, lowering, steps);
}

std::map<Kind, int> count_kinds(const Lowering& lowering) {
  std::map<Kind, int> n;
  for (const FusionGroup& group : lowering.groups) ++n[group.kind];
  return n;
}

const FusionGroup* group_of(const ops::Plan& plan, const Lowering& lowering, const std::string& name, int32_t layer) {
  for (const FusionGroup& group : lowering.groups) {
    for (const int32_t op : group.ops) {
      const ops::Op& found = plan.ops[static_cast<size_t>(op)];
      if (found.name == name && found.layer == layer) return &group;
    }
  }
  return nullptr;
}

std::vector<std::string> names_of(const ops::Plan& plan, const FusionGroup& group) {
  std::vector<std::string> names;
  for (const int32_t op : group.ops) names.push_back(plan.ops[static_cast<size_t>(op)].name);
  return names;
}

TEST(Links, NameWhoWritesAndWhoReads) {
  const test::TinyPlan tiny({});
  const Links links(tiny.plan);
  size_t n_reads = 0;
  for (size_t i = 0; i < tiny.plan.values.size(); ++i) {
    const auto value = static_cast<ops::ValueId>(i);
    EXPECT_EQ(links.output(links.producer(value)), value);
    for (const int32_t op : links.readers(value)) {
      const std::vector<ops::ValueId>& inputs = links.inputs(op);
      EXPECT_NE(std::ranges::find(inputs, value), inputs.end());
      EXPECT_LT(links.producer(value), op);
    }
    n_reads += links.readers(value).size();
  }
  size_t n_inputs = 0;
  for (const ops::Op& op : tiny.plan.ops) n_inputs += ops::values_of(op).inputs.size();
  EXPECT_EQ(n_reads, n_inputs);
  EXPECT_TRUE(links.is_given_out(tiny.plan.logits));
  EXPECT_FALSE(links.is_read_once(tiny.plan.logits));
}

TEST(Links, NameTheLayersOfTheCache) {
  const test::TinyPlan tiny({});
  const Links links(tiny.plan);
  int n_stores = 0, n_reads = 0;
  for (size_t i = 0; i < tiny.plan.ops.size(); ++i) {
    const ops::Op& op = tiny.plan.ops[i];
    const auto id = static_cast<int32_t>(i);
    EXPECT_EQ(links.layer_stored(id), op.name == "kv_store" ? op.layer : kNone);
    EXPECT_EQ(links.layer_read(id), op.name == "attention" ? op.layer : kNone);
    n_stores += links.layer_stored(id) != kNone;
    n_reads += links.layer_read(id) != kNone;
  }
  EXPECT_EQ(n_stores, 2);
  EXPECT_EQ(n_reads, 2);
}

TEST(Twins, OneForAllProductsOfARow) {
  const test::TinyPlan tiny({});
  const Twins twins = find_twins(tiny.plan, {}, true);
  // Of a layer: attn_norm, attention, ffn_norm, ffn_act; and the head's.
  EXPECT_EQ(twins.list.size(), 2u * 4 + 1);
  for (size_t i = 0; i < tiny.plan.ops.size(); ++i) {
    const auto* linear = tiny.plan.ops[i].as<ops::Linear>();
    ASSERT_EQ(twins.read_by_op[i] != kNone, linear != nullptr) << tiny.plan.ops[i].name;
    if (linear == nullptr) continue;
    const Twin& twin = twins.list[static_cast<size_t>(twins.read_by_op[i])];
    EXPECT_EQ(twin.x, linear->x);
    EXPECT_EQ(twin.kind, quant::Activation::a32);
    EXPECT_EQ(twins.find(linear->x, quant::Activation::a32), twins.read_by_op[i]);
    EXPECT_EQ(twins.find_any(linear->x), twins.read_by_op[i]);
    EXPECT_EQ(twins.find(linear->x, quant::Activation::a256), kNone);
  }
}

TEST(Twins, NoneOfFloats) {
  const test::TinyPlan integers({});
  EXPECT_TRUE(find_twins(integers.plan, {.weights_as_f32 = true}, true).list.empty());
  EXPECT_TRUE(find_twins(integers.plan, {}, true, [](const ops::Linear&) { return true; }).list.empty());
  test::TinyShape shape;
  shape.dtype = tensor::DType::F32;
  const test::TinyPlan floats(shape);
  EXPECT_TRUE(find_twins(floats.plan, {}, true).list.empty());
}

TEST(Fusion, EveryOpInOneGroupAndEveryTwinMadeOnce) {
  each_lowering([](const ops::Plan& plan, const Lowering& lowering) {
    std::vector<int> n_groups(plan.ops.size(), 0), n_makers(lowering.twins.list.size(), 0);
    for (const FusionGroup& group : lowering.groups) {
      EXPECT_TRUE(std::ranges::is_sorted(group.ops));
      for (const int32_t op : group.ops) ++n_groups[static_cast<size_t>(op)];
      if (group.twin != kNone && !reads_twin(group.kind)) ++n_makers[static_cast<size_t>(group.twin)];
    }
    EXPECT_EQ(n_groups, std::vector<int>(plan.ops.size(), 1));
    EXPECT_EQ(n_makers, std::vector<int>(lowering.twins.list.size(), 1));
  });
}

TEST(Fusion, FindsTheGroupsOfALayer) {
  const test::TinyPlan tiny({});
  const Lowering lowering = lower(tiny.plan, {}, widest());
  const auto names = [&](const char* name, int32_t layer) {
    return names_of(tiny.plan, *group_of(tiny.plan, lowering, name, layer));
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names("attn_norm", 0), Names{"attn_norm"});
  EXPECT_EQ(names("attn_norm", 1), (Names{"residual", "attn_norm"}));
  EXPECT_EQ(names("attn_q", 0), (Names{"attn_q", "attn_k", "attn_v"}));
  EXPECT_EQ(names("kv_store", 0), (Names{"attn_q_rope", "attn_k_rope", "kv_store"}));
  EXPECT_EQ(names("ffn_norm", 0), (Names{"attn_residual", "ffn_norm"}));
  EXPECT_EQ(names("ffn_gate", 0), (Names{"ffn_gate", "ffn_up"}));
  std::map<Kind, int> n = count_kinds(lowering);
  EXPECT_EQ(n[Kind::gate], 2);
  EXPECT_EQ(n[Kind::attention], 2);
  EXPECT_EQ(n[Kind::quantise], 1);  // of the selected row of attention
  EXPECT_EQ(n[Kind::borrowed], 0);
}

TEST(Fusion, TakesNormsOfHeadsAndNormsAheadOfSums) {
  test::TinyShape shape;
  shape.gemma = true;
  const test::TinyPlan tiny(shape);
  const Lowering lowering = lower(tiny.plan, {}, widest());
  const auto names = [&](const char* name) { return names_of(tiny.plan, *group_of(tiny.plan, lowering, name, 0)); };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names("kv_store"), (Names{"attn_q_norm", "attn_q_rope", "attn_k_norm", "attn_k_rope", "kv_store"}));
  EXPECT_EQ(names("ffn_norm"), (Names{"post_attention_norm", "attn_residual", "ffn_norm"}));
}

TEST(Fusion, StaysBelowTheDevicesLimits) {
  test::TinyShape shape;
  const test::TinyPlan tiny(shape);
  const std::vector<std::pair<DeviceLimits, Kind>> cases = [&] {
    std::vector<std::pair<DeviceLimits, Kind>> made;
    for (const Kind kind : {Kind::norm, Kind::heads, Kind::gate, Kind::attention}) made.emplace_back(widest(), kind);
    made[0].first.norm_width_max = shape.d_model - 1;
    made[1].first.head_dim_max = shape.head_dim - 1;
    made[2].first.gate_makes_twin = {};
    made[3].first.attention_makes_twin = {};
    return made;
  }();
  for (const auto& [limits, kind] : cases) {
    EXPECT_GT(count_kinds(lower(tiny.plan, {}, widest()))[kind], 0);
    EXPECT_EQ(count_kinds(lower(tiny.plan, {}, limits))[kind], 0);
  }
  DeviceLimits few = widest();
  few.products_max = 2;
  for (const FusionGroup& group : lower(tiny.plan, {}, few).groups) {
    if (group.kind == Kind::linears) {
      EXPECT_LE(group.ops.size(), 2u);
    }
  }
}

TEST(Fusion, BorrowsWhatHasNoKernel) {
  const test::TinyPlan tiny({});
  DeviceLimits limits;
  limits.has_kernel = [](const ops::Op& op) { return !op.is<ops::Gate>(); };
  const Lowering lowering = lower(tiny.plan, {}, limits);
  EXPECT_EQ(count_kinds(lowering)[Kind::borrowed], 2);
  EXPECT_EQ(group_of(tiny.plan, lowering, "ffn_act", 1)->kind, Kind::borrowed);
}

TEST(Fusion, EachGroupFindsItsInputs) {
  each_lowering([](const ops::Plan& plan, const Lowering& lowering) {
    std::vector<bool> made(plan.values.size(), false), twin_made(lowering.twins.list.size(), false);
    std::vector<bool> stored(plan.cache_layers.size(), false);
    for (const FusionGroup& group : lowering.groups) {
      if (reads_twin(group.kind) && group.twin != kNone) {
        EXPECT_TRUE(twin_made[static_cast<size_t>(group.twin)]);
      }
      for (const int32_t op : group.ops) {  // in the plan's order: an op's inputs come from ahead of it
        for (const ops::ValueId x : lowering.links.inputs(op)) EXPECT_TRUE(made[static_cast<size_t>(x)]);
        const int32_t layer = lowering.links.layer_read(op);
        if (layer != kNone) {
          EXPECT_TRUE(stored[static_cast<size_t>(layer)]);
        }
        if (lowering.links.output(op) != kNone) made[static_cast<size_t>(lowering.links.output(op))] = true;
        if (lowering.links.layer_stored(op) != kNone)
          stored[static_cast<size_t>(lowering.links.layer_stored(op))] = true;
      }
      if (group.twin == kNone || reads_twin(group.kind)) continue;
      EXPECT_TRUE(made[static_cast<size_t>(lowering.twins.list[static_cast<size_t>(group.twin)].x)]);
      twin_made[static_cast<size_t>(group.twin)] = true;
    }
  });
}

TEST(Fusion, RefusesAValueThatNobodyWrites) {
  test::TinyPlan tiny({});
  std::erase_if(tiny.plan.ops, [](const ops::Op& op) { return op.name == "attn_k" && op.layer == 1; });
  EXPECT_THROW(lower(tiny.plan, {}, widest()), Error);
}

TEST(Fusion, TellsWhichFloatsOthersRead) {
  const test::TinyPlan tiny({});
  const Lowering lowering = lower(tiny.plan, {}, widest());
  const auto is_read = [&](const char* name, int32_t layer) {
    for (size_t i = 0; i < tiny.plan.ops.size(); ++i) {
      const ops::Op& op = tiny.plan.ops[i];
      if (op.name == name && op.layer == layer) {
        return static_cast<bool>(
            lowering.read_outside[static_cast<size_t>(lowering.links.output(static_cast<int32_t>(i)))]);
      }
    }
    throw std::out_of_range(name);
  };
  EXPECT_FALSE(is_read("ffn_norm", 0));     // its twin is
  EXPECT_FALSE(is_read("attn_k_rope", 0));  // it goes into the cache
  EXPECT_FALSE(is_read("ffn_act", 0));
  EXPECT_TRUE(is_read("attn_q_rope", 0));
  EXPECT_TRUE(is_read("attn_residual", 0));  // by the sum after the next products
  EXPECT_TRUE(is_read("output", -1));        // by the caller
}

// What of a plan lives in memory, from which step to which, and where.
struct Living {
  Lifetime life;
  size_t begin = 0, end = 0;
  std::string name;
};

std::vector<Living> living(const ops::Plan& plan, const Twins& twins, const Lifetimes& lifetimes,
                           const ops::ExecutorOptions& options, const Placement& placed) {
  std::vector<Living> all;
  for (size_t i = 0; i < plan.values.size(); ++i) {
    const int64_t n_rows = rows_max(plan, static_cast<ops::ValueId>(i), options);
    const size_t bytes = static_cast<size_t>(n_rows * plan.values[i].width) * sizeof(float);
    all.push_back({lifetimes.values[i], placed.values[i], placed.values[i] + bytes, plan.values[i].name});
  }
  for (size_t i = 0; i < twins.list.size(); ++i) {
    const Twin& twin = twins.list[i];
    const ops::Value& x = plan.values[static_cast<size_t>(twin.x)];
    const size_t bytes = quant::activations_bytes(twin.kind, options.planes, rows_max(plan, twin.x, options), x.width);
    all.push_back({lifetimes.twins[i], placed.twins[i], placed.twins[i] + bytes, "twin of " + x.name});
  }
  return all;
}

void expect_apart(const std::vector<Living>& all, size_t arena_bytes) {
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_LE(all[i].end, arena_bytes);
    for (size_t j = 0; j < i; ++j) {
      const bool at_once =
          all[i].life.first_step <= all[j].life.last_step && all[j].life.first_step <= all[i].life.last_step;
      const bool overlap = all[i].begin < all[j].end && all[j].begin < all[i].end;
      const bool taken_over =
          all[i].life.in_place_of == static_cast<int32_t>(j) || all[j].life.in_place_of == static_cast<int32_t>(i);
      if (at_once && !taken_over) {
        EXPECT_FALSE(overlap) << all[i].name << " and " << all[j].name;
      }
    }
  }
}

TEST(Lifetimes, NoTwoThatLiveAtOnceShareMemory) {
  const ops::ExecutorOptions options{.n_batch_max = 7, .n_outputs_max = 3};
  each_lowering([&](const ops::Plan& plan, const Lowering& lowering) {
    const Steps steps = step_each(plan, lowering);
    const Lifetimes lifetimes = find_lifetimes(plan, lowering.links, lowering.twins, steps);
    const Placement placed = place_values(plan, lowering.twins, lifetimes, options, 64);
    expect_apart(living(plan, lowering.twins, lifetimes, options, placed), placed.bytes);
    size_t sum = 0;
    for (const ops::Value& value : plan.values) sum += static_cast<size_t>(value.width) * 7 * sizeof(float);
    EXPECT_LT(placed.bytes, sum / 2);
  });
}

TEST(Lifetimes, ReachFromTheWriterToTheLastReader) {
  each_lowering([](const ops::Plan& plan, const Lowering& lowering) {
    const Steps steps = step_each(plan, lowering);
    const Lifetimes lifetimes = find_lifetimes(plan, lowering.links, lowering.twins, steps);
    for (size_t i = 0; i < plan.ops.size(); ++i) {
      const auto op = static_cast<int32_t>(i);
      const int32_t now = steps.of_op[i];
      for (const ops::ValueId x : lowering.links.inputs(op)) {
        EXPECT_LE(lifetimes.values[static_cast<size_t>(x)].first_step, now);
        EXPECT_GE(lifetimes.values[static_cast<size_t>(x)].last_step, now);
      }
      const ops::ValueId y = lowering.links.output(op);
      if (y != kNone) {
        EXPECT_EQ(lifetimes.values[static_cast<size_t>(y)].first_step, now);
      }
      const int32_t twin = lowering.twins.read_by_op[i];
      if (twin != kNone) {
        EXPECT_GE(lifetimes.twins[static_cast<size_t>(twin)].last_step, now);
      }
    }
    EXPECT_EQ(lifetimes.values[static_cast<size_t>(plan.logits)].last_step, steps.n);
  });
}

TEST(Lifetimes, AnOutputTakesOverWhatNobodyReadsAnyMore) {
  const ops::ExecutorOptions options{.n_batch_max = 7, .n_outputs_max = 3};
  int n_taken = 0;
  each_lowering([&](const ops::Plan& plan, const Lowering& lowering) {
    const Steps steps = step_each(plan, lowering);
    Lifetimes lifetimes = find_lifetimes(plan, lowering.links, lowering.twins, steps);
    share_in_place(plan, lowering.links, lowering.twins, steps, find_views(plan, lowering.links, {}), lifetimes);
    const Placement placed = place_values(plan, lowering.twins, lifetimes, options, 64);
    expect_apart(living(plan, lowering.twins, lifetimes, options, placed), placed.bytes);
    for (size_t i = 0; i < plan.values.size(); ++i) {
      const ops::ValueId x = lifetimes.values[i].in_place_of;
      if (x == kNone) continue;
      ++n_taken;
      EXPECT_EQ(placed.values[i], placed.values[static_cast<size_t>(x)]);
      EXPECT_EQ(lifetimes.values[static_cast<size_t>(x)].last_step, lifetimes.values[i].first_step);
      EXPECT_NE(x, plan.logits);
    }
  });
  EXPECT_GT(n_taken, 0);
}

TEST(Placement, TwinsOfOwnSizesHaveTheirBytes) {
  const test::TinyPlan tiny({});
  const ops::ExecutorOptions options{.n_batch_max = 4, .n_outputs_max = 2};
  const Lowering lowering = lower(tiny.plan, options, widest());
  const Lifetimes lifetimes = find_lifetimes(tiny.plan, lowering.links, lowering.twins, step_each(tiny.plan, lowering));
  ASSERT_GT(lowering.twins.list.size(), 1u);
  std::vector<size_t> bytes, usual;
  for (size_t i = 0; i < lowering.twins.list.size(); ++i) {
    const Twin& twin = lowering.twins.list[i];
    bytes.push_back(1024 * (i + 1));
    usual.push_back(quant::activations_bytes(twin.kind, options.planes, rows_max(tiny.plan, twin.x, options),
                                             tiny.plan.values[static_cast<size_t>(twin.x)].width));
  }
  const Placement placed = place_values(tiny.plan, bytes, lifetimes, options, 256);
  for (size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_LE(placed.twins[i] + bytes[i], placed.bytes);
    for (size_t j = 0; j < i; ++j) {
      const Lifetime &a = lifetimes.twins[i], &b = lifetimes.twins[j];
      if (a.first_step > b.last_step || b.first_step > a.last_step) continue;
      EXPECT_TRUE(placed.twins[i] + bytes[i] <= placed.twins[j] || placed.twins[j] + bytes[j] <= placed.twins[i])
          << "twins " << i << " and " << j << " live together";
    }
  }
  const Placement same = place_values(tiny.plan, usual, lifetimes, options, 256),
                  of_twins = place_values(tiny.plan, lowering.twins, lifetimes, options, 256);
  EXPECT_EQ(same.values, of_twins.values);
  EXPECT_EQ(same.twins, of_twins.twins);
}

TEST(Placement, AddressesAreThePlacesOfTheArena) {
  const test::TinyPlan tiny({});
  const ops::ExecutorOptions options{.n_batch_max = 4, .n_outputs_max = 2};
  const Lowering lowering = lower(tiny.plan, options, widest());
  const Lifetimes lifetimes = find_lifetimes(tiny.plan, lowering.links, lowering.twins, step_each(tiny.plan, lowering));
  const Placement placed = place_values(tiny.plan, lowering.twins, lifetimes, options, 256);
  std::vector<std::byte> arena(placed.bytes);
  const Places places = places_in(arena.data(), placed, tiny.plan, lowering.twins, options);
  ASSERT_EQ(places.values.size(), tiny.plan.values.size());
  ASSERT_EQ(places.twins.size(), lowering.twins.list.size());
  for (size_t i = 0; i < places.values.size(); ++i) {
    EXPECT_EQ(placed.values[i] % 256, 0u);
    EXPECT_EQ(reinterpret_cast<std::byte*>(places.values[i]), arena.data() + placed.values[i]);
  }
}

}  // namespace
}  // namespace assay::lower
