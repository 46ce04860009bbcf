// What a Context holds, for the rooms' own use (trace, verify). Programs use assay/context.h.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "assay/context.h"
#include "base/thread_pool.h"
#include "engine/bits_digest.h"
#include "ops/plan/executor.h"

namespace assay {

struct Context::State {
  State(std::shared_ptr<const Model> loaded, const ContextOptions& asked);

  // masks: of the outputs of the call, whose best logits alone know of them (ops::RunRequest); null: none.
  int64_t decode(std::span<const TokenId> tokens, int sequence, const RunRequest& request,
                 ops::OutputMasks* masks = nullptr);
  void decode_batch(std::span<const BatchToken> batch, const RunRequest& request, ops::OutputMasks* masks = nullptr);
  // Runs tokens in chunks of at most n_chunk_max; after each, done(i_first, n) is called. Returns the tokens run.
  int64_t run(std::span<const TokenId> tokens, int sequence, int64_t n_chunk_max, bool all_outputs,
              const RunRequest& request, ops::OutputMasks* masks,
              const std::function<void(int64_t i_first, int64_t n)>& done);
  ops::RunRequest of_executor(const RunRequest& request) const noexcept;
  void check_request(std::span<const TokenId> tokens, int sequence) const;
  void check_token(TokenId token, size_t i) const;
  void check_room(int64_t n_tokens, int sequence) const;
  void check_sequence(int sequence) const;
  const ops::Plan& plan() const noexcept;  // that the executor runs
  std::span<const double> read_logits(int64_t i_output);
  int n_sequences() const noexcept { return options.n_sequences + options.n_kept; }
  int64_t output_width() const noexcept { return static_cast<int64_t>(logits_double.size()); }
  std::span<const RankedLogit> read_ranked(int64_t i_output);
  void add_to_digest(int64_t i_output, int64_t position, int sequence);

  std::shared_ptr<const Model> model;
  ContextOptions options;                     // resolved
  std::unique_ptr<const ops::Plan> headless;  // of embeddings, where the model has a head
  base::ThreadPool pool;
  std::unique_ptr<ops::Executor> executor;
  std::string kernels;

  // Of the chunk at work; sized once.
  std::vector<int32_t> batch_tokens;  // of decode_batch
  std::vector<int32_t> positions;
  std::vector<int32_t> sequences;
  std::vector<uint8_t> outputs;

  int64_t i_logits = -1;               // which of the executor's outputs logits() means; -1: none
  int64_t n_batch_outputs = 0;         // of the last run, where decode_batch made it
  std::vector<int64_t> next_position;  // per sequence
  std::vector<double> logits_double;   // vocab_size, or d_model of embeddings
  std::vector<RankedLogit> ranked;     // of the output that was asked for last
  engine::BitsDigest logits_digest;    // of sequence 0's positions [0, n_digested)
  int64_t n_digested = 0;
  ops::OpObserver* observer = nullptr;  // of every run, while a Watched lives
  ops::StepTimer* timer = nullptr;
};

namespace engine {

// Error(bad_request) where there are none, or too many for the context; and where a token is not of the vocabulary.
void check_prompt_size(int64_t n_tokens, int64_t n_ctx);
void check_prompt_token(TokenId token, size_t i, int64_t vocab_size);

// Every run of the context is seen by an observer, or timed, for as long as this lives.
class Watched {
 public:
  Watched(Context::State& state, ops::OpObserver& observer) : state_(state) { state_.observer = &observer; }
  Watched(Context::State& state, ops::StepTimer& timer) : state_(state) { state_.timer = &timer; }
  ~Watched() { state_.observer = nullptr, state_.timer = nullptr; }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

 private:
  Context::State& state_;
};

}  // namespace engine

}  // namespace assay
