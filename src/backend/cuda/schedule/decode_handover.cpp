// See decode_handover.h.
#include "backend/cuda/schedule/decode_handover.h"

#include <algorithm>
#include <cstddef>

#include "backend/cuda/kernels/decode_table.h"
#include "ops/attention/attention.h"
#include "ops/linear/gather.h"
#include "ops/linear/linear.h"
#include "ops/rows/add.h"
#include "ops/rows/gate.h"
#include "ops/rows/rms_norm.h"

namespace assay::backend::cuda {
namespace {

using ops::kNone;
using Kind = DecodeGroup::Kind;

// The op of a group that is one gather, or kNone.
int32_t gather_of(const DecodeProducts& p, const DecodeGroup& group) {
  if (group.members.size() != 1 || group.alone.ops.size() != 1) return kNone;
  const int32_t op = group.alone.ops.front();
  return p.plan.ops[static_cast<size_t>(op)].is<ops::Gather>() ? op : kNone;
}

// The row that the kernels of a group make for others, if it is one.
ops::ValueId made_by(const DecodeProducts& p, const DecodeGroup& group) {
  if (group.kind == Kind::attention) return p.record<ops::Attention>(p.group(group.attention).ops.front()).y;
  if (group.kind != Kind::linears) return kNone;
  if (group.gate != kNone) return p.record<ops::Gate>(p.group(group.gate).ops.front()).y;
  const FusionGroup& linears = p.group(group.linears);
  return linears.ops.size() == 1 ? p.record<ops::Linear>(linears.ops.front()).y : kNone;
}

bool reads(const DecodeProducts& p, const DecodeGroup& group, ops::ValueId value) {
  return std::ranges::any_of(group.members, [&](int32_t member) {
    return std::ranges::any_of(p.group(member).ops, [&](int32_t op) {
      return std::ranges::find(p.lowering.links.inputs(op), value) != p.lowering.links.inputs(op).end();
    });
  });
}

// The only group that reads a value, if its products do and wait for nothing yet; else null.
DecodeGroup* reader_of(const DecodeProducts& p, std::vector<DecodeGroup>& groups, ops::ValueId value) {
  if (value == p.plan.output()) return nullptr;
  DecodeGroup* reader = nullptr;
  for (DecodeGroup& group : groups) {
    if (!reads(p, group, value)) continue;
    if (reader != nullptr || group.kind != Kind::linears || group.gather_awaited != kNone) return nullptr;
    reader = &group;
  }
  return reader;
}

// Whether what a group adds before its norm, and nothing else, is the value.
bool adds(const DecodeProducts& p, const DecodeGroup& group, ops::ValueId value) {
  if (group.norm == kNone || p.group(group.norm).add == kNone) return false;
  const FusionGroup& norm = p.group(group.norm);
  if (norm.pre_norm != kNone) return p.record<ops::RmsNorm>(norm.pre_norm).x == value;
  const auto& sum = p.record<ops::Add>(norm.add);
  return (sum.a == value) != (sum.b == value);
}

}  // namespace

void find_sends(const DecodeProducts& p, std::vector<DecodeGroup>& groups) {
  if (p.options.fast) return;  // its kernels neither send nor wait
  for (size_t g = 1; g < groups.size(); ++g) {
    const int32_t op = gather_of(p, groups[g]);
    DecodeGroup& maker = groups[g - 1];
    if (op == kNone || made_by(p, maker) != p.record<ops::Gather>(op).x) continue;
    DecodeGroup* reader = reader_of(p, groups, p.record<ops::Gather>(op).y);
    if (reader == nullptr) continue;
    reader->gather_awaited = op;
    maker.gather_sent = op;
    maker.members.push_back(groups[g].members.front());
    groups.erase(groups.begin() + static_cast<std::ptrdiff_t>(g));
  }
}

std::vector<int32_t> find_columns(const DecodeProducts& p, std::vector<DecodeGroup>& groups) {
  std::vector<int32_t> column_linears;
  const auto with = [&](int32_t DecodeGroup::*field, int32_t gather) {
    return std::ranges::find_if(groups, [&](const DecodeGroup& other) { return other.*field == gather; });
  };
  for (DecodeGroup& group : groups) {
    const bool is_bare = group.kind == Kind::linears && group.norm == kNone && group.gate == kNone;
    if (!is_bare || group.gather_awaited == kNone || group.gather_sent == kNone) continue;
    const FusionGroup& linears = p.group(group.linears);
    const int32_t linear = linears.ops.front();
    const bool has_columns = linears.ops.size() == 1 && p.record<ops::Linear>(linear).columns != kNone;
    if (!has_columns || p.kind_of(linears) == quant::Activation::f32) continue;
    if (!adds(p, *with(&DecodeGroup::gather_awaited, group.gather_sent), p.record<ops::Gather>(group.gather_sent).y))
      continue;
    group.of_own_columns = true;
    with(&DecodeGroup::gather_sent, group.gather_awaited)->keeps_row = true;
    column_linears.push_back(linear);
  }
  return column_linears;
}

void find_adds(const DecodeProducts& p, std::vector<DecodeGroup>& groups) {
  for (size_t g = 0; g + 1 < groups.size(); ++g) {
    DecodeGroup &maker = groups[g], &reader = groups[g + 1];
    if (reader.kind != Kind::linears || reader.norm == kNone || reader.gather_awaited != kNone) continue;
    if (maker.kind != Kind::linears || maker.gate != kNone || maker.norm != kNone || maker.gather_sent != kNone)
      continue;
    const FusionGroup& norm = p.group(reader.norm);
    const ops::ValueId y = made_by(p, maker);
    if (y == kNone || norm.add == kNone || norm.pre_norm != kNone) continue;
    if (p.is_fast(p.matrix_of(p.group(maker.linears).ops.front()))) continue;
    const auto& add = p.record<ops::Add>(norm.add);
    if ((add.a == y) == (add.b == y) || !p.lowering.links.is_read_once(y)) continue;
    maker.sum_made = norm.add;
    reader.is_added = true;
  }
}

void find_narrow_readers(const DecodeProducts& p, std::vector<DecodeGroup>& groups) {
  for (size_t g = 0; g + 1 < groups.size(); ++g) {
    const DecodeGroup& reader = groups[g + 1];
    if (groups[g].kind != Kind::attention || reader.kind != Kind::linears) continue;
    const tensor::TensorView& w = p.matrix_of(p.group(reader.linears).ops.front());
    groups[g].reader_is_narrow = !p.is_fast(w) && decode_is_narrow(w.dtype, w.shape.rows());
  }
}

std::vector<bool> find_read_by_others(const DecodeProducts& p, const std::vector<DecodeGroup>& groups,
                                      const std::vector<int32_t>& of_member) {
  const lower::Links& links = p.lowering.links;
  std::vector<int32_t> of_op(p.plan.ops.size());
  for (size_t i = 0; i < of_member.size(); ++i) {
    for (const int32_t op : p.lowering.groups[i].ops) of_op[static_cast<size_t>(op)] = of_member[i];
  }
  std::vector<bool> read(p.plan.values.size(), false);
  for (size_t i = 0; i < read.size(); ++i) {
    const auto value = static_cast<ops::ValueId>(i);
    const int32_t producer = links.producer(value);
    const int32_t maker = producer == kNone ? kNone : of_op[static_cast<size_t>(producer)];
    const bool by_others = std::ranges::any_of(links.readers(value), [&](int32_t op) {
      const int32_t reader = of_op[static_cast<size_t>(op)];
      const bool is_added = maker != kNone && reader == maker + 1 && groups[static_cast<size_t>(maker)].sum_made == op;
      return reader != maker && !is_added;
    });
    read[i] = by_others || links.is_given_out(value);
  }
  return read;
}

}  // namespace assay::backend::cuda
