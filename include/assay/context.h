// A context: a model at work. It holds the KV cache, the scratch memory and the threads, and runs tokens to logits. One
// thread uses it at a time; contexts of one model are independent. Results depend on the tokens and the numerics alone:
// not on threads, chunks or kernels.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "assay/kernels.h"
#include "assay/model.h"

namespace assay {

enum class Numerics {
  exact,   // integer dots over activations of activation_bits; the same bits on every machine
  f32,     // weights decoded to f32, activations f32; the same bits on every machine, closest to the file's own values
  fast,    // of one GPU: float weights and attention on its float tensor cores, the rest as exact; the same bits on one
           // model of GPU, whatever the batch and the chunks; how far from exact: docs/numerics.md, section 7
  oracle,  // float64 throughout, plain loops, slow; the cache is float64 whatever cache_k and cache_v say
};
enum class KvType { f16, q8_0, f32 };
// automatic: the NVIDIA GPU where this build and this machine have one, kernels were not asked for by name and the mode
// is not oracle. vulkan is never chosen by itself.
enum class Backend { automatic, cpu, cuda, vulkan };
// How several GPUs share a model. layer: each has some of the layers and they take turns, so a larger model fits.
// tensor: each has some of the heads and some of the rows of every matrix, and they work at the same time. Nothing of
// this changes a bit.
enum class SplitMode { layer, tensor };

// By the names that flags have: "auto", "cpu", "cuda", "vulkan"; "exact", "f32", "fast", "oracle"; "f16", "q8_0",
// "f32". parse_x: Error(bad_request) that lists the names.
std::string_view name(Numerics numerics) noexcept;
std::string_view name(KvType type) noexcept;
std::string_view name(Backend backend) noexcept;
Numerics parse_numerics(std::string_view text);
KvType parse_kv_type(std::string_view text);
Backend parse_backend(std::string_view text);

struct ContextOptions {
  int64_t n_ctx = 0;          // positions per sequence (-c); 0: the smaller of the model's own and 4096
  int64_t n_ubatch = 512;     // tokens per chunk at most (-ub)
  int64_t n_outputs_max = 0;  // logits rows kept at a time by decode_all, which makes its chunks that small, and by
                              // decode_batch; 0: one per sequence, or as many as 16 MiB hold where that is more
  int n_threads = 0;          // 0: one per physical core
  bool pin_threads = false;
  Numerics numerics = Numerics::exact;
  int activation_bits = 15;  // modes exact and fast: 15 or 8; fast also 16: quantised weights in half precision
  KvType cache_k = KvType::f16;
  KvType cache_v = KvType::f16;
  Kernels kernels = Kernels::best;
  std::string kernel_row = {};  // of the set, which must be named then (KernelChoice); empty: by the set's table
  Backend backend = Backend::cpu;
  // Of backend automatic, cuda or vulkan. n_gpu_layers (-ngl): the last N layers and the output run on the GPU, the
  // others on the CPU; -1 or at least the model's layers: all of them; 0: the CPU. devices: the GPUs by number that
  // share these layers out, in this order; empty: the first (of vulkan the first that is no software). device_shares:
  // how much of them each has, as many as there are devices; empty: the same. Nothing of this changes a bit.
  int64_t n_gpu_layers = -1;
  std::vector<int> devices = {};
  std::vector<float> device_shares = {};
  SplitMode split_mode =
      SplitMode::layer;  // tensor: backend cuda, 2 to 8 devices with equal shares, and all layers on them
  int n_sequences = 1;   // independent token sequences, each with n_ctx positions
  // On the CPU and with backend cuda, but for split mode tensor and models that keep states there, the cache is a pool
  // of pages that sequences take as they grow and may share: n_positions_max, of all of them together (0: n_ctx for
  // each of n_sequences; elsewhere nothing else can be had), and n_kept, further sequences that hold what may be wanted
  // again.
  int64_t n_positions_max = 0;
  int n_kept = 0;
  // Nobody goes back to where layers that look back over a window have given theirs back: such layers need less memory.
  // For a Scheduler, which sets it; with it a plain context may run out of pages.
  bool gives_back_windows = false;
  // The rows that the head would read (d_model wide), in place of the logits, wherever this header says logits: what
  // embeddings are made of (assay/embed.h). On the CPU alone. An encoder has nothing else, and a sequence of it is run
  // whole, in one run from position 0 on.
  bool embeddings = false;
  // Told how many bytes of weights are on a GPU already, of all that this one takes; of several GPUs one after the
  // other. Called while the context is made, by the thread that makes it.
  std::function<void(int64_t done, int64_t total)> on_load = {};
};

void set_kernels(ContextOptions& options, std::string_view text);  // as parse_kernel_choice reads it

// The options with one thing changed: the numerics to "exact/15" (also "exact"), "exact/8", "f32", "fast" or "oracle",
// or, with the same bits as before, the kernels to "reference" or another set, the backend to "cpu", "cuda" or
// "vulkan". Nothing where the text names no mode; kModeNames lists them.
inline constexpr std::string_view kModeNames =
    "exact/15, exact/8, f32, fast, oracle, reference, avx2, avx512, neon, neon-i8mm, cpu, cuda, vulkan";
std::optional<ContextOptions> with_mode(ContextOptions options, std::string_view mode);

struct MemoryFigures {
  int64_t weights_bytes = 0;  // mapped from the file
  int64_t cache_bytes = 0;
  int64_t arena_bytes = 0;  // activations, logits and scratch
};

struct BatchToken {
  TokenId token = 0;
  int sequence = 0;
  bool wants_logits = true;
};

// A logit and whose it is.
struct RankedLogit {
  TokenId id = 0;
  float logit = 0;
};

// What a call that runs tokens does beside running them.
struct RunRequest {
  std::function<bool()> cancelled = {};  // polled before every chunk of decode and decode_all; true ends the call early
  std::function<void(int64_t done, int64_t total)> progress =
      {};  // after every chunk of theirs, with the tokens of the call that are done
  // The n best logits after every token that wants logits are found where they were made, so that only these leave the
  // GPU: what a Sampler needs (its n_ranked()). Context::ranked() has them then; more than Context::n_ranked_max() are
  // not found, and logits() are there as ever.
  int64_t n_ranked = 0;
  // Says that after a token, or a batch of one token of each of several sequences, all of which want logits, the best
  // one of ranked() will most likely be run next, so that a GPU may begin with it before it is asked to. Whatever is
  // run then has the results that it would have had; where it is something else, it waits for the run that was begun
  // for nothing. Nothing begins early where Context::runs_ahead() says no, nor while not exactly the best one is asked
  // for (n_ranked 1).
  bool follows_best = false;
};

class Context {  // one thread at a time
 public:
  // Error(bad_request) for options that cannot be served, Error(out_of_memory) with need.
  Context(std::shared_ptr<const Model> model, const ContextOptions& options = {});
  ~Context();
  Context(Context&&) noexcept;
  Context& operator=(Context&&) noexcept;

  const Model& model() const noexcept;
  const ContextOptions& options() const noexcept;  // with every 0 replaced by what it stands for
  std::string_view kernels()
      const noexcept;  // what runs, e.g. "avx512", "reference", "oracle", "cuda", "10 layers avx512, 20 cuda0"
  // Kinds of operations that the device has no kernel of its own for, as `assay plan --kernels` marks them, each once in
  // the plan's order: the host runs their scalar reference, on a GPU's rows between copies.
  std::vector<std::string> borrowed() const;

  // Runs the tokens at the positions that follow the sequence's last one. Before any work: Error(bad_request) where
  // they are none, an id is not of the vocabulary, or they do not fit into n_ctx. Returns how many tokens were run:
  // all, or fewer where the request's hook said stop. decode: afterwards logits() are those after the last token run.
  // decode_all: sink gets the logits after every token, in order, as doubles (in exact and f32 these are the floats,
  // widened); the span is valid during the call.
  using LogitsSink = std::function<void(int64_t position, std::span<const double> logits)>;
  int64_t decode(std::span<const TokenId> tokens, int sequence = 0, const RunRequest& request = {});
  int64_t decode_all(std::span<const TokenId> tokens, const LogitsSink& sink, int sequence = 0,
                     const RunRequest& request = {});

  // Tokens of several sequences in one pass over the weights, at most n_ubatch of them and n_outputs_max that want
  // logits: what a server that serves many at a time calls. A sequence's tokens stand in order and take the positions
  // that follow its last one; which others run beside them changes no bit. Before any work: Error(bad_request) as
  // decode. Afterwards batch_logits(i) are those after the i-th token that wants them, valid until the next run, and
  // logits() are the last of these.
  void decode_batch(std::span<const BatchToken> tokens, const RunRequest& request = {});
  std::span<const float> batch_logits(int64_t i_output) const;

  // The logits after the last token run, vocab_size of them, valid until the next run. Error(bad_request) before the
  // first run and after a cancelled call of decode.
  std::span<const float> logits() const;
  std::span<const double> logits_double() const;  // mode oracle: its own numbers; else the floats, widened

  // The best logits that the call asked for, of the last token run, or of output i of the last batch: descending, the
  // lower id first among equals. Fewer than were asked for where the others are minus infinity; none where none were,
  // or where a logit is no finite number, as logits() then show.
  std::span<const RankedLogit> ranked() const;
  std::span<const RankedLogit> batch_ranked(int64_t i_output) const;
  int64_t n_ranked_max() const noexcept;  // how many of them are found where they were made: 0 on the CPU
  // Whether RunRequest::follows_best does anything here: not on the CPU, of a model split by layers, on GPUs that do
  // not reach one another.
  bool runs_ahead() const noexcept;

  int64_t n_ctx() const noexcept;
  int64_t n_past(int sequence = 0) const;                // positions in the cache
  void truncate(int64_t n_positions, int sequence = 0);  // forgets the positions from n_positions on
  void clear();                                          // forgets everything, of all sequences

  // XXH3-128 in 32 hexadecimal digits. kv: the cache's bits, layer by layer, K then V, position by position. logits:
  // the bits (f32; f64 in mode oracle) of every position of sequence 0, which decode_all must have run from position 0
  // on without truncation: else Error(bad_request).
  std::string kv_digest(int sequence = 0) const;
  std::string logits_digest() const;

  MemoryFigures memory() const noexcept;

  struct State;  // engine/context_state.h, for the library itself
  State& state() noexcept { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

}  // namespace assay
