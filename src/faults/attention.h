// Attention with one thing changed, for the entries about it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "faults/table.h"

namespace assay::faults::dictionary {

// Keys and values of one sequence as the cache gives them back: [n, width], [n, v_width].
struct KeyValues {
  std::vector<double> k, v;
  int64_t n = 0, width = 0, v_width = 0;
};
using Cache = std::map<int, std::shared_ptr<const KeyValues>>;

struct Range {
  int64_t begin = 0, end = 0;
};

// Called with the scaled scores of the visible keys, and the head's sink behind them where it has one; leaves shares.
using Shares = std::function<void(std::span<double> scores)>;
void softmax(std::span<double> scores);

struct AttentionRule {
  double scale = 1;
  Cache cache;
  std::function<int(int64_t row)> sequence;
  std::function<Range(int64_t row)> visible;  // positions; cut to what the cache holds
  std::function<int64_t(int64_t head)> kv_head;
  std::function<double(double raw)> score;      // q k before the scale; empty: unchanged
  std::function<double(double scaled)> capped;  // empty: unchanged
  std::vector<double> sinks;                    // of each head; empty: none
  ops::RopeId rotated_by = ops::kNone;          // queries and keys are turned by it first; kNone: they are not
  Shares shares = softmax;
  bool half_sums = false;  // outputs summed in f16
};

// Whether the failed op has the history that attention needs; and whether keys and values are of one width, as the
// entries about caches take them.
bool has_history(const Case& c);
bool has_plain_cache(const Case& c);
AttentionRule right_attention(const Case& c);
RowFunction attention_with(const Case& c, AttentionRule rule);

// The history as a cache of these types gives it back.
Cache cache_as(const Case& c, ops::CacheType k, ops::CacheType v);
using Change = std::function<void(int sequence, KeyValues& kv)>;
Cache changed_cache(const Cache& cache, const Change& change);

}  // namespace assay::faults::dictionary
