// See plan_shards.h.
#include "ops/plan/plan_shards.h"

#include <string>
#include <utility>

#include "assay/error.h"
#include "base/index.h"
#include "ops/attention/attention.h"
#include "ops/attention/kv_store.h"
#include "ops/attention/rope.h"
#include "ops/linear/gather.h"
#include "ops/linear/linear.h"
#include "ops/plan/op_values.h"
#include "ops/plan/shard_scope.h"
#include "ops/rows/rms_norm.h"

namespace assay::ops {
namespace {

using Ranges = ColumnRanges;

// Equal runs of rows where they can be, else nearly equal ones of whole 32s.
Ranges even_ranges(int64_t n, int n_shards) {
  int64_t unit = 0;
  for (const int64_t u : {256, 32, 8}) {
    if (unit == 0 && n % (u * n_shards) == 0) unit = u;
  }
  if (unit == 0 && n >= int64_t{32} * n_shards) unit = 32;
  if (unit == 0) return {};
  Ranges ranges;
  for (int64_t i = 0; i < n_shards; ++i) {
    const int64_t end = i + 1 == n_shards ? n : (i + 1) * (n / unit) / n_shards * unit;
    ranges.push_back({i == 0 ? 0 : ranges.back().end, end});
  }
  return ranges;
}

HeadRanges head_ranges(int64_t n_heads, int64_t n_kv_heads, int n_shards) {
  HeadRanges heads;
  const int64_t group = n_heads / n_kv_heads;
  if (n_kv_heads >= n_shards) {
    for (int64_t i = 0; i < n_shards; ++i) {
      const ColumnRange kv{i * n_kv_heads / n_shards, (i + 1) * n_kv_heads / n_shards};
      heads.kv.push_back(kv);
      heads.q.push_back({kv.begin * group, kv.end * group});
    }
  } else if (const int64_t sharers = n_shards / n_kv_heads;
             n_shards % n_kv_heads == 0 && sharers <= group) {  // of a KV head
    for (int64_t i = 0; i < n_shards; ++i) {
      const int64_t kv = i / sharers, part = i % sharers;
      heads.kv.push_back({kv, kv + 1});
      heads.q.push_back({kv * group + part * group / sharers, kv * group + (part + 1) * group / sharers});
    }
  }
  return heads;
}

template <class R>
const R* record_of(const Plan& plan, int32_t i_op) {
  return i_op == kNone ? nullptr : plan.ops[at(i_op)].as<R>();
}

}  // namespace

ColumnRanges times(ColumnRanges ranges, int64_t factor) {
  for (ColumnRange& range : ranges) range = {range.begin * factor, range.end * factor};
  return ranges;
}

ShardScope::ShardScope(const Plan& whole, int n_shards)
    : whole_(whole), n_(n_shards), shards_(at(n_shards)), ranges_(whole.values.size()),
      own_(whole.values.size(), kNone), gathered_(whole.values.size(), kNone), weights_(whole.weights.size(), kNone),
      rows_of_(whole.ops.size()), heads_(whole.cache_layers.size()) {
  for (PlanShard& shard : shards_) {
    shard.plan.ropes = whole.ropes;
    shard.plan.vocab_size = whole.vocab_size;
    shard.plan.d_model = whole.d_model;
    shard.plan.n_ctx_train = whole.n_ctx_train;
    shard.plan.n_ctx_max = whole.n_ctx_max;
    shard.plan.causal = whole.causal;
    shard.plan.cache_layers = whole.cache_layers;
    shard.plan.states = whole.states;  // each shard has them whole
    shard.kv_heads.resize(whole.cache_layers.size());
  }
}

std::vector<PlanShard> ShardScope::run() {
  find_rows();
  for (const Op& op : whole_.ops) {
    op.record.shard(*this);
    ++i_op_;
  }
  const ValueId logits = whole_of(whole_.logits);
  for (PlanShard& shard : shards_) shard.plan.logits = logits;
  return std::move(shards_);
}

int32_t ShardScope::producer_of(ValueId id) const {
  for (size_t i = 0; i < whole_.ops.size(); ++i) {
    if (values_of(whole_.ops[i]).output == id) return static_cast<int32_t>(i);
  }
  return kNone;
}

// The product behind a value of heads: through rotation and norms of heads alone.
int32_t ShardScope::product_of(ValueId id, int64_t head_dim) const {
  const int32_t from = producer_of(id);
  if (const auto* r = record_of<Rope>(whole_, from)) return product_of(r->x, head_dim);
  if (const auto* r = record_of<RmsNorm>(whole_, from); r != nullptr && r->d == head_dim)
    return product_of(r->x, head_dim);
  return record_of<Linear>(whole_, from) != nullptr ? from : kNone;
}

ColumnRanges ShardScope::runs_of(ValueId id, int64_t d) const {
  for (const ColumnRange& range : ranges(id)) {
    if (range.begin % d != 0 || range.end % d != 0) return {};
  }
  return ranges(id);
}

// Which rows of its matrix each shard has of every product: heads decide about theirs.
void ShardScope::find_rows() {
  for (size_t i = 0; i < whole_.ops.size(); ++i) {
    if (const auto* r = record_of<Linear>(whole_, static_cast<int32_t>(i))) rows_of_[i] = even_ranges(width(r->y), n_);
  }
  for (const Op& op : whole_.ops) {
    const auto* attention = op.as<Attention>();
    if (attention == nullptr) continue;
    HeadRanges heads = head_ranges(attention->n_heads, attention->n_kv_heads, n_);
    const int64_t v_dim = whole_.cache_layers[at(attention->layer)].v_dim();
    std::vector<int32_t> products = {product_of(attention->q, attention->head_dim)};
    std::vector<int64_t> dims = {attention->head_dim, attention->head_dim, v_dim};
    int n_readers = 0;  // a cache that several ops read stays whole
    for (const Op& other : whole_.ops) {
      if (other.record.role() != Role::store && cache_layer_of(other) == attention->layer) ++n_readers;
      const auto* store = other.as<KvStore>();
      if (store == nullptr || store->layer != attention->layer) continue;
      products.push_back(product_of(store->k, attention->head_dim));
      products.push_back(store->v == kNone ? kNone : product_of(store->v, v_dim));
    }
    const bool found =
        n_readers == 1 && products.size() == 3 && products[0] != kNone && products[1] != kNone && products[2] != kNone;
    if (!found) heads = {};
    for (size_t i = 0; found && i < 3; ++i) rows_of_[at(products[i])] = times(i == 0 ? heads.q : heads.kv, dims[i]);
    heads_[at(attention->layer)] = std::move(heads);
  }
}

ValueId ShardScope::add_value(const std::string& name, int64_t whole_width, const ColumnRanges& ranges,
                              RowDomain domain) {
  for (size_t i = 0; i < shards_.size(); ++i) {
    shards_[i].plan.values.push_back({name, ranges.empty() ? whole_width : ranges[i].end - ranges[i].begin, domain});
  }
  return static_cast<ValueId>(shards_.front().plan.values.size() - 1);
}

ValueId ShardScope::make(ValueId id, const ColumnRanges& ranges) {
  ranges_[at(id)] = ranges;
  const Value& value = whole_.values[at(id)];
  return own_[at(id)] = add_value(value.name, value.width, ranges, value.domain);
}

ValueId ShardScope::whole_of(ValueId id) {
  const ColumnRanges& ranges = ranges_[at(id)];
  if (ranges.empty()) return own_[at(id)];
  ValueId& all = gathered_[at(id)];
  if (all != kNone) return all;
  const Value& value = whole_.values[at(id)];
  all = add_value(value.name + "_gathered", value.width, {}, value.domain);
  const int32_t layer = whole_.ops[at(producer_of(id))].layer;
  for (size_t i = 0; i < shards_.size(); ++i) {
    shards_[i].plan.ops.push_back({Gather{own_[at(id)], ranges[i].begin, all}, value.name + "_gathered", layer});
    shards_[i].origins.push_back({});
  }
  return all;
}

void ShardScope::enter_one(size_t i_shard, const ColumnRanges& ranges, Record record) {
  const Op& op = whole_.ops[at(i_op_)];
  PlanShard& shard = shards_[i_shard];
  shard.plan.ops.push_back({std::move(record), op.name, op.layer});
  shard.origins.push_back(
      {i_op_, ranges.empty() ? ColumnRange{0, width(announced_value(op))} : ranges[i_shard], ranges.empty()});
}

WeightId ShardScope::whole_weight(WeightId id) {
  if (id != kNone && weights_[at(id)] == kNone) {
    for (PlanShard& shard : shards_) shard.plan.weights.push_back(whole_.weights[at(id)]);
    weights_[at(id)] = static_cast<WeightId>(shards_.front().plan.weights.size() - 1);
  }
  return id == kNone ? kNone : weights_[at(id)];
}

WeightId ShardScope::weight_rows(WeightId id, const ColumnRanges& ranges) { return weight_part(id, ranges, false); }

WeightId ShardScope::weight_elements(WeightId id, const ColumnRanges& ranges) {
  if (id != kNone && tensor::traits(whole_.weights[at(id)].view.dtype).block_elements != 1) {
    throw Error(Errc::unsupported,
                whole_.weights[at(id)].name + ": a vector in blocks cannot be divided among devices");
  }
  return weight_part(id, ranges, true);
}

WeightId ShardScope::weight_part(WeightId id, const ColumnRanges& ranges, bool is_vector) {
  if (id == kNone || ranges.empty()) return whole_weight(id);
  const Weight& weight = whole_.weights[at(id)];
  for (size_t i = 0; i < shards_.size(); ++i) {
    Weight part = weight;
    const auto [begin, end] = ranges[i];
    const tensor::DTypeTraits& t = tensor::traits(weight.view.dtype);
    const int64_t row_bytes = is_vector ? t.block_bytes : weight.view.row_bytes();
    part.view.data = weight.view.data.subspan(at(begin * row_bytes), at((end - begin) * row_bytes));
    part.view.shape = {};
    part.view.shape.rank = 2;
    part.view.shape.dims = {is_vector ? 1 : end - begin, is_vector ? end - begin : weight.view.shape.cols(), 1, 1};
    shards_[i].plan.weights.push_back(std::move(part));
  }
  return static_cast<WeightId>(shards_.front().plan.weights.size() - 1);
}

bool ShardScope::divides_chunks(WeightId id, ValueId x, bool has_bias) const {
  const tensor::TensorView& w = whole_.weights[at(id)].view;
  const int64_t block = tensor::traits(w.dtype).block_elements, share = w.shape.cols() / n_;
  if (n_ > kColumnShardsMax || (n_ & (n_ - 1)) != 0 || block == 1 || has_bias) return false;
  if (w.shape.rows() % n_ != 0 || w.shape.cols() % (block * n_) != 0) return false;
  const ColumnRanges& of_x = ranges(x);
  for (size_t i = 0; i < of_x.size(); ++i) {
    if (of_x[i].begin != static_cast<int64_t>(i) * share || of_x[i].end != of_x[i].begin + share) return false;
  }
  return !of_x.empty();
}

WeightId ShardScope::weight_columns(WeightId w, ValueId x, bool has_bias) {
  if (!divides_chunks(w, x, has_bias)) return kNone;
  const Weight& weight = whole_.weights[at(w)];
  const int64_t stride = weight.view.row_bytes(), share = stride / n_, n_rows = weight.view.shape.rows();
  for (size_t i = 0; i < shards_.size(); ++i) {
    Weight part = weight;
    part.stride = stride;
    part.view.data = weight.view.data.subspan(i * at(share), at((n_rows - 1) * stride + share));
    part.view.shape = {};
    part.view.shape.rank = 2;
    part.view.shape.dims = {n_rows, weight.view.shape.cols() / n_, 1, 1};
    shards_[i].plan.weights.push_back(std::move(part));
  }
  return static_cast<WeightId>(shards_.front().plan.weights.size() - 1);
}

void ShardScope::set_kv_heads(int32_t layer) {
  const HeadRanges& heads = heads_[at(layer)];
  for (size_t i = 0; i < shards_.size(); ++i) {
    const ColumnRange kv = heads.kv.empty() ? ColumnRange{0, whole_.cache_layers[at(layer)].n_kv_heads} : heads.kv[i];
    shards_[i].kv_heads[at(layer)] = kv;
    shards_[i].plan.cache_layers[at(layer)].n_kv_heads = kv.end - kv.begin;
  }
}

std::vector<PlanShard> shard_plan(const Plan& whole, int n_shards) {
  if (n_shards < 2 || n_shards > kShardsMax) {
    throw Error(Errc::bad_request, "a model is divided among 2 to " + std::to_string(kShardsMax) +
                                       " devices (--split-mode tensor), not " + std::to_string(n_shards));
  }
  return ShardScope(whole, n_shards).run();
}

}  // namespace assay::ops
