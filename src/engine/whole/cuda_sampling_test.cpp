// Answers on the GPU are those of the CPU, token by token, whether the chain draws from the best logits, which alone
// leave the device then, or needs all of them; and sequences that decode together have the logits that each has alone.
#include <gtest/gtest.h>

#include <algorithm>

#include "assay/context.h"
#include "assay/sampler.h"
#include "support/engine/cuda_tiny_llama.h"

namespace assay {
namespace {

class CudaSampling : public test::CudaTinyLlama {
 protected:
  Context context(Backend backend, int n_sequences = 1) const {
    ContextOptions options;
    options.backend = backend;
    options.n_ctx = 64;
    options.n_threads = 2;
    options.n_sequences = n_sequences;
    return Context(model_, options);
  }
};

std::vector<TokenId> answer(Context& context, const SamplerOptions& chain, int64_t n_ranked) {
  Sampler sampler(chain, context.model().vocab_size());
  EXPECT_LE(n_ranked, context.n_ranked_max());
  const RunRequest request{.n_ranked = n_ranked};
  context.clear();
  std::vector<TokenId> ids = {1, 5, 9};
  sampler.start(ids);
  context.decode(ids, 0, request);
  for (int i = 0; i < 40; ++i) {
    const auto position = static_cast<int64_t>(ids.size());
    ids.push_back(n_ranked > 0 ? sampler.sample(context.ranked(), position)
                               : sampler.sample(context.logits(), position));
    sampler.accept(ids.back());
    context.decode(std::span(ids).last(1), 0, request);
  }
  return ids;
}

TEST_F(CudaSampling, AnswersAreThoseOfTheCpu) {
  Context cpu = context(Backend::cpu), gpu = context(Backend::cuda);
  SamplerOptions greedy, warm, narrow, penalised;
  greedy.temperature = 0;
  warm.seed = 11;
  narrow.top_k = 5;
  narrow.typical_p = 0.9;
  penalised.repeat_penalty = 1.3;
  for (const SamplerOptions& chain : {greedy, warm, narrow, penalised}) {
    const int64_t n_ranked = Sampler(chain, model_->vocab_size()).n_ranked();
    const std::vector<TokenId> expected = answer(cpu, chain, 0);
    EXPECT_EQ(answer(gpu, chain, 0), expected);
    if (n_ranked > 0) {
      EXPECT_EQ(answer(gpu, chain, n_ranked), expected) << n_ranked;
    }
  }
  EXPECT_EQ(cpu.n_ranked_max(), 0);
  EXPECT_LT(gpu.n_ranked_max(), model_->vocab_size());
  const TokenId first = 1;
  gpu.decode({&first, 1}, 0, {.n_ranked = model_->vocab_size()});  // none then, and the logits as ever
  EXPECT_TRUE(gpu.ranked().empty());
  EXPECT_FALSE(gpu.logits().empty());
}

TEST_F(CudaSampling, SequencesTogetherHaveTheLogitsOfEachAlone) {
  constexpr int kSequences = 37;
  Context alone = context(Backend::cpu), together = context(Backend::cuda, kSequences);
  const auto token_of = [](int sequence, int i) { return static_cast<TokenId>((sequence * 131 + i * 17) % 5000); };
  for (int sequence = 0; sequence < kSequences; ++sequence) {  // prompts of different lengths
    for (int i = 0; i < sequence % 5; ++i) {
      const TokenId id = token_of(sequence, i);
      together.decode({&id, 1}, sequence);
    }
  }
  for (int step = 0; step < 6; ++step) {  // the third run of a shape is a graph
    std::vector<BatchToken> batch;
    for (int sequence = 0; sequence < kSequences; ++sequence)
      batch.push_back({token_of(sequence, sequence % 5 + step), sequence, true});
    together.decode_batch(batch, {.n_ranked = 3});
  }
  for (int sequence = 0; sequence < kSequences; ++sequence) {
    std::vector<TokenId> ids;
    for (int i = 0; i < sequence % 5 + 6; ++i) ids.push_back(token_of(sequence, i));
    alone.clear();
    alone.decode(ids);
    const std::span<const float> expected = alone.logits(), found = together.batch_logits(sequence);
    ASSERT_TRUE(std::equal(expected.begin(), expected.end(), found.begin(), found.end())) << sequence;
    ASSERT_EQ(together.batch_ranked(sequence).front().id, argmax(expected));
    ASSERT_EQ(together.batch_ranked(sequence).size(), 3u);
  }
}

}  // namespace
}  // namespace assay
