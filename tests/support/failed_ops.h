// For tests of the fault dictionary: a plan run by the oracle with every value kept, and any of its
// ops as one that failed, whose output a test then spoils. Bounds are a few f32 roundings of a
// row's size.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "backend/oracle/oracle_executor.h"
#include "base/thread_pool.h"
#include "bounds/op_checker.h"
#include "ops/attention/attention.h"
#include "ops/attention/kv_store.h"
#include "ops/plan/executor.h"
#include "ops/plan/op_values.h"

namespace assay::test {

struct Fed {  // a batch
  std::vector<int32_t> tokens, positions, sequences;
};

// n tokens of sequence 0 from a position on.
inline Fed fed_from(int32_t position, int32_t n, int32_t sequence = 0) {
  Fed batch;
  for (int32_t i = 0; i < n; ++i) {
    batch.tokens.push_back((7 * (position + i) + 11 * sequence + 3) % 61);
    batch.positions.push_back(position + i);
    batch.sequences.push_back(sequence);
  }
  return batch;
}

inline Fed operator+(Fed a, const Fed& b) {
  a.tokens.insert(a.tokens.end(), b.tokens.begin(), b.tokens.end());
  a.positions.insert(a.positions.end(), b.positions.begin(), b.positions.end());
  a.sequences.insert(a.sequences.end(), b.sequences.begin(), b.sequences.end());
  return a;
}

class RecordedRun final : public ops::OpObserver {
 public:
  RecordedRun(const ops::Plan& plan, std::vector<Fed> batches, base::ThreadPool& pool)
      : plan_(plan), batches_(std::move(batches)) {
    ops::ExecutorOptions options;
    for (const Fed& batch : batches_) {
      for (const int32_t p : batch.positions) options.n_ctx = std::max<int64_t>(options.n_ctx, p + 1);
      for (const int32_t s : batch.sequences) options.n_sequences = std::max(options.n_sequences, s + 1);
    }
    const auto executor = backend::oracle::make_oracle_executor(plan, options, pool);
    for (const Fed& batch : batches_) {
      const std::vector<uint8_t> outputs(batch.tokens.size(), 1);
      values_.emplace_back(plan.values.size());
      executor->run({batch.tokens, batch.positions, batch.sequences, outputs, {.observer = this}});
    }
  }

  bool wants(const ops::Op&) override { return true; }
  void on_op(const ops::Op& op, int64_t, int64_t, std::span<const double> values) override {
    const ops::ValueId id = ops::values_of(op).output;
    if (id != ops::kNone) values_.back()[static_cast<size_t>(id)].assign(values.begin(), values.end());
  }

  const std::vector<double>& value(ops::ValueId id, size_t i_batch) const {
    return values_[i_batch][static_cast<size_t>(id)];
  }

  // found is the right output.
  bounds::FailedOp op(std::string_view name, int32_t layer, size_t i_batch = 0) const {
    const auto at = std::find_if(plan_.ops.begin(), plan_.ops.end(),
                                 [&](const ops::Op& o) { return o.name == name && o.layer == layer; });
    if (at == plan_.ops.end()) throw std::logic_error("no op " + std::string(name));
    const ops::OpValues values = ops::values_of(*at);
    bounds::FailedOp f;
    f.i_op = static_cast<int32_t>(at - plan_.ops.begin());
    f.i_batch = static_cast<int64_t>(i_batch);
    const Fed& batch = batches_[i_batch];
    f.tokens = batch.tokens, f.positions = batch.positions, f.sequences = batch.sequences;
    f.n_rows = static_cast<int64_t>(batch.tokens.size());
    const auto width = [&](size_t i) { return plan_.values[static_cast<size_t>(values.inputs[i])].width; };
    if (!values.inputs.empty()) f.a = value(values.inputs[0], i_batch), f.a_width = width(0);
    if (values.inputs.size() > 1) f.b = value(values.inputs[1], i_batch), f.b_width = width(1);
    f.width = plan_.values[static_cast<size_t>(values.output)].width;
    f.found = f.expected.y = value(values.output, i_batch);
    f.expected.bound = bounds(f);
    if (at->is<ops::Attention>()) f.history = history(layer, i_batch);
    for (size_t i = 0; i <= i_batch; ++i) {
      auto& starts = f.batch_starts.emplace_back();
      for (size_t t = 0; t < batches_[i].tokens.size(); ++t)
        starts.try_emplace(batches_[i].sequences[t], batches_[i].positions[t]);
    }
    return f;
  }

 private:
  static std::vector<double> bounds(const bounds::FailedOp& f) {
    std::vector<double> bound;
    for (int64_t t = 0; t < f.n_rows; ++t) {
      double squares = 0;
      for (int64_t j = 0; j < f.width; ++j) squares += std::pow(f.found[static_cast<size_t>(t * f.width + j)], 2);
      const double rms = std::sqrt(squares / static_cast<double>(f.width));
      for (int64_t j = 0; j < f.width; ++j)
        bound.push_back(1e-6 * (rms + std::abs(f.found[static_cast<size_t>(t * f.width + j)])));
    }
    return bound;
  }

  std::map<int, bounds::KvHistory> history(int32_t layer, size_t i_batch) const {
    std::map<int, bounds::KvHistory> all;
    for (const ops::Op& o : plan_.ops) {
      const auto* store = o.as<ops::KvStore>();
      if (store == nullptr || o.layer != layer) continue;
      const auto width = static_cast<size_t>(plan_.values[static_cast<size_t>(store->k)].width);
      for (size_t i = 0; i <= i_batch; ++i) {
        for (size_t t = 0; t < batches_[i].tokens.size(); ++t) {
          bounds::KvHistory& h = all[batches_[i].sequences[t]];
          h.width = static_cast<int64_t>(width);
          const auto append = [&](std::vector<double>& to, ops::ValueId id) {
            const double* row = value(id, i).data() + t * width;
            to.insert(to.end(), row, row + width);
          };
          append(h.k, store->k);
          append(h.v, store->v);
        }
      }
    }
    return all;
  }

  const ops::Plan& plan_;
  std::vector<Fed> batches_;
  std::vector<std::vector<std::vector<double>>> values_;  // by batch and value
};

// A source that computes in f32 on decoded weights and keeps an f32 cache.
inline bounds::Declared plain_f32() {
  bounds::Declared declared;
  declared.cache_k = declared.cache_v = ops::CacheType::f32;
  return declared;
}

}  // namespace assay::test
