// See plan_shards.h.
#include "ops/plan_shards.h"

#include <string>
#include <utility>
#include <variant>

#include "assay/error.h"
#include "ops/op_values.h"

namespace assay::ops {
namespace {

using Ranges = std::vector<ColumnRange>;  // per shard; none: every shard has all columns

size_t at(int64_t i) { return static_cast<size_t>(i); }

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

// Which heads each shard has.
struct HeadRanges {
  Ranges q, kv;  // none: all of them
};
HeadRanges head_ranges(int64_t n_heads, int64_t n_kv_heads, int n_shards) {
  HeadRanges heads;
  const int64_t group = n_heads / n_kv_heads;
  if (n_kv_heads >= n_shards) {
    for (int64_t i = 0; i < n_shards; ++i) {
      const ColumnRange kv{i * n_kv_heads / n_shards, (i + 1) * n_kv_heads / n_shards};
      heads.kv.push_back(kv);
      heads.q.push_back({kv.begin * group, kv.end * group});
    }
  } else if (const int64_t sharers = n_shards / n_kv_heads; n_shards % n_kv_heads == 0 && sharers <= group) {  // of a KV head
    for (int64_t i = 0; i < n_shards; ++i) {
      const int64_t kv = i / sharers, part = i % sharers;
      heads.kv.push_back({kv, kv + 1});
      heads.q.push_back({kv * group + part * group / sharers, kv * group + (part + 1) * group / sharers});
    }
  }
  return heads;
}

Ranges times(Ranges ranges, int64_t factor) {
  for (ColumnRange& range : ranges) range = {range.begin * factor, range.end * factor};
  return ranges;
}

class Sharder {
 public:
  Sharder(const Plan& whole, int n_shards)
      : whole_(whole),
        n_(n_shards),
        shards_(at(n_shards)),
        ranges_(whole.values.size()),
        own_(whole.values.size(), kNone),
        gathered_(whole.values.size(), kNone),
        weights_(whole.weights.size(), kNone),
        rows_of_(whole.ops.size()),
        heads_(whole.cache_layers.size()) {
    for (PlanShard& shard : shards_) {
      shard.plan.ropes = whole.ropes;
      shard.plan.vocab_size = whole.vocab_size;
      shard.plan.d_model = whole.d_model;
      shard.plan.n_ctx_train = whole.n_ctx_train;
      shard.plan.cache_layers = whole.cache_layers;
      shard.kv_heads.resize(whole.cache_layers.size());
    }
  }

  std::vector<PlanShard> run() {
    find_rows();
    for (const Op& op : whole_.ops) {
      std::visit([this](const auto& r) { take(r); }, op.record);
      ++i_op_;
    }
    const ValueId logits = whole_of(whole_.logits);
    for (PlanShard& shard : shards_) shard.plan.logits = logits;
    return std::move(shards_);
  }

 private:
  template <class Record>
  const Record* record(int32_t i_op) const {
    return i_op == kNone ? nullptr : std::get_if<Record>(&whole_.ops[at(i_op)].record);
  }
  int64_t width(ValueId id) const { return whole_.values[at(id)].width; }
  int32_t producer_of(ValueId id) const {
    for (size_t i = 0; i < whole_.ops.size(); ++i) {
      if (values_of(whole_.ops[i]).output == id) return static_cast<int32_t>(i);
    }
    return kNone;
  }

  // The product behind a value of heads: through rotation and norms of heads alone.
  int32_t product_of(ValueId id, int64_t head_dim) const {
    const int32_t from = producer_of(id);
    if (const auto* r = record<Rope>(from)) return product_of(r->x, head_dim);
    if (const auto* r = record<RmsNorm>(from); r != nullptr && r->d == head_dim) return product_of(r->x, head_dim);
    return record<Linear>(from) != nullptr ? from : kNone;
  }

  // What the shards have of a value whose runs of d elements belong together; nothing where a run is torn.
  Ranges runs_of(ValueId id, int64_t d) const {
    for (const ColumnRange& range : ranges_[at(id)]) {
      if (range.begin % d != 0 || range.end % d != 0) return {};
    }
    return ranges_[at(id)];
  }

  // Which rows of its matrix each shard has of every product: heads decide about theirs.
  void find_rows() {
    for (size_t i = 0; i < whole_.ops.size(); ++i) {
      if (const auto* r = record<Linear>(static_cast<int32_t>(i))) rows_of_[i] = even_ranges(width(r->y), n_);
    }
    for (const Op& op : whole_.ops) {
      const auto* attention = std::get_if<Attention>(&op.record);
      if (attention == nullptr) continue;
      HeadRanges heads = head_ranges(attention->n_heads, attention->n_kv_heads, n_);
      std::vector<int32_t> products = {product_of(attention->q, attention->head_dim)};
      for (const Op& other : whole_.ops) {
        const auto* store = std::get_if<KvStore>(&other.record);
        if (store == nullptr || store->layer != attention->layer) continue;
        for (const ValueId id : {store->k, store->v}) products.push_back(product_of(id, attention->head_dim));
      }
      const bool found = products.size() == 3 && products[0] != kNone && products[1] != kNone && products[2] != kNone;
      if (!found) heads = {};
      for (size_t i = 0; found && i < 3; ++i) rows_of_[at(products[i])] = times(i == 0 ? heads.q : heads.kv, attention->head_dim);
      heads_[at(attention->layer)] = std::move(heads);
    }
  }

  ValueId add_value(const std::string& name, int64_t whole_width, const Ranges& ranges, bool outputs_only) {
    for (size_t i = 0; i < shards_.size(); ++i) {
      shards_[i].plan.values.push_back({name, ranges.empty() ? whole_width : ranges[i].end - ranges[i].begin, outputs_only});
    }
    return static_cast<ValueId>(shards_.front().plan.values.size() - 1);
  }
  // The output of the running op.
  ValueId make(ValueId id, const Ranges& ranges) {
    ranges_[at(id)] = ranges;
    const Value& value = whole_.values[at(id)];
    return own_[at(id)] = add_value(value.name, value.width, ranges, value.outputs_only);
  }
  // All columns of a value, gathered where they are not here.
  ValueId whole_of(ValueId id) {
    const Ranges& ranges = ranges_[at(id)];
    if (ranges.empty()) return own_[at(id)];
    ValueId& all = gathered_[at(id)];
    if (all != kNone) return all;
    const Value& value = whole_.values[at(id)];
    all = add_value(value.name + "_gathered", value.width, {}, value.outputs_only);
    const int32_t layer = whole_.ops[at(producer_of(id))].layer;
    for (size_t i = 0; i < shards_.size(); ++i) {
      shards_[i].plan.ops.push_back({Gather{own_[at(id)], ranges[i].begin, all}, value.name + "_gathered", layer});
      shards_[i].origins.push_back({});
    }
    return all;
  }
  ValueId own_or_whole(ValueId id, const Ranges& ranges) { return ranges.empty() ? whole_of(id) : own_[at(id)]; }
  // Enters the running op into every shard; ranges: of the value that it announces.
  template <class Make>
  void enter(const Ranges& ranges, Make&& make_record) {
    const Op& op = whole_.ops[at(i_op_)];
    for (size_t i = 0; i < shards_.size(); ++i) {
      shards_[i].plan.ops.push_back({make_record(i), op.name, op.layer});
      shards_[i].origins.push_back({i_op_, ranges.empty() ? ColumnRange{0, width(announced_value(op))} : ranges[i], ranges.empty()});
    }
  }

  WeightId whole_weight(WeightId id) {
    if (id != kNone && weights_[at(id)] == kNone) {
      for (PlanShard& shard : shards_) shard.plan.weights.push_back(whole_.weights[at(id)]);
      weights_[at(id)] = static_cast<WeightId>(shards_.front().plan.weights.size() - 1);
    }
    return id == kNone ? kNone : weights_[at(id)];
  }
  // Rows of a matrix, elements of a vector.
  WeightId weight_rows(WeightId id, const Ranges& ranges, bool is_vector) {
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
  // Whether the shards' columns of x are the contract's chunks of equally many blocks, and their rows of y as many.
  bool divides_chunks(const Linear& r) const {
    const tensor::TensorView& w = whole_.weights[at(r.w)].view;
    const int64_t block = tensor::traits(w.dtype).block_elements, share = w.shape.cols() / n_;
    if (n_ > kColumnShardsMax || (n_ & (n_ - 1)) != 0 || block == 1 || r.bias != kNone) return false;
    if (w.shape.rows() % n_ != 0 || w.shape.cols() % (block * n_) != 0) return false;
    const Ranges& ranges = ranges_[at(r.x)];
    for (size_t i = 0; i < ranges.size(); ++i) {
      if (ranges[i].begin != static_cast<int64_t>(i) * share || ranges[i].end != ranges[i].begin + share) return false;
    }
    return !ranges.empty();
  }
  WeightId weight_columns(const Linear& r) {
    if (!divides_chunks(r)) return kNone;
    const Weight& weight = whole_.weights[at(r.w)];
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

  void take(const Embed& r) {
    const WeightId table = whole_weight(r.table);
    const ValueId y = make(r.y, {});
    enter({}, [&](size_t) { return Embed{table, r.scale, y}; });
  }
  void take(const RmsNorm& r) {
    const Ranges ranges = runs_of(r.x, r.d);
    const ValueId x = own_or_whole(r.x, ranges);
    const WeightId w = whole_weight(r.w);
    const ValueId y = make(r.y, ranges);
    enter(ranges, [&](size_t) { return RmsNorm{x, w, r.eps, r.d, y}; });
  }
  void take(const Linear& r) {
    const Ranges& ranges = rows_of_[at(i_op_)];
    if (r.bias != kNone && tensor::traits(whole_.weights[at(r.bias)].view.dtype).block_elements != 1) {
      throw Error(Errc::unsupported, whole_.weights[at(r.bias)].name + ": a bias in blocks cannot be divided among devices");
    }
    const ValueId x = whole_of(r.x);
    const WeightId w = weight_rows(r.w, ranges, false), bias = weight_rows(r.bias, ranges, true);
    const WeightId columns = ranges.empty() ? kNone : weight_columns(r);
    const ValueId y = make(r.y, ranges);
    enter(ranges, [&](size_t) { return Linear{x, w, bias, y, columns}; });
  }
  void take(const Rope& r) {
    const Ranges ranges = runs_of(r.x, r.head_dim);
    const ValueId x = own_or_whole(r.x, ranges), y = make(r.y, ranges);
    enter(ranges, [&](size_t i) {
      const int64_t n_heads = ranges.empty() ? r.n_heads : (ranges[i].end - ranges[i].begin) / r.head_dim;
      return Rope{x, r.rope, n_heads, r.head_dim, y};
    });
  }
  void take(const KvStore& r) {
    const HeadRanges& heads = heads_[at(r.layer)];
    CacheLayer layer = whole_.cache_layers[at(r.layer)];
    for (size_t i = 0; i < shards_.size(); ++i) {
      const ColumnRange kv = heads.kv.empty() ? ColumnRange{0, layer.n_kv_heads} : heads.kv[i];
      shards_[i].kv_heads[at(r.layer)] = kv;
      shards_[i].plan.cache_layers[at(r.layer)].n_kv_heads = kv.end - kv.begin;
    }
    const ValueId k = own_or_whole(r.k, heads.kv), v = own_or_whole(r.v, heads.kv);
    enter(times(heads.kv, layer.head_dim), [&](size_t) { return KvStore{k, v, r.layer}; });
  }
  void take(const Attention& r) {
    const HeadRanges& heads = heads_[at(r.layer)];
    const Ranges ranges = times(heads.q, r.head_dim);
    const ValueId q = own_or_whole(r.q, ranges), y = make(r.y, ranges);
    enter(ranges, [&](size_t i) {
      Attention part = r;
      part.q = q, part.y = y;
      if (!ranges.empty()) part.n_heads = heads.q[i].end - heads.q[i].begin, part.n_kv_heads = heads.kv[i].end - heads.kv[i].begin;
      return part;
    });
  }
  void take(const Add& r) {
    const ValueId a = whole_of(r.a), b = whole_of(r.b), y = make(r.y, {});
    enter({}, [&](size_t) { return Add{a, b, y}; });
  }
  void take(const Gate& r) {
    const bool alike = !ranges_[at(r.gate)].empty() && !ranges_[at(r.up)].empty();  // of one width, so cut alike
    const Ranges ranges = alike ? ranges_[at(r.gate)] : Ranges{};
    const ValueId gate = alike ? own_[at(r.gate)] : whole_of(r.gate), up = alike ? own_[at(r.up)] : whole_of(r.up), y = make(r.y, ranges);
    enter(ranges, [&](size_t) { return Gate{gate, up, r.activation, y}; });
  }
  void take(const SelectOutputs& r) {
    const Ranges ranges = ranges_[at(r.x)];
    const ValueId x = own_[at(r.x)], y = make(r.y, ranges);
    enter(ranges, [&](size_t) { return SelectOutputs{x, y}; });
  }
  void take(const Gather&) { throw Error(Errc::unsupported, "a shard of a model cannot be cut into shards again"); }

  const Plan& whole_;
  const int n_;
  std::vector<PlanShard> shards_;
  int32_t i_op_ = 0;
  std::vector<Ranges> ranges_;      // per value of the whole: what the shards have of it
  std::vector<ValueId> own_;        // ... its number in the shards
  std::vector<ValueId> gathered_;   // ... and that of all its columns, where they were asked for
  std::vector<WeightId> weights_;   // per weight of the whole that the shards have whole
  std::vector<Ranges> rows_of_;     // per op of the whole, if a product
  std::vector<HeadRanges> heads_;   // per layer of the cache
};

}  // namespace

std::vector<PlanShard> shard_plan(const Plan& whole, int n_shards) {
  if (n_shards < 2 || n_shards > kShardsMax) {
    throw Error(Errc::bad_request, "a model is divided among 2 to " + std::to_string(kShardsMax) + " devices (--split-mode tensor), not " +
                                       std::to_string(n_shards));
  }
  return Sharder(whole, n_shards).run();
}

}  // namespace assay::ops
