// Ops that read the cache in a way of their own: the choice of keys, and attention over those that were chosen. The
// latter gathers a token's keys into a cache of their own and runs attention's kernel over it; where all visible keys
// are chosen it runs over the cache itself.
#include "backend/cpu/rows/cached_kernels.h"

#include <algorithm>
#include <limits>

#include "backend/cpu/runtime/run_state.h"
#include "base/round_up.h"
#include "ops/attention/choose_keys.h"
#include "ops/attention/sparse_attention.h"

namespace assay::backend::cpu {
namespace {

using base::round_up;
using ops::kAttentionSegment;

// Fewer products of index heads than this are not worth a fork.
constexpr int64_t kChoiceForkProducts = 128 * 1024;

constexpr size_t bytes_of_floats(int64_t n) noexcept { return static_cast<size_t>(round_up(n, 16)) * sizeof(float); }

int64_t n_tokens(const RunState& s) noexcept { return static_cast<int64_t>(s.tokens.size()); }
int64_t n_visible(const RunState& s, int64_t token) noexcept {
  return s.positions[static_cast<size_t>(token)] + int64_t{1};
}
bool is_few(const RunState& s) noexcept { return n_tokens(s) < s.pool.n_threads(); }

// ---- The choice. A thread's memory: what the kernel needs, the scores, places to sort.
class Choice {
 public:
  Choice(const RunState& s, const ops::ChooseKeys& op) : s_(s), op_(op), n_chosen_(s.width(op.y)) {}

  static size_t scratch_bytes(const ops::ChooseKeys& op, int64_t n_ctx) {
    return index_scratch_bytes(op.head_dim) + bytes_of_floats(round_up(n_ctx, kKeyTile)) +
           bytes_of_floats(2 * op.head_dim) + static_cast<size_t>(n_ctx) * sizeof(int32_t);
  }

  void run() const {
    if (!is_few(s_)) {
      return s_.pool.run(n_tokens(s_), [this](int64_t i, int thread) {
        const int64_t token = n_tokens(s_) - 1 - i,
                      n = n_visible(s_, token);  // late tokens see most keys: longest work first
        if (n > n_chosen_) score(token, 0, n, scores_of(thread), thread);
        choose(token, thread);
      });
    }
    for (int64_t token = 0; token < n_tokens(s_); ++token) {
      const int64_t n = n_visible(s_, token), n_parts = (n + kAttentionSegment - 1) / kAttentionSegment;
      const auto part = [&](int64_t i, int thread) {
        score(token, i * kAttentionSegment, std::min(n, (i + 1) * kAttentionSegment), scores_of(0), thread);
      };
      if (n > n_chosen_ && n * op_.n_heads * op_.head_dim < kChoiceForkProducts) {
        for (int64_t i = 0; i < n_parts; ++i) part(i, 0);
      } else if (n > n_chosen_) {
        s_.pool.run(n_parts, part);
      }
      choose(token, 0);
    }
  }

 private:
  std::byte* memory(int thread) const { return s_.scratch[static_cast<size_t>(thread)]; }
  float* scores_of(int thread) const {
    return reinterpret_cast<float*>(memory(thread) + index_scratch_bytes(op_.head_dim));
  }

  void score(int64_t token, int64_t begin, int64_t end, float* scores, int thread) const {
    const CacheHead keys = s_.cache.head(op_.layer, s_.sequence_of(token), 0);
    if (op_.weights == ops::kNone) {
      const IndexBlock block{keys, both_signs(token, thread), kSigns, 2, scores};
      return s_.kernels.index_scores(block, begin, end, memory(thread));
    }
    const IndexBlock block{keys, s_.row(op_.q, token), s_.row(op_.weights, token), op_.n_heads, scores};
    s_.kernels.index_scores(block, begin, end, memory(thread));
  }
  // The kernel takes ReLUs: relu(q . k) - relu(-q . k) is q . k, exactly.
  static constexpr float kSigns[] = {1.0f, -1.0f};
  const float* both_signs(int64_t token, int thread) const {
    const float* q = s_.row(op_.q, token);
    float* both = scores_of(thread) + base::round_up(base::round_up(s_.n_ctx, kKeyTile), 16);
    for (int64_t j = 0; j < op_.head_dim; ++j) both[j] = q[j], both[op_.head_dim + j] = -q[j];
    return both;
  }
  void choose(int64_t token, int thread) const {
    const int64_t n = n_visible(s_, token);
    float* scores = scores_of(thread);
    auto* order = reinterpret_cast<int32_t*>(scores + round_up(round_up(s_.n_ctx, kKeyTile), 16) +
                                             round_up(2 * op_.head_dim, 16));
    ops::choose_by(op_, scores, n, n_chosen_, order, s_.row(op_.y, token));
  }

  const RunState& s_;
  const ops::ChooseKeys& op_;
  const int64_t n_chosen_;
};

// ---- A token's chosen keys of one KV head, one after the other.
class Gathered {
 public:
  static size_t bytes(const CacheHead& of, int64_t n) {
    const int64_t pages = pages::pages_of(n);
    return static_cast<size_t>(pages * (page_of(of).all()) +
                               round_up((pages + pages::PageTables::kTableAhead) * 4, 64));
  }

  Gathered(const CacheHead& from, const float* chosen, int64_t n, std::byte* memory)
      : from_(from), head_(from), chosen_(chosen), n_(n) {
    const PageBytes page = page_of(from);
    const int64_t pages = n_pages();
    head_.k = memory, head_.k_page_bytes = page.k;
    head_.v = head_.k + pages * page.k, head_.v_page_bytes = page.v;
    head_.v_scales = head_.v + pages * page.v, head_.v_scales_page_bytes = page.v_scales;
    auto* table = reinterpret_cast<int32_t*>(head_.v_scales + pages * page.v_scales);
    for (int64_t i = 0; i < pages + pages::PageTables::kTableAhead; ++i)
      table[i] = static_cast<int32_t>(i < pages ? i : 0);
    head_.pages = table;
  }

  int64_t n_pages() const noexcept { return pages::pages_of(n_); }
  const CacheHead& head() const noexcept { return head_; }
  void fill(int64_t i_page) const noexcept {
    for (int64_t i = i_page * kCachePage; i < std::min(n_, (i_page + 1) * kCachePage); ++i)
      copy_position(from_, static_cast<int64_t>(chosen_[i]), head_, i);
  }

 private:
  struct PageBytes {
    int64_t k, v, v_scales;
    int64_t all() const noexcept { return k + v + v_scales; }
  };
  static PageBytes page_of(const CacheHead& of) noexcept {
    const bool has_scales = !of.values_in_keys() && of.type_v == ops::CacheType::q8_0;
    return {kPageTiles * of.k_tile_bytes, kCachePage * of.v_row_bytes,
            has_scales ? round_up(kCachePage * (of.v_dim / 32) * 2, 64) : 0};
  }

  const CacheHead from_;
  CacheHead head_;
  const float* chosen_;
  int64_t n_;
};

// ---- Attention over the chosen keys. A thread's memory: what the kernel needs, then the keys of a token.
class Sparse {
 public:
  Sparse(const RunState& s, const ops::SparseAttention& op)
      : s_(s), op_(op), n_chosen_(s.width(op.chosen)), kernel_bytes_(kernel_bytes(s, op)) {}

  static size_t scratch_bytes(const RunState& s, const ops::SparseAttention& op) {
    const int64_t n = s.width(op.chosen);
    return kernel_bytes(s, op) + (n < s.n_ctx ? Gathered::bytes(s.cache.head(op.layer, 0, 0), n) : 0);
  }

  void run() const {
    const int64_t n_units = n_tokens(s_) * op_.n_kv_heads;
    if (n_units >= s_.pool.n_threads())
      return s_.pool.run(n_units, [this](int64_t unit, int thread) { run_unit(unit, Alone{thread}); });
    for (int64_t unit = 0; unit < n_units; ++unit) run_unit(unit, Together{s_.pool});
  }

 private:
  // Who works on one token and KV head: a thread, or all of them.
  struct Alone {
    int thread;
    template <class Work>
    void run(int64_t n, const Work& work) const {
      for (int64_t i = 0; i < n; ++i) work(i, thread);
    }
  };
  struct Together {
    base::ThreadPool& pool;
    int thread = 0;  // whose memory has the keys
    template <class Work>
    void run(int64_t n, const Work& work) const {
      pool.run(n, work);
    }
  };
  static size_t kernel_bytes(const RunState& s, const ops::SparseAttention& op) {
    const int64_t v_dim = s.plan.cache_layers[static_cast<size_t>(op.layer)].v_dim(),
                  n = std::min(s.width(op.chosen), s.n_ctx);
    return round_up(s.kernels.attention_scratch_bytes(op.head_dim, v_dim, n), 64);
  }

  template <class Workers>
  void run_unit(int64_t unit, const Workers& workers) const {
    const int64_t token = unit / op_.n_kv_heads, kv_head = unit % op_.n_kv_heads, n_visible_keys = n_visible(s_, token);
    const float* chosen = s_.row(op_.chosen, token);
    if (!(chosen[0] == chosen[0])) return poison(token, kv_head);
    const CacheHead head = s_.cache.head(op_.layer, s_.sequence_of(token), kv_head);
    const auto attend = [&](const CacheHead& keys, int64_t n) {
      workers.run(n_blocks(), [&](int64_t i, int thread) {
        s_.kernels.attention(block(keys, n, token, kv_head, i), memory(thread));
      });
    };
    if (n_visible_keys <= n_chosen_) return attend(head, n_visible_keys);
    const int64_t n = ops::n_chosen_in(chosen, n_chosen_);  // fewer where the last block is not full
    const Gathered gathered(head, chosen, n, memory(workers.thread) + kernel_bytes_);
    workers.run(gathered.n_pages(), [&](int64_t i, int) { gathered.fill(i); });
    attend(gathered.head(), n);
  }

  std::byte* memory(int thread) const { return s_.scratch[static_cast<size_t>(thread)]; }
  int64_t n_group() const noexcept { return op_.n_heads / op_.n_kv_heads; }
  int64_t n_blocks() const noexcept { return (n_group() + kAttentionRows - 1) / kAttentionRows; }
  int64_t v_dim() const noexcept { return s_.width(op_.y) / op_.n_heads; }

  void poison(int64_t token, int64_t kv_head) const {
    const int64_t n = n_group() * v_dim();
    std::fill_n(s_.row(op_.y, token) + kv_head * n, n, std::numeric_limits<float>::quiet_NaN());
  }

  AttentionBlock block(const CacheHead& keys, int64_t n, int64_t token, int64_t kv_head, int64_t i_block) const {
    AttentionBlock made;
    made.cache = keys;
    made.scale = static_cast<float>(op_.scale);
    made.n_rows = std::min(kAttentionRows, n_group() - i_block * kAttentionRows);
    for (int64_t i = 0; i < made.n_rows; ++i) {
      const int64_t head = kv_head * n_group() + i_block * kAttentionRows + i;
      made.q[i] = s_.column(op_.q, token, head * op_.head_dim);
      made.y[i] = s_.row(op_.y, token) + head * v_dim();
      made.last[i] = n - 1;
    }
    return made;
  }

  const RunState& s_;
  const ops::SparseAttention& op_;
  const int64_t n_chosen_;
  const size_t kernel_bytes_;
};

}  // namespace

void run_choose_keys(const RunState& state, const ops::Op& op) { Choice(state, op.get<ops::ChooseKeys>()).run(); }
size_t choose_keys_bytes(const RunState& state, const ops::Op& op) {
  return Choice::scratch_bytes(op.get<ops::ChooseKeys>(), state.n_ctx);
}
void run_sparse_attention(const RunState& state, const ops::Op& op) {
  Sparse(state, op.get<ops::SparseAttention>()).run();
}
size_t sparse_attention_bytes(const RunState& state, const ops::Op& op) {
  return Sparse::scratch_bytes(state, op.get<ops::SparseAttention>());
}

}  // namespace assay::backend::cpu
