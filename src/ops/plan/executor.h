// What a device offers: run a Plan over a batch of tokens and keep the KV cache between runs. One implementation per
// backend folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/pending_copies.h"
#include "ops/plan/plan.h"

namespace assay::ops {

// Sees the value that each op wrote. Observing never changes what runs; a fused op announces its members one by one.
class OpObserver {
 public:
  virtual ~OpObserver() = default;
  virtual bool wants(const Op& op) = 0;
  // values: [n_rows, width] row-major; what KvStore and SelectOutputs pass on is the value they read.
  virtual void on_op(const Op& op, int64_t n_rows, int64_t width, std::span<const double> values) = 0;
};

// Told how long the parts of a run took.
class StepTimer {
 public:
  virtual ~StepTimer() = default;
  // i_ops: indices into Plan::ops of the ops that ran together.
  virtual void on_step(std::span<const int32_t> i_ops, int64_t nanoseconds) = 0;
};

// Which tokens may follow an output: bit id % 64 of word id / 64, as many words as the vocabulary needs.
struct AllowedTokens {
  int64_t i_output = 0;
  std::span<const uint64_t> words;
};

// Which tokens may follow the outputs of a run, told to an executor that ranks them while its device is at work: then
// making masks takes no time of a run.
class OutputMasks {
 public:
  virtual ~OutputMasks() = default;
  // Of some of the outputs, each named once; of the others all tokens may follow. Once a run, in the thread that runs
  // it; the words live until the run has ended.
  virtual std::span<const AllowedTokens> allowed() noexcept = 0;
};

// Known before the run.
class KnownMasks final : public OutputMasks {
 public:
  explicit KnownMasks(std::span<const AllowedTokens> allowed) : allowed_(allowed) {}
  std::span<const AllowedTokens> allowed() noexcept override { return allowed_; }

 private:
  std::span<const AllowedTokens> allowed_;
};

// What is wanted of a run beside its logits. Nothing of it outlives the run, and nothing of it changes a bit of logits
// or cache.
struct RunRequest {
  // The n best logits of every output, found where they were made: Executor::ranked. 0: none; more than RunSupport has:
  // none.
  int64_t n_ranked = 0;
  // ranked() looks at nothing but the tokens that these allow; logits() have all. Asked only where the best are found.
  // Null: all tokens.
  OutputMasks* masks = nullptr;
  // The caller says that after this batch, all of whose tokens want their logits, each of a sequence of its own, it
  // will most likely run the best token after each of them, ranked(i).front(), at the next position: an executor that
  // can begins with that before it is asked. What is run then may be that or anything else, with the same results as
  // ever. Only where the one best logit is asked for, of all tokens.
  bool follows_best = false;
  OpObserver* observer = nullptr;  // null: nobody
  StepTimer* timer = nullptr;      // null: nobody
};

// What of a RunRequest an executor does; the rest is as if it had not been asked.
struct RunSupport {
  int64_t n_ranked_max = 0;
  bool follows_best = false, timer = false;
};

// Tokens to run in one go. Positions of one sequence ascend by 1 and begin where its cache ends.
struct Batch {
  std::span<const int32_t> tokens;     // ids, checked by the caller
  std::span<const int32_t> positions;  // as many
  std::span<const int32_t> sequences;  // as many; empty: all 0
  std::span<const uint8_t> outputs;    // as many: 1 where logits are wanted
  RunRequest request = {};
};

enum class CacheType { f32, f16, q8_0 };

struct ExecutorOptions {
  int64_t n_ctx = 0;          // positions per sequence
  int64_t n_batch_max = 512;  // tokens per run at most
  int64_t n_outputs_max = 512;
  int n_sequences = 1;
  int n_at_once = 0;            // of these in a batch, up to which batches of a token each have to be fast; 0: all
  int64_t n_positions_max = 0;  // of all sequences together, where the executor keeps them in pages; 0: n_ctx for each
  bool gives_back_windows = false;  // forget() before every run: of layers with a window pages are held that later
                                    // tokens see, or lengths that are kept
  CacheType cache_k = CacheType::f16;
  CacheType cache_v = CacheType::f16;
  int64_t checkpoint_interval = 256;  // positions from one checkpoint of states to the next
  bool weights_as_f32 = false;        // mode f32: every weight decoded, activations f32, Lanes32
  int planes = 2;                     // modes exact and fast: 2 planes (15 bits) or 1 (8 bits)
  bool fast =
      false;  // mode fast: float weights and attention on a GPU's float tensor cores; other devices know no such mode
  bool halves = false;  // of mode fast: quantised weights are multiplied as those of F16 are, rounded to half precision
  std::function<void(int64_t done, int64_t total)> on_load =
      {};  // bytes of weights that were copied to a device of its own
};

// The memory of a cache that is kept in pages.
struct CachePages {
  int64_t n_positions = 0;  // of a page; 0: this cache has no pages
  int64_t n_pages = 0, n_free = 0;
  size_t page_bytes = 0;  // of a page's image
  size_t window_bytes =
      0;  // of these: of layers that look back over a window, whose part of a page can be given back by itself
  size_t used_bytes = 0;     // of all pages in use
  bool with_states = false;  // forks take along the states of a plan that has some; images of pages never do
};

// Pages of n_page positions for the positions that the options ask for.
constexpr int64_t cache_pages(const ExecutorOptions& options, int64_t n_page) noexcept {
  const auto in_pages = [n_page](int64_t n) { return (n + n_page - 1) / n_page; };
  return options.n_positions_max > 0 ? in_pages(options.n_positions_max)
                                     : options.n_sequences * in_pages(options.n_ctx);
}

// A kernel that an executor runs an op with, for a range of tokens.
struct KernelUse {
  int64_t tokens_min = 1, tokens_max = 0;  // 0: any number
  std::string name;
  bool borrowed = false;  // the op's scalar reference, where the device has no kernel of its own
};

// A logit and whose it is.
struct RankedLogit {
  int32_t token = 0;
  float logit = 0;
};

class Executor {
 public:
  virtual ~Executor() = default;
  // Runs the batch; afterwards logits(i) is valid for the i-th token with outputs == 1, until the next run.
  virtual void run(const Batch& batch) = 0;
  virtual std::span<const float> logits(int64_t i_output) const = 0;
  // The same in double: exact widening, but the oracle's own numbers in mode oracle.
  virtual void read_logits(int64_t i_output, std::span<double> out) const = 0;
  virtual RunSupport supports() const { return {}; }
  // After a run that asked for the best logits: descending, the lower token first among equals; fewer than n where the
  // others are minus infinity. None at all where a logit is a NaN or +infinity: logits() show it.
  virtual std::span<const RankedLogit> ranked(int64_t /*i_output*/) const { return {}; }
  // Of a part of a split plan: the rows of its input, to be filled before the next run of as many tokens; and after a
  // run the rows that it hands on, valid until the next run. Each [n_tokens, width]; the plan says whether there are
  // any.
  virtual std::span<float> input(int64_t /*n_tokens*/) { return {}; }
  virtual std::span<const float> handed() const { return {}; }
  // Forgets the positions of a sequence from n_positions on. A plan with states goes back further, to where a
  // checkpoint of them was kept (ops/state/state_store.h), and so does a sequence that gave back what it would see
  // (forget()): n_positions() says how far; the tokens from there on have to be run again.
  virtual void truncate(int sequence, int64_t n_positions) = 0;
  virtual int64_t n_positions(int sequence) const = 0;

  // ---- Of a cache in pages, which sequences may share: an executor without them says so by pages() and has none of
  // what follows. A run for which pages are short does nothing: Error(out_of_memory).
  virtual CachePages pages() const { return {}; }
  // Pages that a run of n_more tokens of the sequence would take.
  virtual int64_t n_pages_needed(int /*sequence*/, int64_t /*n_more*/) const { return 0; }
  // Sequence `to` becomes the first n_positions of `from`. Full pages are shared, the last one is copied where it is
  // not full, which takes a page. False, and nothing happens: not by this executor, or no page is free.
  virtual bool fork(int /*from*/, int64_t /*n_positions*/, int /*to*/) { return false; }
  // Nobody will cut the sequence to, or fork, more than `begin` and fewer than `end` positions: of layers with a
  // window, the pages that only these lengths need are given back.
  virtual void forget(int /*sequence*/, int64_t /*begin*/, int64_t /*end*/) {}
  // The most positions, n at most, behind which the sequence, or a fork of it, can go on: all that later tokens see is
  // there.
  virtual int64_t n_usable(int /*sequence*/, int64_t n) const { return n; }
  // Whether a page has the part of the layers with a window.
  virtual bool holds_window(int /*sequence*/, int64_t /*i_page*/) const { return true; }
  // A page's image, page_bytes of it, for keeping elsewhere; and back again, behind full pages: n_positions more of the
  // sequence, of one page at most. One of page_bytes - window_bytes is without the layers that have a window. False:
  // not by this executor, or no page is free.
  virtual bool read_page(int /*sequence*/, int64_t /*i_page*/, std::span<std::byte> /*image*/) const { return false; }
  virtual bool append_page(int /*sequence*/, int64_t /*n_positions*/, std::span<const std::byte> /*image*/) {
    return false;
  }
  // The same where images may be copied beside the runs: until `copies` has none any more, who gave an image leaves it
  // alone, and alive. What happens to the page or the sequence meanwhile changes nothing of it.
  virtual bool begin_read_page(int sequence, int64_t i_page, std::span<std::byte> image,
                               base::PendingCopies& /*copies*/) const {
    return read_page(sequence, i_page, image);
  }
  virtual bool begin_append_page(int sequence, int64_t n_positions, std::span<const std::byte> image,
                                 base::PendingCopies& /*copies*/) {
    return append_page(sequence, n_positions, image);
  }
  // False: a run of the sequence would wait for such copies.
  virtual bool is_ready(int /*sequence*/) const { return true; }

  // The cache's bits, for digests and comparison: layer by layer, K of all positions, then V of all positions,
  // position-major, in the cache's type whatever the layout in memory; then every state, where there are positions.
  virtual void visit_cache(int sequence, const std::function<void(std::span<const std::byte>)>& sink) const = 0;
  // Of the op at that place of the plan, ascending by tokens; none where this executor cannot tell.
  virtual std::vector<KernelUse> kernels_of(int32_t /*i_op*/) const { return {}; }
  virtual size_t cache_bytes() const = 0;
  virtual size_t arena_bytes() const = 0;  // activations and scratch
};

}  // namespace assay::ops
