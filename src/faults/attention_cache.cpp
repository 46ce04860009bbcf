// Known ways to keep, find and meet keys and values wrongly.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <tuple>
#include <utility>

#include "backend/oracle/oracle_ops.h"
#include "faults/attention.h"
#include "ops/attention/attention.h"
#include "ops/attention/kv_store.h"
#include "ops/attention/rope.h"
#include "ops/plan/float64.h"

namespace assay::faults::dictionary {
namespace {

const ops::Attention& op_of(const Case& c) { return c.record<ops::Attention>(); }

void offer_cache(const Case& c, Sink& out, std::string text, const Change& change) {
  AttentionRule rule = right_attention(c);
  rule.cache = changed_cache(rule.cache, change);
  out.add_rows(std::move(text), attention_with(c, std::move(rule)));
}

const char* type_name(ops::CacheType type) {
  return type == ops::CacheType::f32 ? "f32" : type == ops::CacheType::f16 ? "f16" : "q8_0";
}

void offer_type(const Case& c, Sink& out) {
  using ops::CacheType;
  for (const CacheType type : {CacheType::q8_0, CacheType::f16, CacheType::f32}) {
    const bool k_differs = type != c.declared.cache_k, v_differs = type != c.declared.cache_v;
    const struct {
      bool differs;
      const char* what;
      CacheType k, v;
    } changes[] = {
        {k_differs && v_differs, "keys and values are", type, type},
        {k_differs, "keys are", type, c.declared.cache_v},
        {v_differs, "values are", c.declared.cache_k, type},
    };
    for (const auto& change : changes) {
      if (!change.differs) continue;
      AttentionRule rule = right_attention(c);
      rule.cache = cache_as(c, change.k, change.v);
      out.add_rows(fmt::format("{} kept as {}; declared: {} and {}", change.what, type_name(type),
                               type_name(c.declared.cache_k), type_name(c.declared.cache_v)),
                   attention_with(c, std::move(rule)));
    }
  }
  offer_cache(c, out, "keys and values are kept as bf16", [](int, KeyValues& kv) {
    std::transform(kv.k.begin(), kv.k.end(), kv.k.begin(), as_bf16);
    std::transform(kv.v.begin(), kv.v.end(), kv.v.begin(), as_bf16);
  });
}

// Blocks of q8_0 written with one scale and read with another: amax / write, amax / read.
void rescale_q8_0(std::vector<double>& values, float write, float read) {
  for (size_t i = 0; i + 32 <= values.size(); i += 32) {
    float largest = 0;
    for (size_t j = i; j < i + 32; ++j) largest = std::max(largest, std::abs(static_cast<float>(values[j])));
    if (largest == 0) continue;
    for (size_t j = i; j < i + 32; ++j) {
      const float q = std::nearbyint(static_cast<float>(values[j]) * (write / largest));
      values[j] = static_cast<double>(q) * as_f16(static_cast<double>(largest / read));
    }
  }
}

void offer_scale(const Case& c, Sink& out) {
  using ops::CacheType;
  const bool k_fits = c.declared.cache_k == CacheType::q8_0, v_fits = c.declared.cache_v == CacheType::q8_0;
  const struct {
    bool fits;
    const char* what;
    bool k, v;
  } parts[] = {{k_fits && v_fits, "keys and values", true, true},
               {k_fits, "keys", true, false},
               {v_fits, "values", false, true}};
  for (const auto& [write, read] : {std::pair(127.0f, 128.0f), std::pair(128.0f, 127.0f)}) {
    for (const auto& part : parts) {
      if (!part.fits) continue;
      AttentionRule rule = right_attention(c);
      const Cache plain =
          cache_as(c, part.k ? CacheType::f32 : CacheType::q8_0, part.v ? CacheType::f32 : CacheType::q8_0);
      rule.cache = changed_cache(plain, [&, w = write, r = read](int, KeyValues& kv) {
        if (part.k) rescale_q8_0(kv.k, w, r);
        if (part.v) rescale_q8_0(kv.v, w, r);
      });
      out.add_rows(fmt::format("the blocks of {} are written with scale max / {} and read with max / {}", part.what,
                               write, read),
                   attention_with(c, std::move(rule)));
    }
  }
}

// Blocks of 32 elements of the keys, stored for another instruction set's order.
void offer_repacked(const Case& c, Sink& out) {
  if (op_of(c).head_dim % 32 != 0) return;
  for (const size_t lanes : {2, 4, 8, 16}) {
    offer_cache(c, out,
                fmt::format("each 32 elements of a key are stored re-packed ({} x {}) and read as "
                            "if they were not",
                            lanes, 32 / lanes),
                [lanes](int, KeyValues& kv) {
                  const std::vector<double> plain = kv.k;
                  for (size_t j = 0; j < plain.size(); ++j) {
                    kv.k[j / 32 * 32 + j % lanes * (32 / lanes) + j % 32 / lanes] = plain[j];
                  }
                });
  }
}

void offer_half_sums(const Case& c, Sink& out) {
  AttentionRule rule = right_attention(c);
  rule.half_sums = true;
  out.add_rows("the weighted sum of the values is kept in f16", attention_with(c, std::move(rule)));
}

// A view of heads with a stride [position][head][dim], read as if it were packed
// [head][position][dim], and the reverse.
std::vector<double> read_packed(const std::vector<double>& x, int64_t n, int64_t width, int64_t d) {
  std::vector<double> y(x.size());
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < width; ++i)
      y[static_cast<size_t>(j * width + i)] = x[static_cast<size_t>((i / d * n + j) * d + i % d)];
  }
  return y;
}
// Elements of a head first: [dim][head].
std::vector<double> read_dims_first(const std::vector<double>& x, int64_t width, int64_t d) {
  std::vector<double> y(x.size());
  const int64_t heads = width / d;
  for (size_t at = 0; at < x.size(); ++at) {
    const auto row = static_cast<int64_t>(at) / width, i = static_cast<int64_t>(at) % width;
    y[at] = x[static_cast<size_t>(row * width + i % d * heads + i / d)];
  }
  return y;
}

void offer_stride(const Case& c, Sink& out) {
  const int64_t d = op_of(c).head_dim;
  if (op_of(c).n_kv_heads == 1) return;
  for (const auto& [what, k_too, v_too] : {std::tuple{"keys and values", true, true}, std::tuple{"keys", true, false},
                                           std::tuple{"values", false, true}}) {
    offer_cache(c, out,
                fmt::format("{}: a view with a stride [position][head] is read as if heads lay "
                            "packed: heads beyond the first are wrong",
                            what),
                [=, k = k_too, v = v_too](int, KeyValues& kv) {
                  if (k) kv.k = read_packed(kv.k, kv.n, kv.width, d);
                  if (v) kv.v = read_packed(kv.v, kv.n, kv.width, d);
                });
    offer_cache(c, out, fmt::format("{} of a position are read as [dim][head] in place of [head][dim]", what),
                [=, k = k_too, v = v_too](int, KeyValues& kv) {
                  if (k) kv.k = read_dims_first(kv.k, kv.width, d);
                  if (v) kv.v = read_dims_first(kv.v, kv.width, d);
                });
  }
}

// Heads lie a whole context apart; taken as if they lay as far as the sequence is long, those
// beyond the first find cells that nobody has written.
void offer_unwritten(const Case& c, Sink& out) {
  if (op_of(c).n_kv_heads == 1) return;
  offer_cache(c, out,
              "heads beyond the first find empty cells: the stride between heads is the number of "
              "positions in use, not of the cache",
              [d = op_of(c).head_dim](int, KeyValues& kv) {
                for (size_t i = 0; i < kv.k.size(); ++i) {
                  if (static_cast<int64_t>(i) % kv.width >= d) kv.k[i] = kv.v[i] = 0;
                }
              });
}

void offer_swapped(const Case& c, Sink& out) {
  offer_cache(c, out, "keys and values are swapped", [](int, KeyValues& kv) { std::swap(kv.k, kv.v); });
  offer_cache(c, out, "values are taken from the keys", [](int, KeyValues& kv) { kv.v = kv.k; });
  offer_cache(c, out, "keys are taken from the values", [](int, KeyValues& kv) { kv.k = kv.v; });
}

void offer_other_sequence(const Case& c, Sink& out) {
  if (c.failed.history.size() < 2) return;
  for (const auto& entry : c.failed.history) {
    const int other = entry.first;
    AttentionRule rule = right_attention(c);
    rule.sequence = [other](int64_t) { return other; };
    out.add_rows(fmt::format("all rows meet the keys of sequence {}", other), attention_with(c, std::move(rule)));
  }
  AttentionRule rule = right_attention(c);
  rule.sequence = [&c](int64_t row) {
    const auto next = std::next(c.failed.history.find(c.sequence(row)));
    return next == c.failed.history.end() ? c.failed.history.begin()->first : next->first;
  };
  out.add_rows("rows meet the keys of another sequence", attention_with(c, std::move(rule)));

  const AttentionRule right = right_attention(c);
  rule = right;
  rule.cache = changed_cache(right.cache, [&right](int sequence, KeyValues& kv) {  // the others' visible keys in front
    KeyValues all{{}, {}, 0, kv.width, kv.v_width};
    for (const auto& [other, keys] : right.cache) {
      if (other == sequence) continue;
      all.k.insert(all.k.end(), keys->k.begin(), keys->k.end());
      all.v.insert(all.v.end(), keys->v.begin(), keys->v.end());
      all.n += keys->n;
    }
    all.k.insert(all.k.end(), kv.k.begin(), kv.k.end());
    all.v.insert(all.v.end(), kv.v.begin(), kv.v.end());
    all.n += kv.n;
    kv = std::move(all);
  });
  rule.visible = [&c, right, all = rule.cache](int64_t row) {
    const int64_t in_front = all.at(c.sequence(row))->n - right.cache.at(c.sequence(row))->n;
    return Range{right.visible(row).begin, right.visible(row).end + in_front};
  };
  out.add_rows("rows see the keys of all sequences", attention_with(c, std::move(rule)));
}

// How the keys of this layer were rotated; nullptr: they were not.
const ops::RopeSpec* rope_of_keys(const Case& c) {
  for (const ops::Op& op : c.plan.ops) {
    const auto* store = op.as<ops::KvStore>();
    if (store == nullptr || store->layer != op_of(c).layer) continue;
    const ops::Op* writer = c.writer(store->k);
    const auto* rope = writer == nullptr ? nullptr : writer->as<ops::Rope>();
    return rope == nullptr ? nullptr : &c.plan.ropes[static_cast<size_t>(rope->rope)];
  }
  return nullptr;
}

// Turns every key on by so many positions more than it has.
void turn_keys(const ops::RopeSpec& spec, int64_t head_dim, KeyValues& kv,
               const std::function<double(int64_t position)>& by) {
  ops::RopeSpec plain = spec;
  plain.magnitude = 1;
  for (int64_t position = 0; position < kv.n; ++position) {
    const auto k = std::span(kv.k).subspan(static_cast<size_t>(position * kv.width), static_cast<size_t>(kv.width));
    ops::rotate64(plain, by(position), kv.width / head_dim, head_dim, k, k);
  }
}

void offer_rotation(const Case& c, Sink& out) {
  const ops::RopeSpec* spec = rope_of_keys(c);
  if (spec == nullptr) return;
  const int64_t head_dim = op_of(c).head_dim;
  const auto with = [&](std::string text, const std::function<double(int64_t)>& by) {
    AttentionRule rule = right_attention(c);
    rule.cache = changed_cache(cache_as(c, ops::CacheType::f32, c.declared.cache_v),
                               [&](int, KeyValues& kv) { turn_keys(*spec, head_dim, kv, by); });
    out.add_rows(std::move(text), attention_with(c, std::move(rule)));
  };
  with("keys are met as they were before RoPE", [](int64_t p) { return -static_cast<double>(p); });
  with("keys are rotated once more when they are read", [](int64_t p) { return static_cast<double>(p); });
  for (const int by : {1, -1}) {
    with(fmt::format("keys are met as if they stood {:+} position further on", by), [by](int64_t) { return by; });
  }
}

// The row of K, V or both that a position finds.
void offer_cells(const Case& c, Sink& out) {
  using Cell = int64_t (*)(int64_t position, int64_t n);
  const auto with = [&](std::string text, bool k_too, bool v_too, Cell cell) {
    offer_cache(c, out, std::move(text), [=](int, KeyValues& kv) {
      const KeyValues old = kv;
      for (int64_t p = 0; p < kv.n; ++p) {
        const int64_t from = std::clamp<int64_t>(cell(p, kv.n), 0, kv.n - 1) * kv.width;
        if (k_too) std::copy_n(old.k.begin() + from, kv.width, kv.k.begin() + p * kv.width);
        if (v_too) std::copy_n(old.v.begin() + from, kv.width, kv.v.begin() + p * kv.width);
      }
    });
  };
  for (const auto& [what, k, v] : {std::tuple{"values", false, true}, std::tuple{"keys", true, false},
                                   std::tuple{"keys and values", true, true}}) {
    with(fmt::format("{} are read one position late", what), k, v, [](int64_t p, int64_t) { return p - 1; });
    with(fmt::format("{} are read one position early", what), k, v, [](int64_t p, int64_t) { return p + 1; });
    if (!(k && v))
      with(fmt::format("{} are read in reverse order", what), k, v, [](int64_t p, int64_t n) { return n - 1 - p; });
  }
}

// The first position of a sequence in the batch that failed.
int64_t start_of(const Case& c, int sequence, int64_t n) {
  int64_t start = n;
  for (int64_t row = 0; row < c.failed.n_rows; ++row) {
    if (c.sequence(row) == sequence) start = std::min(start, c.batch_start(row));
  }
  return start;
}

// A batch that goes on from a cached prefix finds that prefix moved.
void offer_resumed(const Case& c, Sink& out) {
  for (const int64_t by : {1, -1}) {
    offer_cache(c, out,
                fmt::format("keys and values before this batch are read one position {}", by > 0 ? "early" : "late"),
                [&c, by](int sequence, KeyValues& kv) {
                  const KeyValues old = kv;
                  const int64_t start = start_of(c, sequence, kv.n);
                  for (int64_t p = 0; p < start; ++p) {
                    const int64_t from = std::clamp<int64_t>(p + by, 0, start - 1) * kv.width;
                    std::copy_n(old.k.begin() + from, kv.width, kv.k.begin() + p * kv.width);
                    std::copy_n(old.v.begin() + from, kv.width, kv.v.begin() + p * kv.width);
                  }
                });
  }
}

// What was stored in this batch never reached the cache, or only its first token's cell was
// written.
void offer_not_stored(const Case& c, Sink& out) {
  const auto zeroed = [&](std::string text, std::function<bool(int64_t position, int64_t start, int64_t n)> is_zero) {
    offer_cache(c, out, std::move(text), [&c, is_zero](int sequence, KeyValues& kv) {
      const int64_t start = start_of(c, sequence, kv.n);
      for (int64_t p = 0; p < kv.n; ++p) {
        if (!is_zero(p, start, kv.n)) continue;
        std::fill_n(kv.k.begin() + p * kv.width, kv.width, 0.0);
        std::fill_n(kv.v.begin() + p * kv.width, kv.width, 0.0);
      }
    });
  };
  zeroed("the cache holds zeros for the tokens of this batch: stored too late",
         [](int64_t p, int64_t start, int64_t) { return p >= start; });
  zeroed("the cache holds zeros before this batch: it was cleared, or another one is read",
         [](int64_t p, int64_t start, int64_t) { return p < start; });
  zeroed("of this batch only the first token is in the cache, zeros for the others",
         [](int64_t p, int64_t start, int64_t) { return p > start; });
  zeroed("the cache holds zeros for the first token", [](int64_t p, int64_t, int64_t) { return p == 0; });
}

// Shortcuts for an empty cache: only the row of position 0 is wrong.
void offer_first_position(const Case& c, Sink& out) {
  const auto with = [&](const char* text, auto first_row) {
    out.add_rows(text, [&c, first_row, right = attention_with(c, right_attention(c))](int64_t row, double* y) {
      if (c.position(row) == 0) {
        first_row(row, y);
      } else {
        right(row, y);
      }
    });
  };
  const auto cache = right_attention(c).cache;
  with("position 0 takes a shortcut: the output is zero",
       [&c](int64_t, double* y) { std::fill_n(y, c.failed.width, 0.0); });
  with("position 0 takes a shortcut: the query is passed on",
       [&c](int64_t row, double* y) { std::copy_n(c.a(row), c.failed.width, y); });
  with("position 0 takes a shortcut that tiles the value heads; they are repeated",
       [&c, cache](int64_t row, double* y) {
         const KeyValues& kv = *cache.at(c.sequence(row));
         for (int64_t i = 0; i < c.failed.width; ++i) y[i] = kv.v[static_cast<size_t>(i % kv.width)];
       });
  with("position 0 takes a shortcut that copies the value heads without repeating them",
       [&c, cache](int64_t row, double* y) {
         const KeyValues& kv = *cache.at(c.sequence(row));
         std::fill_n(y, c.failed.width, 0.0);
         std::copy_n(kv.v.begin(), std::min(kv.width, c.failed.width), y);
       });
}

void offer_queries(const Case& c, Sink& out) {
  const ops::Attention& op = op_of(c);
  if (op.n_heads == 1) return;
  // The scores of a permuted query, by computing the op on a case of its own.
  auto failed = std::make_shared<FailedOp>(c.failed);
  failed->a = read_dims_first(c.failed.a, c.failed.a_width, op.head_dim);
  auto permuted = std::make_shared<Case>(Case{c.plan, *failed, c.declared, c.pool});
  out.add_rows("queries are read as [dim][head] in place of [head][dim]",
               [failed, permuted, compute = attention_with(*permuted, right_attention(*permuted))](
                   int64_t row, double* y) { compute(row, y); });
}

constexpr Entry kEntries[] = {
    {"kv_swapped", "", offer_swapped},
    {"kv_stride", "C39", offer_stride},
    {"kv_stride", "C39", offer_unwritten},
    {"kv_other_sequence", "C14", offer_other_sequence},
    {"kv_rotation", "C54", offer_rotation},
    {"kv_cells", "", offer_cells},
    {"kv_prefix_cells", "C56", offer_resumed},
    {"kv_not_stored", "C58,R9", offer_not_stored},
    {"kv_type", "", offer_type},
    {"kv_scale", "", offer_scale},
    {"kv_repacked", "C33", offer_repacked},
    {"attention_first_position", "C60", offer_first_position},
    {"attention_queries", "C39", offer_queries},
    {"attention_half_sums", "", offer_half_sums},
};

}  // namespace

std::span<const Entry> attention_cache_entries() noexcept { return kEntries; }

}  // namespace assay::faults::dictionary
