// The same tokens as one prefill, in chunks and token by token, beside another sequence, and after
// truncation: what the cache holds and the logits must be the same, bit for bit where the subject
// promises that.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "engine/model_state.h"
#include "ops/plan/op_values.h"
#include "verify/stages/stage_support.h"

namespace assay::verify {
namespace {

constexpr int64_t kCacheTokens = 300,
                  kQuickCacheTokens = 40;  // beyond the edge of attention's segments of 256 positions
constexpr int64_t kOutputs = 12;           // positions whose logits are compared
constexpr double kTolerance = 0.02;        // of logits, relative, where no bits are promised

// What a way to run the tokens left behind.
struct Left {
  std::vector<std::byte> cache;
  std::vector<std::vector<float>> logits;  // of the positions with outputs, in order
};

class Ways {
 public:
  Ways(const Subject& subject, const StageRun& run) : subject_(subject), run_(run) {
    const int64_t n = probe_size(subject, run, kQuickCacheTokens, kCacheTokens);
    ids_ = probe_ids(subject, run, n, n);
    other_ = ids_;
    std::rotate(other_.begin(), other_.begin() + static_cast<std::ptrdiff_t>(ids_.size() / 2), other_.end());
    const int64_t stride = (n + kOutputs - 1) / kOutputs;
    for (int64_t i = 0; i < n; ++i) outputs_.push_back((n - 1 - i) % stride == 0 ? 1 : 0);
  }
  int64_t n() const { return static_cast<int64_t>(ids_.size()); }

  Left prefill(bool other = false) const {
    const auto executor = subject_.make_executor(n(), n(), 1);
    Left left;
    feed(*executor, other ? other_ : ids_, 0, n(), 0, left);
    read_cache(*executor, 0, left);
    return left;
  }
  // Chunks of these sizes, then the rest token by token.
  Left chunks(std::vector<int64_t> sizes) const {
    const auto executor = subject_.make_executor(n(), n(), 1);
    Left left;
    int64_t begin = 0;
    for (const int64_t size : sizes) {
      const int64_t end = std::min(n(), begin + size);
      if (end > begin) feed(*executor, ids_, begin, end, 0, left);
      begin = end;
    }
    for (; begin < n(); ++begin) feed(*executor, ids_, begin, begin + 1, 0, left);
    read_cache(*executor, 0, left);
    return left;
  }
  // Both texts in one batch, their tokens by turns, or one text after the other. Sequence 1 comes first in each pair.
  std::pair<Left, Left> side_by_side(bool by_turns) const {
    end_if_cancelled(run_);
    const auto executor = subject_.make_executor(n(), 2 * n(), 2);
    std::vector<int32_t> tokens, positions, sequences;
    std::vector<uint8_t> outputs;
    const size_t n_both = 2 * ids_.size();
    for (size_t j = 0; j < n_both; ++j) {
      const int sequence = by_turns ? 1 - static_cast<int>(j % 2) : (j < ids_.size() ? 1 : 0);
      const size_t i = by_turns ? j / 2 : j % ids_.size();
      tokens.push_back(sequence == 0 ? ids_[i] : other_[i]);
      positions.push_back(static_cast<int32_t>(i));
      sequences.push_back(sequence);
      outputs.push_back(outputs_[i]);
    }
    executor->run({tokens, positions, sequences, outputs});
    std::pair<Left, Left> left;
    int64_t i_output = 0;
    for (size_t i = 0; i < n_both; ++i) {
      if (outputs[i] == 0) continue;
      (sequences[i] == 0 ? left.first : left.second).logits.push_back(copy(executor->logits(i_output++)));
    }
    read_cache(*executor, 0, left.first);
    read_cache(*executor, 1, left.second);
    return left;
  }
  // The whole text, then back to the middle, another ending, back again, and the right ending.
  Left truncated() const {
    const auto executor = subject_.make_executor(n(), n(), 1);
    Left left, ignored;
    const int64_t middle = n() / 2;
    feed(*executor, ids_, 0, n(), 0, ignored);
    executor->truncate(0, middle);
    feed(*executor, other_, middle, n(), 0, ignored);
    executor->truncate(0, middle);
    // One token by itself first: what lies behind it in the cache was truncated and must not be
    // seen.
    feed(*executor, ids_, middle, middle + 1, 0, left);
    feed(*executor, ids_, middle + 1, n(), 0, left);
    read_cache(*executor, 0, left);
    return left;
  }

 private:
  static std::vector<float> copy(std::span<const float> values) { return {values.begin(), values.end()}; }

  void feed(ops::Executor& executor, const std::vector<TokenId>& ids, int64_t begin, int64_t end, int sequence,
            Left& left) const {
    end_if_cancelled(run_);
    const auto first = static_cast<size_t>(begin), count = static_cast<size_t>(end - begin);
    std::vector<int32_t> positions(count);
    std::iota(positions.begin(), positions.end(), static_cast<int32_t>(begin));
    const std::vector<int32_t> sequences(count, sequence);
    const std::span<const uint8_t> outputs = std::span(outputs_).subspan(first, count);
    executor.run({std::span(ids).subspan(first, count), positions, sequences, outputs});
    const auto n_outputs = std::count(outputs.begin(), outputs.end(), uint8_t{1});
    for (int64_t i = 0; i < n_outputs; ++i) left.logits.push_back(copy(executor.logits(i)));
  }
  static void read_cache(const ops::Executor& executor, int sequence, Left& left) {
    executor.visit_cache(sequence, [&](std::span<const std::byte> bytes) {
      left.cache.insert(left.cache.end(), bytes.begin(), bytes.end());
    });
  }

  const Subject& subject_;
  const StageRun& run_;
  std::vector<TokenId> ids_, other_;
  std::vector<uint8_t> outputs_;
};

int64_t bytes_of(ops::CacheType type, int64_t width) {
  switch (type) {
    case ops::CacheType::f32: return 4 * width;
    case ops::CacheType::f16: return 2 * width;
    case ops::CacheType::q8_0: return width / 32 * 34;
  }
  return width;
}

// The layer of the model whose op fills this one of the cache; an indexer's is named.
std::string layer_of_cache(const ops::Plan& plan, int32_t layer) {
  for (const ops::Op& op : plan.ops) {
    if (op.record.role() != ops::Role::store || ops::cache_layer_of(op) != layer) continue;
    return op.name.ends_with(".kv_store") ? fmt::format("layer {}", op.layer)
                                          : fmt::format("layer {} ({})", op.layer, op.name);
  }
  return fmt::format("layer {}", layer);
}

// Where in the cache a byte lies: "layer 3, V, position 12".
std::string place_in_cache(const Subject& subject, int64_t at, int64_t total, int64_t n_positions) {
  const ops::Plan& plan = subject.model->state().built.plan;
  const auto find = [&](const auto& bytes) -> std::optional<std::string> {
    int64_t begin = 0;
    const int64_t element = bytes(false, 32) == 256 ? 8 : 4;  // of a state: the oracle's doubles, or floats
    std::optional<std::string> found;
    for (size_t layer = 0; layer < plan.cache_layers.size(); ++layer) {
      const ops::CacheLayer& of = plan.cache_layers[layer];
      for (const bool is_value : {false, true}) {
        const int64_t width = of.n_kv_heads * (is_value ? of.stored_v_dim() : of.head_dim);
        const int64_t row = bytes(is_value, width), end = begin + row * n_positions;
        if (at >= begin && at < end)
          found = fmt::format("{}, {}, position {}", layer_of_cache(plan, static_cast<int32_t>(layer)),
                              is_value ? "V" : "K", (at - begin) / row);
        begin = end;
      }
    }
    for (const ops::Op& op : plan.ops) {  // states stand in the order of their ops
      if (ops::state_of(op) == ops::kNone) continue;
      const int64_t end = begin + element * plan.states[static_cast<size_t>(ops::state_of(op))].n_floats();
      if (at >= begin && at < end) found = fmt::format("the state of {}, element {}", op.name, (at - begin) / element);
      begin = end;
    }
    return begin == total ? found : std::nullopt;
  };
  const auto declared = find([&](bool is_value, int64_t width) {
    return bytes_of(is_value ? subject.declared.cache_v : subject.declared.cache_k, width);
  });
  if (declared) return *declared;
  return find([](bool, int64_t width) { return 8 * width; })
      .value_or(fmt::format("byte {}", at));  // the oracle's doubles
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    error += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    norm += std::pow(static_cast<double>(b[i]), 2);
  }
  return a.size() == b.size() && std::isfinite(error) ? std::sqrt(error / std::max(norm, 1e-300)) : HUGE_VAL;
}

// found's logits may be fewer: of the last positions.
void compare(const Subject& subject, std::string_view way, const Left& found, const Left& expected, int64_t n_positions,
             Findings& findings) {
  if (subject.same_bits && found.cache != expected.cache) {
    const auto differ =
        std::mismatch(found.cache.begin(), found.cache.end(), expected.cache.begin(), expected.cache.end());
    const int64_t at = differ.first - found.cache.begin();
    if (found.cache.size() != expected.cache.size()) {
      findings.fail(fmt::format("{}: the cache has {} bytes, a prefill leaves {}", way, found.cache.size(),
                                expected.cache.size()));
    } else {
      findings.fail(fmt::format("{}: the cache differs from a prefill's, first in {}", way,
                                place_in_cache(subject, at, static_cast<int64_t>(found.cache.size()), n_positions)));
    }
  }
  const size_t skipped = expected.logits.size() - std::min(found.logits.size(), expected.logits.size());
  for (size_t i = 0; i < found.logits.size(); ++i) {
    const std::vector<float>&a = found.logits[i], &b = expected.logits[skipped + i];
    const double error = relative_error(a, b);
    if (subject.same_bits ? same_bits(a, b) : error <= kTolerance) continue;
    findings.fail(fmt::format("{}: the logits of output {} of {} differ from a prefill's, relative error {:.2e}", way,
                              skipped + i + 1, expected.logits.size(), error));
    return;
  }
}

}  // namespace

VerifyStage check_kv_cache(const Subject& subject, const StageRun& run) {
  return run_stage(run, "kv_cache", "KV cache", [&](Findings& findings) {
    const Ways ways(subject, run);
    const int64_t n = ways.n();
    if (n < 4) return findings.skip(fmt::format("the model's context of {} is too short", n));
    const Left prefill = ways.prefill();
    int64_t n_done = 0;
    const auto done = [&] { show_progress(run, ++n_done, 6); };
    done();
    compare(subject, "a second prefill", ways.prefill(), prefill, n, findings);
    done();
    if (!subject.model->state().built.plan.causal) {  // it is run whole
      const auto [one, other] = ways.side_by_side(false);
      compare(subject, "beside another sequence", one, prefill, n, findings);
      compare(subject, "as the second sequence", other, ways.prefill(true), n, findings);
      return findings.summary(fmt::format("{} of an encoder whole, again and beside another sequence: {}",
                                          plural(n, "token"),
                                          subject.same_bits ? "the same bits" : "the same to within 2 %"));
    }
    const int64_t n_left = std::max<int64_t>(n - 16, 0), n_third = std::min<int64_t>(64, n_left / 2);
    compare(subject, fmt::format("chunks of 1, 7, {}, {}, then tokens one by one", n_third, n_left - n_third),
            ways.chunks({1, 7, n_third, n_left - n_third}), prefill, n, findings);
    done();
    compare(subject, "two chunks", ways.chunks({n / 2 + 1, n}), prefill, n, findings);
    done();
    const auto [first, second] = ways.side_by_side(true);
    compare(subject, "beside another sequence", first, prefill, n, findings);
    compare(subject, "as the second sequence", second, ways.prefill(true), n, findings);
    done();
    compare(subject, "cut back to the middle and run anew", ways.truncated(), prefill, n, findings);
    findings.summary(
        fmt::format("{} as a prefill, again, in chunks, one by one, beside another sequence, after truncation: "
                    "{}",
                    plural(n, "token"), subject.same_bits ? "the same bits" : "the same to within 2 %"));
  });
}

}  // namespace assay::verify
