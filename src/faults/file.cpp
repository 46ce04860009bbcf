// Faults of a file itself: an engine that runs such a file rightly still writes nonsense, and every
// op is within its bound. So the model as a whole is changed, one suspicion at a time, and the
// change that makes a plain text much more likely points at the fault.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "assay/score.h"
#include "backend/oracle/oracle_executor.h"
#include "backend/oracle/oracle_ops.h"
#include "faults/dictionary.h"
#include "faults/permute.h"
#include "num/math64.h"
#include "ops/attention/attention.h"
#include "ops/attention/kv_store.h"
#include "ops/attention/rope.h"
#include "ops/embed/embed.h"
#include "ops/linear/linear.h"
#include "ops/plan/float64.h"
#include "ops/plan/op_values.h"
#include "ops/rows/activation.h"
#include "ops/rows/gate.h"
#include "ops/rows/rms_norm.h"

namespace assay::faults {
namespace {

constexpr size_t kTokensMax = 48;
constexpr double kNatsLess = 1.0, kShareLess = 0.2;  // a suspicion lowers the mean by both,
constexpr double kOfGuessing = 0.75;                 // to less than this share of what guessing among all tokens costs,
constexpr size_t kCopiedBytesMax = size_t{2} << 30;
constexpr double kOfBest = 0.5;  // and by at least this share of what the best one gains

// A plan with weights of its own beside the file's. Must outlive the runs of its plan.
struct ChangedPlan {
  explicit ChangedPlan(const ops::Plan& original) : plan(original) {}
  ChangedPlan(const ChangedPlan&) = delete;
  ChangedPlan& operator=(const ChangedPlan&) = delete;

  // row: index of a row -> index of the file's row that stands there
  ops::WeightId with_rows(ops::WeightId id, const std::function<int64_t(int64_t)>& row) {
    ops::Weight weight = plan.weights[static_cast<size_t>(id)];
    const tensor::TensorView view = weight.view;
    const auto bytes = static_cast<size_t>(view.row_bytes());
    auto& owned = memory.emplace_back(std::make_unique<std::vector<std::byte>>(view.data.size()));
    for (int64_t r = 0; r < view.shape.rows(); ++r) {
      std::memcpy(owned->data() + static_cast<size_t>(r) * bytes, view.row(row(r)), bytes);
    }
    weight.view.data = *owned;
    return enter(weight);
  }
  // The blocks of a quantised matrix, one by one.
  ops::WeightId with_blocks(ops::WeightId id, void (*change)(std::byte* block)) {
    ops::Weight weight = plan.weights[static_cast<size_t>(id)];
    const std::span<const std::byte> old = weight.view.data;
    auto& owned = memory.emplace_back(std::make_unique<std::vector<std::byte>>(old.begin(), old.end()));
    const auto block = static_cast<size_t>(tensor::traits(weight.view.dtype).block_bytes);
    for (size_t at = 0; at < owned->size(); at += block) change(owned->data() + at);
    weight.view.data = *owned;
    return enter(weight);
  }
  // A vector of the file, which are f32: norm weights and biases.
  ops::WeightId with_values(ops::WeightId id, const std::function<double(const std::vector<double>&, size_t)>& value) {
    ops::Weight weight = plan.weights[static_cast<size_t>(id)];
    const std::vector<double> old = ops::vector_of(weight);
    auto& owned = memory.emplace_back(std::make_unique<std::vector<std::byte>>(old.size() * sizeof(float)));
    for (size_t i = 0; i < old.size(); ++i) {
      const auto x = static_cast<float>(value(old, i));
      std::memcpy(owned->data() + i * sizeof(float), &x, sizeof(float));
    }
    weight.view.data = *owned;
    return enter(weight);
  }

  ops::Plan plan;

 private:
  ops::WeightId enter(const ops::Weight& weight) {
    plan.weights.push_back(weight);
    return static_cast<ops::WeightId>(plan.weights.size() - 1);
  }
  std::vector<std::unique_ptr<std::vector<std::byte>>> memory;
};

struct Suspicion {
  std::string id, faults, text;
  std::function<void(ChangedPlan&)> change;
};

template <class Record, class Body>
void for_each_op(ops::Plan& plan, Body&& body) {
  for (ops::Op& op : plan.ops) {
    if (auto* record = op.as<Record>()) body(op, *record);
  }
}
template <class Record>
const Record* first_op(const ops::Plan& plan) {
  for (const ops::Op& op : plan.ops) {
    if (const auto* record = op.as<Record>()) return record;
  }
  return nullptr;
}

// The product that a rotated value comes from, through a norm of its heads where there is one.
ops::Linear* product_behind(ops::Plan& plan, ops::ValueId value) {
  for (ops::Op& op : plan.ops) {
    if (ops::values_of(op).output != value) continue;
    if (auto* linear = op.as<ops::Linear>()) return linear;
    const bool passes = op.is<ops::Rope>() || op.is<ops::RmsNorm>();
    return passes ? product_behind(plan, ops::values_of(op).inputs[0]) : nullptr;
  }
  return nullptr;
}

using RowMap = std::function<int64_t(int64_t row, const ops::Attention& attention)>;

void permute(ChangedPlan& changed, ops::Linear* linear, const ops::Attention& attention, const RowMap& map) {
  if (linear == nullptr) return;
  linear->w = changed.with_rows(linear->w, [&](int64_t r) { return map(r, attention); });
  if (linear->bias == ops::kNone) return;
  linear->bias = changed.with_values(linear->bias, [&](const std::vector<double>& old, size_t r) {
    return old[static_cast<size_t>(map(static_cast<int64_t>(r), attention))];
  });
}

// The rows of all queries, of all keys, or of both (an empty map: as they are).
void permute_all(ChangedPlan& changed, const RowMap& of_queries, const RowMap& of_keys) {
  for (const ops::Op& op : std::vector<ops::Op>(changed.plan.ops)) {
    const auto* attention = op.as<ops::Attention>();
    if (attention == nullptr) continue;
    if (of_queries) permute(changed, product_behind(changed.plan, attention->q), *attention, of_queries);
    for (const ops::Op& other : std::vector<ops::Op>(changed.plan.ops)) {
      const auto* store = other.as<ops::KvStore>();
      if (!of_keys || store == nullptr || store->layer != attention->layer) continue;
      permute(changed, product_behind(changed.plan, store->k), *attention, of_keys);
    }
  }
}

RowMap per_head(bool to_neighbours) {
  return [=](int64_t r, const ops::Attention& attention) {
    return dictionary::permuted_row(r, attention.head_dim, to_neighbours);
  };
}
// Keys that were permuted as if there were as many heads as queries have, or once more with the
// right number: undone and done rightly.
RowMap keys_with_query_heads(bool to_neighbours) {
  return [=](int64_t r, const ops::Attention& a) {
    const int64_t wrong_rows = a.n_kv_heads * a.head_dim / a.n_heads;
    return dictionary::permuted_row(dictionary::permuted_row(r, a.head_dim, to_neighbours), wrong_rows, !to_neighbours);
  };
}

void suspect_permutations(const ops::Plan& plan, std::vector<Suspicion>& all) {
  const auto* attention = first_op<ops::Attention>(plan);
  const auto* rope = first_op<ops::Rope>(plan);
  if (attention == nullptr || rope == nullptr || attention->head_dim % 2 != 0) return;
  const bool neighbours = plan.ropes[static_cast<size_t>(rope->rope)].interleaved;
  const auto add = [&](std::string text, const RowMap& q, const RowMap& k) {
    all.push_back({"file_rows_permuted", "C19,C20,C21", std::move(text),
                   [=](ChangedPlan& changed) { permute_all(changed, q, k); }});
  };
  for (const bool there :
       {neighbours, !neighbours}) {  // first: the file was not permuted as this architecture's files are
    const RowMap map = per_head(there);
    const char* state = there == neighbours
                            ? "are not in the order of this architecture's files (RoPE's permutation was left out)"
                            : "are permuted for RoPE once too often";
    add(fmt::format("the rows of queries and keys {}", state), map, map);
    add(fmt::format("the rows of keys {}", state), {}, map);
    add(fmt::format("the rows of queries {}", state), map, {});
  }
  const int64_t kv_rows = attention->n_kv_heads * attention->head_dim;
  if (attention->n_heads == attention->n_kv_heads || kv_rows % attention->n_heads != 0 ||
      kv_rows / attention->n_heads % 2 != 0)
    return;
  add(fmt::format("the rows of keys are permuted for RoPE in {} heads; the file has {} key heads", attention->n_heads,
                  attention->n_kv_heads),
      {}, keys_with_query_heads(neighbours));
}

void suspect_rope(const ops::Plan& plan, std::vector<Suspicion>& all) {
  if (plan.ropes.empty()) return;
  all.push_back({"file_rope_pairing", "C21",
                 "RoPE's pairs are of the other kind (neighbours for halves, or the reverse)",
                 [](ChangedPlan& changed) {
                   for (ops::RopeSpec& rope : changed.plan.ropes) rope.interleaved = !rope.interleaved;
                 }});
  const ops::RopeSpec& first = plan.ropes[0];
  if (first.inverse_frequency.size() < 2 || !(first.inverse_frequency[1] > 0)) return;
  const double d = static_cast<double>(first.dim);
  const double theta = std::pow(first.inverse_frequency[0] / first.inverse_frequency[1], d / 2);
  for (const double other : {1e4, 1e5, 5e5, 1e6}) {
    if (std::abs(other / theta - 1) < 0.01) continue;
    all.push_back({"file_rope_theta", "R13",
                   fmt::format("RoPE's base is {:.6g}; with {:g} the text is likelier", theta, other),
                   [=](ChangedPlan& changed) {
                     for (ops::RopeSpec& rope : changed.plan.ropes) {
                       for (size_t i = 0; i < rope.inverse_frequency.size(); ++i) {
                         rope.inverse_frequency[i] =
                             num::pow64(other, -2.0 * static_cast<double>(i) / static_cast<double>(rope.dim));
                       }
                     }
                   }});
  }
}

void suspect_norms(const ops::Plan& plan, std::vector<Suspicion>& all) {
  const auto* norm = first_op<ops::RmsNorm>(plan);
  if (norm == nullptr) return;
  for (const double shift : {1.0, -1.0}) {
    all.push_back({"file_norm_weights", "",
                   shift > 0 ? "norm weights lack their 1 (the file has weight - 1)"
                             : "norm weights have a 1 too many (1 + weight was applied twice)",
                   [=](ChangedPlan& changed) {
                     for_each_op<ops::RmsNorm>(changed.plan, [&](ops::Op&, ops::RmsNorm& op) {
                       op.w = changed.with_values(
                           op.w, [=](const std::vector<double>& old, size_t i) { return old[i] + shift; });
                     });
                   }});
  }
  for (const float eps : {1e-5f, 1e-6f}) {
    if (norm->eps == eps) continue;
    all.push_back({"file_norm_eps", "C48",
                   fmt::format("the norms' eps is {:g}; with {:g} the text is likelier", static_cast<double>(norm->eps),
                               static_cast<double>(eps)),
                   [=](ChangedPlan& changed) {
                     for_each_op<ops::RmsNorm>(changed.plan, [&](ops::Op&, ops::RmsNorm& op) { op.eps = eps; });
                   }});
  }
}

// The product that writes a value; nullptr: another op does.
ops::Linear* linear_of(ops::Plan& plan, ops::ValueId value) {
  ops::Linear* found = nullptr;
  for_each_op<ops::Linear>(plan, [&](ops::Op&, ops::Linear& linear) {
    if (linear.y == value) found = &linear;
  });
  return found;
}

void swap_weights(ops::Plan& plan, ops::ValueId a, ops::ValueId b) {
  ops::Linear* x = linear_of(plan, a);
  ops::Linear* y = linear_of(plan, b);
  if (x == nullptr || y == nullptr) return;
  const auto shape = [&](const ops::Linear& linear) { return plan.weights[static_cast<size_t>(linear.w)].view.shape; };
  if (!(shape(*x) == shape(*y))) return;
  std::swap(x->w, y->w);
  std::swap(x->bias, y->bias);
}

void suspect_swaps(const ops::Plan& plan, std::vector<Suspicion>& all) {
  if (first_op<ops::Gate>(plan) != nullptr) {
    all.push_back({"file_gate_up_swapped", "R16", "the tensors of gate and up are swapped", [](ChangedPlan& changed) {
                     for_each_op<ops::Gate>(changed.plan,
                                            [&](ops::Op&, ops::Gate& gate) { std::swap(gate.gate, gate.up); });
                   }});
    all.push_back(
        {"file_activation", "R15", "the feed-forward activation is the other one (GELU for SiLU, or the reverse)",
         [](ChangedPlan& changed) {
           for_each_op<ops::Gate>(changed.plan, [](ops::Op&, ops::Gate& gate) {
             gate.activation = gate.activation == ops::ActivationFunction::silu ? ops::ActivationFunction::gelu_tanh
                                                                                : ops::ActivationFunction::silu;
           });
         }});
  }
  all.push_back({"file_k_v_swapped", "", "the tensors of keys and values are swapped", [](ChangedPlan& changed) {
                   ops::Plan& p = changed.plan;
                   for_each_op<ops::KvStore>(p, [&](ops::Op&, ops::KvStore& store) {
                     const ops::Linear* k = product_behind(p, store.k);
                     if (k != nullptr && store.v != ops::kNone) swap_weights(p, k->y, store.v);
                   });
                 }});
  all.push_back({"file_norms_swapped", "", "the norms before attention and before the feed-forward layer are swapped",
                 [](ChangedPlan& changed) {
                   std::vector<ops::RmsNorm*> found;
                   for_each_op<ops::RmsNorm>(changed.plan, [&](ops::Op& op, ops::RmsNorm& norm) {
                     const bool attention = op.name.ends_with("attn_norm"), ffn = op.name.ends_with("ffn_norm");
                     if (attention || ffn) found.push_back(&norm);
                   });
                   for (size_t i = 0; i + 1 < found.size(); i += 2) std::swap(found[i]->w, found[i + 1]->w);
                 }});
}

void suspect_ends(const ops::Plan& plan, std::vector<Suspicion>& all) {
  const auto* embed = first_op<ops::Embed>(plan);
  if (embed == nullptr) return;
  const double root = std::sqrt(static_cast<double>(plan.d_model));
  const double other = embed->scale == 1.0 ? root : 1.0;
  all.push_back({"file_embedding_scale", "",
                 fmt::format("embeddings are scaled by {:.6g}; with {:.6g} the text is likelier", embed->scale, other),
                 [=](ChangedPlan& changed) {
                   for_each_op<ops::Embed>(changed.plan, [=](ops::Op&, ops::Embed& op) { op.scale = other; });
                 }});
  ops::Plan copy = plan;
  const ops::Linear* head = linear_of(copy, plan.logits);
  if (head == nullptr || head->w == embed->table) return;
  all.push_back({"file_head_not_tied", "C22,C23",
                 "the output head of the file is not the model's; with the embeddings in its place "
                 "(tied) the text is likelier",
                 [=, table = embed->table](ChangedPlan& changed) {
                   if (ops::Linear* linear = linear_of(changed.plan, changed.plan.logits)) linear->w = table;
                 }});
}

void suspect_attention(const ops::Plan& plan, std::vector<Suspicion>& all) {
  const auto* attention = first_op<ops::Attention>(plan);
  if (attention == nullptr) return;
  const bool windows = std::any_of(plan.cache_layers.begin(), plan.cache_layers.end(),
                                   [](const ops::CacheLayer& layer) { return layer.window > 0; });
  if (windows) {
    all.push_back(
        {"file_window", "C50", "a window is applied that the model was not made with", [](ChangedPlan& changed) {
           for_each_op<ops::Attention>(changed.plan, [](ops::Op&, ops::Attention& op) { op.window = 0; });
           for (ops::CacheLayer& layer : changed.plan.cache_layers) layer.window = 0;
         }});
  }
  const double scale = 1 / std::sqrt(static_cast<double>(attention->head_dim));
  if (std::abs(attention->scale / scale - 1) < 1e-9) return;
  all.push_back({"file_attention_scale", "C53",
                 fmt::format("scores are scaled by {:.6g}; with 1 / sqrt(head_dim) = {:.6g} the text is likelier",
                             attention->scale, scale),
                 [=](ChangedPlan& changed) {
                   for_each_op<ops::Attention>(changed.plan, [=](ops::Op&, ops::Attention& op) { op.scale = scale; });
                 }});
}

// 16 bytes of nibbles that were written as neighbours (2i, 2i + 1), put where the format has them:
// (i, i + 16).
void part_neighbours(std::byte* nibbles) {
  std::byte parted[16];
  const auto element = [&](int j) { return (j % 2 == 0 ? nibbles[j / 2] : nibbles[j / 2] >> 4) & std::byte{15}; };
  for (int j = 0; j < 16; ++j) parted[j] = element(j) | element(j + 16) << 4;
  std::memcpy(nibbles, parted, sizeof(parted));
}

void suspect_nibbles(const ops::Plan& plan, std::vector<Suspicion>& all) {
  using tensor::DType;
  const struct {
    DType dtype;
    void (*change)(std::byte* block);
  } formats[] = {{DType::Q4_0, [](std::byte* block) { part_neighbours(block + 2); }},
                 {DType::Q4_1, [](std::byte* block) { part_neighbours(block + 4); }}};
  for (const auto& [dtype, change] : formats) {
    size_t bytes = 0;  // that the changed plan holds beside the file
    for (const ops::Weight& weight : plan.weights) {
      if (weight.view.dtype == dtype) bytes += weight.view.data.size();
    }
    if (bytes == 0 || bytes > kCopiedBytesMax) continue;
    all.push_back({"file_nibbles", "R4",
                   fmt::format("the nibbles of its {} blocks lie low, high, low, high; the format "
                               "has all low ones first",
                               tensor::traits(dtype).name),
                   [dtype = dtype, change = change](ChangedPlan& changed) {
                     const auto is_of = [&](ops::WeightId id) {
                       return changed.plan.weights[static_cast<size_t>(id)].view.dtype == dtype;
                     };
                     for_each_op<ops::Linear>(changed.plan, [&](ops::Op&, ops::Linear& op) {
                       if (is_of(op.w)) op.w = changed.with_blocks(op.w, change);
                     });
                     for_each_op<ops::Embed>(changed.plan, [&](ops::Op&, ops::Embed& op) {
                       if (is_of(op.table)) op.table = changed.with_blocks(op.table, change);
                     });
                   }});
  }
}

// Mean over the tokens but the first of -log p(token | those before it).
double mean_nll(const ops::Plan& plan, std::span<const int32_t> ids, base::ThreadPool& pool) {
  const auto n = static_cast<int64_t>(ids.size());
  ops::ExecutorOptions options;
  options.n_ctx = options.n_batch_max = options.n_outputs_max = n;
  const auto executor = backend::oracle::make_oracle_executor(plan, options, pool);
  std::vector<int32_t> positions;
  for (int32_t i = 0; i < static_cast<int32_t>(n); ++i) positions.push_back(i);
  const std::vector<int32_t> sequences(ids.size(), 0);
  const std::vector<uint8_t> outputs(ids.size(), 1);
  executor->run({ids, positions, sequences, outputs});
  std::vector<double> logits(static_cast<size_t>(plan.vocab_size));
  double sum = 0;
  for (int64_t i = 0; i + 1 < n; ++i) {
    executor->read_logits(i, logits);
    sum += log_sum_exp(logits) - logits[static_cast<size_t>(ids[static_cast<size_t>(i + 1)])];
  }
  const double mean = sum / static_cast<double>(n - 1);
  return std::isfinite(mean) ? mean : std::numeric_limits<double>::infinity();
}

}  // namespace

std::vector<Cause> suspect_file(const ops::Plan& plan, std::span<const int32_t> ids, base::ThreadPool& pool) {
  const std::span<const int32_t> text = ids.first(std::min(ids.size(), kTokensMax));
  if (text.size() < 2) return {};
  std::vector<Suspicion> suspicions;
  suspect_permutations(plan, suspicions);
  suspect_rope(plan, suspicions);
  suspect_nibbles(plan, suspicions);
  suspect_swaps(plan, suspicions);
  suspect_norms(plan, suspicions);
  suspect_ends(plan, suspicions);
  suspect_attention(plan, suspicions);

  const double as_it_is = mean_nll(plan, text, pool);
  double best = as_it_is;
  std::vector<Cause> causes;
  for (const Suspicion& suspicion : suspicions) {
    ChangedPlan changed(plan);
    suspicion.change(changed);
    const double nll = mean_nll(changed.plan, text, pool);
    if (!(as_it_is - nll > kNatsLess) || !(nll < (1 - kShareLess) * as_it_is)) continue;
    if (!(nll < kOfGuessing * std::log(static_cast<double>(plan.vocab_size)))) continue;
    best = std::min(best, nll);
    causes.push_back({suspicion.id,
                      fmt::format("suspected of the file: {} ({:.2f} nats a token with that undone, {:.2f} as it is)",
                                  suspicion.text, nll, as_it_is),
                      suspicion.faults, false, std::isfinite(as_it_is) ? nll / as_it_is : 0.0});
  }
  const double least = std::isfinite(as_it_is) ? (as_it_is - kOfBest * (as_it_is - best)) / as_it_is : 0.0;
  std::erase_if(causes, [least](const Cause& cause) { return cause.residual > least; });
  std::stable_sort(causes.begin(), causes.end(),
                   [](const Cause& x, const Cause& y) { return x.residual < y.residual * (1 - 1e-9); });
  return causes;
}

}  // namespace assay::faults
