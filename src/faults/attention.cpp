// Known ways to attend wrongly: which keys are seen, which heads meet, the scale and the softmax.
#include "faults/attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "backend/oracle/oracle_ops.h"
#include "num/f16.h"
#include "num/math64.h"
#include "ops/attention/attention.h"
#include "ops/attention/rope.h"
#include "ops/linear/expert_linear.h"
#include "ops/plan/float64.h"
#include "ops/rows/slice.h"
#include "quant/format.h"
#include "quant/q8_0.h"

namespace assay::faults::dictionary {
namespace {

const ops::Attention& op_of(const Case& c) { return c.record<ops::Attention>(); }
const ops::CacheLayer& cache_layer(const Case& c) { return c.plan.cache_layers[static_cast<size_t>(op_of(c).layer)]; }

// In place; rows of `width` in blocks of 32 as the cache keeps them.
void round_as(ops::CacheType type, std::vector<double>& values) {
  if (type == ops::CacheType::f32) return;
  if (type == ops::CacheType::f16 || values.size() % 32 != 0) {
    std::transform(values.begin(), values.end(), values.begin(), as_f16);
    return;
  }
  float block[32];
  for (size_t i = 0; i < values.size(); i += 32) {
    for (size_t j = 0; j < 32; ++j) block[j] = static_cast<float>(values[i + j]);
    const quant::BlockQ8_0 encoded = quant::encode_q8_0(block);
    for (size_t j = 0; j < 32; ++j) values[i + j] = static_cast<double>(num::half_to_float(encoded.d)) * encoded.q[j];
  }
}

void scores_of(const AttentionRule& rule, const double* q, const KeyValues& kv, int64_t first, int64_t head_dim,
               Range keys, std::vector<double>& scores) {
  scores.resize(static_cast<size_t>(keys.end - keys.begin));
  if (scores.empty()) return;
  backend::oracle::attention_scores(std::span(q, static_cast<size_t>(head_dim)), kv.k.data() + first, kv.width,
                                    keys.begin, keys.end - 1, 1.0, scores);
  for (double& s : scores) {
    s = (rule.score ? rule.score(s) : s) * rule.scale;
    if (rule.capped) s = rule.capped(s);
  }
}

void sum_values(const AttentionRule& rule, const KeyValues& kv, int64_t first, int64_t v_dim, int64_t begin,
                std::span<const double> shares, double* y) {
  std::fill_n(y, v_dim, 0.0);
  for (size_t i = 0; i < shares.size(); ++i) {
    const double* v = kv.v.data() + (begin + static_cast<int64_t>(i)) * kv.v_width + first;
    for (int64_t d = 0; d < v_dim; ++d)
      y[d] = rule.half_sums ? as_f16(y[d] + as_f16(shares[i] * v[d])) : y[d] + shares[i] * v[d];
  }
}

Range cut(Range keys, const KeyValues& kv) {
  const int64_t end = std::clamp<int64_t>(keys.end, 0, kv.n);
  return {std::clamp<int64_t>(keys.begin, 0, end), end};
}

}  // namespace

void softmax(std::span<double> scores) {
  if (!scores.empty()) backend::oracle::softmax(scores);
}

bool has_history(const Case& c) {
  const ops::Attention& op = op_of(c);
  const int64_t v_dim = cache_layer(c).v_dim();
  for (int64_t row = 0; row < c.failed.n_rows; ++row) {
    const auto found = c.failed.history.find(c.sequence(row));
    if (found == c.failed.history.end() || found->second.width != op.n_kv_heads * op.head_dim ||
        static_cast<int64_t>(found->second.v.size()) != found->second.n_positions() * op.n_kv_heads * v_dim ||
        found->second.n_positions() <= c.position(row) || c.position(row) < 0) {
      return false;
    }
  }
  return c.failed.a_width == op.n_heads * op.head_dim && c.failed.width == op.n_heads * v_dim;
}

bool has_plain_cache(const Case& c) {
  const ops::CacheLayer& layer = cache_layer(c);
  return has_history(c) && layer.v_dim() == layer.head_dim && !layer.values_in_keys;
}

Cache cache_as(const Case& c, ops::CacheType k, ops::CacheType v) {
  Cache cache;
  for (const auto& [sequence, history] : c.failed.history) {
    auto kv = std::make_shared<KeyValues>(KeyValues{history.k, history.v, history.n_positions(), history.width,
                                                    cache_layer(c).n_kv_heads * cache_layer(c).v_dim()});
    round_as(k, kv->k);
    round_as(cache_layer(c).values_in_keys ? k : v, kv->v);
    cache[sequence] = std::move(kv);
  }
  return cache;
}

Cache changed_cache(const Cache& cache, const Change& change) {
  Cache result;
  for (const auto& [sequence, kv] : cache) {
    auto copy = std::make_shared<KeyValues>(*kv);
    change(sequence, *copy);
    result[sequence] = std::move(copy);
  }
  return result;
}

AttentionRule right_attention(const Case& c) {
  const ops::Attention& op = op_of(c);
  AttentionRule rule;
  rule.scale = op.scale;
  if (c.shared->history.empty()) c.shared->history = cache_as(c, c.declared.cache_k, c.declared.cache_v);
  rule.cache = c.shared->history;
  rule.sequence = [&c](int64_t row) { return c.sequence(row); };
  rule.visible = [&c, &op](int64_t row) {
    constexpr int64_t kAll = int64_t{1} << 40;  // cut to what there is
    return Range{ops::first_visible(c.position(row), op), ops::last_visible(c.position(row), kAll, op) + 1};
  };
  rule.kv_head = [&op](int64_t head) { return head / (op.n_heads / op.n_kv_heads); };
  if (op.softcap > 0) rule.capped = [cap = op.softcap](double s) { return cap * num::tanh64(s / cap); };
  if (op.sinks != ops::kNone) rule.sinks = c.vector(op.sinks);
  return rule;
}

namespace {

// Heads of a row, or of every row of keys, turned by the plan's rope; heads that are narrower than what it turns stay.
std::vector<double> turned(const Case& c, ops::RopeId id, std::span<const double> heads, int64_t position) {
  std::vector<double> y(heads.begin(), heads.end());
  const ops::RopeSpec& spec = c.plan.ropes[static_cast<size_t>(id)];
  const int64_t head_dim = op_of(c).head_dim;
  ops::rotate64(spec, static_cast<double>(position), static_cast<int64_t>(heads.size()) / head_dim, head_dim, heads, y);
  return y;
}

}  // namespace

RowFunction attention_with(const Case& c, AttentionRule rule) {
  if (rule.rotated_by != ops::kNone) {
    rule.cache = changed_cache(rule.cache, [&](int, KeyValues& kv) {
      for (int64_t p = 0; p < kv.n; ++p) {
        const std::span<double> row =
            std::span(kv.k).subspan(static_cast<size_t>(p * kv.width), static_cast<size_t>(kv.width));
        std::ranges::copy(turned(c, rule.rotated_by, row, p), row.begin());
      }
    });
  }
  return [&c, rule = std::move(rule)](int64_t row, double* y) {
    const ops::Attention& op = op_of(c);
    const int64_t v_dim = cache_layer(c).v_dim();
    const KeyValues& kv = *rule.cache.at(rule.sequence(row));
    const Range keys = cut(rule.visible(row), kv);
    std::vector<double> q(c.a(row), c.a(row) + c.failed.a_width), scores;
    if (rule.rotated_by != ops::kNone) q = turned(c, rule.rotated_by, q, c.position(row));
    for (int64_t head = 0; head < op.n_heads; ++head) {
      const int64_t kv_head = std::clamp<int64_t>(rule.kv_head(head), 0, kv.width / op.head_dim - 1);
      scores_of(rule, q.data() + head * op.head_dim, kv, kv_head * op.head_dim, op.head_dim, keys, scores);
      if (!rule.sinks.empty()) scores.push_back(rule.sinks[static_cast<size_t>(head)]);
      rule.shares(scores);
      if (!rule.sinks.empty()) scores.pop_back();
      sum_values(rule, kv, kv_head * v_dim, v_dim, keys.begin, scores, y + head * v_dim);
    }
  };
}

namespace {

// Of latent attention: what its heads are made of, with and without the rotated part. The scale is of the whole key
// before it is absorbed.
std::vector<double> latent_widths(const Case& c) {
  std::vector<double> widths;
  for (const ops::Op& other : c.plan.ops) {
    const auto* product = other.as<ops::ExpertLinear>();
    if (product == nullptr || product->routes != ops::kNone || other.layer != c.op().layer) continue;
    for (const int64_t width : {product->d_in, product->d_out}) widths.push_back(static_cast<double>(width));
  }
  for (const ops::Op& other : c.plan.ops) {
    const auto* slice = other.as<ops::Slice>();
    if (slice == nullptr || other.layer != c.op().layer || slice->n_runs != op_of(c).n_heads) continue;
    widths.push_back(static_cast<double>(c.plan.values[static_cast<size_t>(slice->y)].width / slice->n_runs));
    widths.push_back(static_cast<double>(c.plan.values[static_cast<size_t>(slice->x)].width / slice->n_runs));
  }
  return widths;
}

void offer_scale(const Case& c, Sink& out) {
  const ops::Attention& op = op_of(c);
  const auto d = static_cast<double>(op.head_dim), model = static_cast<double>(c.plan.d_model),
             heads = static_cast<double>(op.n_heads);
  const std::pair<const char*, double> scales[] = {
      {"missing", 1.0},
      {"applied twice", op.scale * op.scale},
      {"1 / head_dim", 1 / d},
      {"1 / sqrt(head_dim)", 1 / std::sqrt(d)},
      {"1 / sqrt(d_model / n_heads)", 1 / std::sqrt(model / heads)},
      {"1 / sqrt(d_model)", 1 / std::sqrt(model)},
      {"1 / sqrt(n_kv_heads * head_dim)", 1 / std::sqrt(static_cast<double>(op.n_kv_heads) * d)},
      {"multiplied by the root, not divided", std::sqrt(d)},
      {"the root of what is right", std::sqrt(op.scale)},
      {"1 / sqrt(the width of a value)", 1 / std::sqrt(static_cast<double>(cache_layer(c).v_dim()))},
  };
  std::vector<std::pair<std::string, double>> all(std::begin(scales), std::end(scales));
  for (const double width : latent_widths(c))
    all.emplace_back(fmt::format("1 / sqrt({:g})", width), 1 / std::sqrt(width));
  std::vector<double> tried = {op.scale};
  for (const auto& [what, scale] : all) {
    const auto same = [s = scale](double x) { return std::abs(x / s - 1) < 1e-9; };
    if (std::any_of(tried.begin(), tried.end(), same)) continue;
    tried.push_back(scale);
    AttentionRule rule = right_attention(c);
    rule.scale = scale;
    out.add_rows(fmt::format("scores are scaled by {:.6g} ({}) in place of {:.6g}", scale, what, op.scale),
                 attention_with(c, std::move(rule)));
  }
}

void offer_visible(const Case& c, Sink& out, std::string text, std::function<Range(int64_t row)> visible) {
  AttentionRule rule = right_attention(c);
  bool differs = false;
  for (int64_t row = 0; row < c.failed.n_rows; ++row) {
    const KeyValues& kv = *rule.cache.at(c.sequence(row));
    const Range right = cut(rule.visible(row), kv), wrong = cut(visible(row), kv);
    differs = differs || right.begin != wrong.begin || right.end != wrong.end;
  }
  if (!differs) return;
  rule.visible = std::move(visible);
  out.add_rows(std::move(text), attention_with(c, std::move(rule)));
}

void offer_mask(const Case& c, Sink& out) {
  constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
  const auto right = right_attention(c).visible;
  offer_visible(c, out, "there is no causal mask: every token sees the whole batch", [=](int64_t row) {
    return Range{right(row).begin, kAll};
  });
  offer_visible(c, out, "the causal mask is off by one: a token sees the one after it", [=](int64_t row) {
    return Range{right(row).begin, right(row).end + 1};
  });
  offer_visible(c, out, "the causal mask is strict: a token does not see itself", [=](int64_t row) {
    return Range{right(row).begin, std::max(right(row).begin, right(row).end - 1)};
  });
  offer_visible(c, out, "a token does not see itself (but for the first)", [=](int64_t row) {
    const Range keys = right(row);
    return Range{keys.begin, keys.end - keys.begin > 1 ? keys.end - 1 : keys.end};
  });
  offer_visible(c, out, "the first key is not seen", [=](int64_t row) {
    return Range{std::min(std::max<int64_t>(1, right(row).begin), right(row).end - 1), right(row).end};
  });
  offer_visible(c, out, "a token sees only itself", [=](int64_t row) {
    return Range{right(row).end - 1, right(row).end};
  });
}

void offer_window(const Case& c, Sink& out) {
  const ops::Attention& op = op_of(c);
  const auto with = [&](int64_t window) {
    if (window == op.window || window < 0) return;
    const std::string text = op.window == 0
                                 ? fmt::format("a window of {} keys is applied in a layer that sees all", window)
                             : window == 0 ? fmt::format("the window of {} keys is not applied", op.window)
                                           : fmt::format("the window is {} keys in place of {}", window, op.window);
    offer_visible(c, out, text, [&c, window](int64_t row) {
      const int64_t end = c.position(row) + 1;
      return Range{window > 0 ? std::max<int64_t>(0, end - window) : 0, end};
    });
  };
  std::vector<int64_t> windows;
  if (op.window > 0) windows = {0, op.window + 1, op.window - 1, op.window / 2, op.window * 2};
  for (const ops::CacheLayer& layer : c.plan.cache_layers) {  // of layers of the other kind
    for (const int64_t by : {0, 1, -1}) {
      if (layer.window > 0) windows.push_back(layer.window + by);
    }
  }
  for (int64_t window = 8; window <= 4096; window *= 2) windows.push_back(window);
  int64_t n_seen = 0;  // a window of as many is none
  for (int64_t row = 0; row < c.failed.n_rows; ++row) n_seen = std::max(n_seen, c.position(row) + 1);
  std::vector<int64_t> tried;
  for (const int64_t window : windows) {
    if (std::find(tried.begin(), tried.end(), window) != tried.end() || window >= n_seen) continue;
    tried.push_back(window);
    with(window);
  }
}

void offer_batch(const Case& c, Sink& out) {
  const auto right = right_attention(c).visible;
  const auto start = [&c](int64_t row) { return c.batch_start(row); };
  offer_visible(c, out, "only keys of the current batch are seen; those of the cache before it count too",
                [=](int64_t row) {
                  return Range{std::max(right(row).begin, start(row)), right(row).end};
                });
  offer_visible(c, out,
                "only keys from before this batch (and the token's own) are not masked by "
                "position: the mask counts from the batch's begin",
                [=](int64_t row) {
                  return Range{right(row).begin, right(row).end - start(row)};
                });
  offer_visible(c, out, "keys of the current batch are not seen, only the cache before it", [=](int64_t row) {
    return Range{right(row).begin, std::max<int64_t>(start(row), 1)};
  });
}

void offer_heads(const Case& c, Sink& out) {
  const ops::Attention& op = op_of(c);
  if (op.n_kv_heads == 1) return;
  const int64_t n = op.n_kv_heads, group = op.n_heads / n;
  const auto with = [&](std::string text, std::function<int64_t(int64_t)> kv_head) {
    AttentionRule rule = right_attention(c);
    bool differs = false;
    for (int64_t h = 0; h < op.n_heads; ++h) differs = differs || std::min(kv_head(h), n - 1) != rule.kv_head(h);
    if (!differs) return;
    rule.kv_head = std::move(kv_head);
    out.add_rows(std::move(text), attention_with(c, std::move(rule)));
  };
  with(fmt::format("query head h meets key head h % {} (tiled); h / {} (repeated) is right", n, group),
       [=](int64_t h) { return h % n; });
  with("all query heads meet key head 0", [](int64_t) { return int64_t{0}; });
  with(fmt::format("query head h meets key head h / {}; h / {} is right", n, group), [=](int64_t h) { return h / n; });
  with("query head h meets key head h: keys are taken as if there were as many", [=](int64_t h) { return h; });
  if (!has_plain_cache(c)) return;
  // More heads than a position has: what follows in memory is the next position's.
  AttentionRule beyond = right_attention(c);
  beyond.kv_head = [](int64_t h) { return h; };
  beyond.cache = changed_cache(beyond.cache, [&op](int, KeyValues& kv) {
    const KeyValues old = kv;
    kv.width = kv.v_width = op.n_heads * op.head_dim;
    for (auto [to, from] : {std::pair(&kv.k, &old.k), std::pair(&kv.v, &old.v)}) {
      to->assign(static_cast<size_t>(kv.n * kv.width), 0.0);
      for (int64_t p = 0; p < kv.n; ++p) {
        const int64_t n_left = static_cast<int64_t>(from->size()) - p * old.width;
        std::copy_n(from->begin() + p * old.width, std::min(kv.width, n_left), to->begin() + p * kv.width);
      }
    }
  });
  out.add_rows("as many key heads as query heads are taken: those beyond are the next position's",
               attention_with(c, std::move(beyond)));
  with("query heads meet the next key head", [=](int64_t h) { return (h / group + 1) % n; });
}

// Scores of all heads before the shares: [n_heads][keys]
void offer_softmax_axis(const Case& c, Sink& out) {
  out.add_rows("the softmax runs over heads in place of keys", [&c, rule = right_attention(c)](int64_t row, double* y) {
    const ops::Attention& op = op_of(c);
    const KeyValues& kv = *rule.cache.at(c.sequence(row));
    const Range keys = cut(rule.visible(row), kv);
    std::vector<std::vector<double>> scores(static_cast<size_t>(op.n_heads));
    for (int64_t h = 0; h < op.n_heads; ++h) {
      scores_of(rule, c.a(row) + h * op.head_dim, kv, rule.kv_head(h) * op.head_dim, op.head_dim, keys,
                scores[static_cast<size_t>(h)]);
    }
    std::vector<double> column(scores.size());
    for (size_t j = 0; j < static_cast<size_t>(keys.end - keys.begin); ++j) {
      for (size_t h = 0; h < scores.size(); ++h) column[h] = scores[h][j];
      softmax(column);
      for (size_t h = 0; h < scores.size(); ++h) scores[h][j] = column[h];
    }
    for (int64_t h = 0; h < op.n_heads; ++h) {
      const int64_t v_dim = cache_layer(c).v_dim();
      sum_values(rule, kv, rule.kv_head(h) * v_dim, v_dim, keys.begin, scores[static_cast<size_t>(h)], y + h * v_dim);
    }
  });
}

void offer_shares(const Case& c, Sink& out) {
  const auto with = [&](std::string text, Shares shares) {
    AttentionRule rule = right_attention(c);
    rule.shares = std::move(shares);
    out.add_rows(std::move(text), attention_with(c, std::move(rule)));
  };
  const auto exponentials = [](std::span<double> s, double& sum) {  // against their largest
    const double largest = s.empty() ? 0 : *std::max_element(s.begin(), s.end());
    sum = 0;
    for (double& x : s) sum += x = num::exp64(x - largest);
    return largest;
  };
  with("shares are not divided by their sum", [=](std::span<double> s) {
    double sum = 0;
    exponentials(s, sum);
  });
  with("shares are divided by their sum and 1 (softmax1)", [=](std::span<double> s) {
    double sum = 0;
    const double largest = exponentials(s, sum);
    for (double& x : s) x /= sum + num::exp64(-largest);
  });
  with("all visible keys have the same share: scores are ignored",
       [](std::span<double> s) { std::fill(s.begin(), s.end(), 1.0 / static_cast<double>(s.size())); });
  with("the softmax is to base 2: a factor log2(e) is missing in the scores", [](std::span<double> s) {
    for (double& x : s) x *= std::numbers::ln2;
    softmax(s);
  });
  with("the factor log2(e) is in the scores but the softmax is to base e", [](std::span<double> s) {
    for (double& x : s) x *= std::numbers::log2e;
    softmax(s);
  });
  with("the softmax is taken twice", [](std::span<double> s) { softmax(s), softmax(s); });
  with("only the key with the largest score counts", [](std::span<double> s) {
    const auto best = static_cast<size_t>(std::max_element(s.begin(), s.end()) - s.begin());
    for (size_t i = 0; i < s.size(); ++i) s[i] = i == best ? 1 : 0;
  });
  with("shares are kept in f16", [](std::span<double> s) {
    softmax(s);
    std::transform(s.begin(), s.end(), s.begin(), as_f16);
  });
  with("shares are kept in bf16", [](std::span<double> s) {
    softmax(s);
    std::transform(s.begin(), s.end(), s.begin(), as_bf16);
  });
  for (const size_t length : {32u, 64u, 128u, 256u, 512u}) {  // split-KV
    with(fmt::format("segments of {} keys are merged without the ratio of their maxima", length),
         [=](std::span<double> s) {
           double total = 0;
           for (size_t i = 0; i < s.size(); i += length) {
             double sum = 0;
             exponentials(s.subspan(i, std::min<size_t>(length, s.size() - i)), sum);
             total += sum;
           }
           for (double& x : s) x /= total;
         });
    with(fmt::format("only the last segment of {} keys counts", length), [=](std::span<double> s) {
      const size_t begin = s.empty() ? 0 : (s.size() - 1) / length * length;
      std::fill_n(s.begin(), begin, 0.0);
      softmax(s.subspan(begin));
    });
  }
}

void offer_overflow(const Case& c, Sink& out) {
  AttentionRule rule = right_attention(c);
  rule.score = as_f16;
  out.add_rows("products of queries and keys are kept in f16 (infinite above 65504) before they are scaled",
               attention_with(c, rule));
  rule.score = as_bf16;
  out.add_rows("products of queries and keys are kept in bf16", attention_with(c, rule));
  rule = right_attention(c);
  rule.capped = as_f16;
  out.add_rows("scores are kept in f16", attention_with(c, rule));
  rule = right_attention(c);
  rule.shares = [](std::span<double> s) {
    float sum = 0;
    for (double& x : s) sum += static_cast<float>(x = static_cast<double>(static_cast<float>(num::exp64(x))));
    for (double& x : s) x = static_cast<double>(static_cast<float>(x) / sum);
  };
  out.add_rows("the softmax does not subtract the largest score: exp overflows f32 above 88.7",
               attention_with(c, rule));
  rule.shares = [](std::span<double> s) {
    double sum = 0;
    for (double& x : s) sum = as_f16(sum + (x = as_f16(num::exp64(x))));
    for (double& x : s) x = x / sum;
  };
  out.add_rows("the softmax does not subtract the largest score: exp overflows f16 above 11", attention_with(c, rule));
}

void offer_own_softcap(const Case& c, Sink& out, double cap) {
  const auto with = [&](std::string text, std::function<double(double)> score, std::function<double(double)> capped) {
    AttentionRule rule = right_attention(c);
    rule.score = std::move(score), rule.capped = std::move(capped);
    out.add_rows(std::move(text), attention_with(c, std::move(rule)));
  };
  const auto right = [cap](double s) { return cap * num::tanh64(s / cap); };
  with(fmt::format("scores are not capped; the file's cap is {:g}", cap), {}, {});
  with(fmt::format("scores are capped at {:g} before they are scaled; after is right", cap), right, {});
  with(fmt::format("scores are multiplied by tanh(s / {0:g}); {0:g} tanh(s / {0:g}) is right", cap), {},
       [cap](double s) { return s * num::tanh64(s / cap); });
  with(fmt::format("scores become tanh(s / {:g}): the product with the cap is missing", cap), {},
       [cap](double s) { return num::tanh64(s / cap); });
  with(fmt::format("scores become {:g} tanh(s): the division by the cap is missing", cap), {},
       [cap](double s) { return cap * num::tanh64(s); });
  with("scores are capped twice", {}, [right](double s) { return right(right(s)); });
  AttentionRule rule = right_attention(c);
  rule.capped = {};
  rule.shares = [right](std::span<double> s) {
    softmax(s);
    std::transform(s.begin(), s.end(), s.begin(), right);
  };
  out.add_rows("the cap is applied to the shares; it belongs before the softmax", attention_with(c, std::move(rule)));
}

void offer_softcap(const Case& c, Sink& out) {
  const double own = op_of(c).softcap;
  if (own > 0) offer_own_softcap(c, out, own);
  for (const double cap : {50.0, 30.0, 20.0}) {
    if (own > 0) {
      if (cap == own) continue;
      AttentionRule rule = right_attention(c);
      rule.capped = [cap](double s) { return cap * num::tanh64(s / cap); };
      out.add_rows(fmt::format("scores are capped at {:g} in place of the file's {:g}", cap, own),
                   attention_with(c, rule));
      continue;
    }
    AttentionRule rule = right_attention(c);
    rule.capped = [cap](double s) { return cap * num::tanh64(s / cap); };
    out.add_rows(fmt::format("scores are capped at {:g} (cap * tanh(s / cap)), which the file does not ask for", cap),
                 attention_with(c, rule));
    rule.capped = [cap](double s) { return s * num::tanh64(s / cap); };
    out.add_rows(fmt::format("scores are multiplied by tanh(s / {:g}), which the file does not ask for", cap),
                 attention_with(c, rule));
  }
}

void offer_sinks(const Case& c, Sink& out) {
  if (op_of(c).sinks == ops::kNone) return;
  AttentionRule rule = right_attention(c);
  rule.sinks.clear();
  out.add_rows("the heads' sinks take no share of the softmax: they are forgotten", attention_with(c, rule));
  rule = right_attention(c);
  for (double& sink : rule.sinks) sink *= op_of(c).scale;
  out.add_rows("the heads' sinks are scaled as scores are; they enter the softmax as they stand",
               attention_with(c, rule));
  rule = right_attention(c);
  std::rotate(rule.sinks.begin(), rule.sinks.begin() + 1, rule.sinks.end());
  out.add_rows("every head has the next one's sink", attention_with(c, rule));
}

// Layers without positions, whose queries and keys no op turns.
void offer_nope(const Case& c, Sink& out) {
  const ops::Attention& op = op_of(c);
  for (const ops::Op& other : c.plan.ops) {
    if (other.layer == c.op().layer && other.is<ops::Rope>()) return;
  }
  for (size_t i = 0; i < c.plan.ropes.size(); ++i) {
    if (c.plan.ropes[i].dim > op.head_dim) continue;
    AttentionRule rule = right_attention(c);
    rule.rotated_by = static_cast<ops::RopeId>(i);
    out.add_rows("queries and keys are rotated in a layer that has no positions (NoPE)", attention_with(c, rule));
  }
}

void offer_chunk(const Case& c, Sink& out) {
  const ops::Attention& op = op_of(c);
  if (op.chunk <= 0) return;
  offer_visible(c, out, fmt::format("the chunks of {} keys are not applied: all earlier keys are seen", op.chunk),
                [&c](int64_t row) {
                  return Range{0, c.position(row) + 1};
                });
  offer_visible(
      c, out,
      fmt::format("the {0} last keys are seen (a window); those of the query's own chunk of {0} are right", op.chunk),
      [&c, n = op.chunk](int64_t row) {
        return Range{std::max<int64_t>(0, c.position(row) + 1 - n), c.position(row) + 1};
      });
}

constexpr Entry kEntries[] = {
    {"attention_scale", "C53", offer_scale},
    {"attention_mask", "R8", offer_mask},
    {"attention_window", "C50,C51", offer_window},
    {"attention_batch", "R9,C56,C57", offer_batch},
    {"attention_heads", "C49,R7", offer_heads},
    {"attention_shares", "C59", offer_shares},
    {"attention_softmax_axis", "", offer_softmax_axis},
    {"attention_overflow", "C38", offer_overflow},
    {"attention_softcap", "C52", offer_softcap},
    {"attention_sinks", "", offer_sinks},
    {"attention_nope", "", offer_nope},
    {"attention_chunk", "C50", offer_chunk},
};

}  // namespace

std::span<const Entry> attention_entries() noexcept { return kEntries; }

}  // namespace assay::faults::dictionary
