// A GPU that begins with the best token before it is asked for gives what it gives otherwise: tokens, logits, cache,
// whatever is asked for next.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

#include "assay/context.h"
#include "assay/error.h"
#include "assay/generate.h"
#include "assay/sampler.h"
#include "engine/model_state.h"
#include "support/engine/cuda_gpus.h"
#include "support/engine/cuda_tiny_llama.h"
#include "support/random_numbers.h"
#include "support/shared_data.h"

namespace assay {
namespace {

constexpr int kSequences = 3;

class CudaRunAhead : public test::CudaTinyLlama {
 protected:
  CudaRunAhead() {
    options_.backend = Backend::cuda;
    options_.n_ctx = 300;  // two segments of attention
    options_.n_ubatch = 32;
    options_.n_threads = 2;
    options_.n_sequences = kSequences;
  }

  ContextOptions options_;
};

std::vector<TokenId> tokens(test::Random& random, int64_t n, int n_vocab = 5000) {
  std::vector<TokenId> ids;
  for (int64_t i = 0; i < n; ++i) ids.push_back(random.below(n_vocab));
  return ids;
}

void expect_same(std::span<const float> a, std::span<const float> b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  ASSERT_TRUE(std::equal(a.begin(), a.end(), b.begin())) << what << ": other logits";
}

struct Answer {
  std::vector<TokenId> ids;
  std::vector<float> logits;  // a few of every token's
  std::string cache;
  bool operator==(const Answer&) const = default;
};

// reads: how often logits are looked at, in tokens.
Answer greedy(Context& context, std::span<const TokenId> prompt, int n, bool follows, int reads) {
  Answer answer;
  EXPECT_TRUE(context.n_ranked_max() > 0 && context.runs_ahead());
  context.clear();
  context.decode(prompt, 0, {.n_ranked = 1});
  for (int i = 0; i < n; ++i) {
    const TokenId best = context.ranked().front().id;
    answer.ids.push_back(best);
    context.decode({&best, 1}, 0, {.n_ranked = 1, .follows_best = follows && i + 1 < n});
    if (i % reads == 0) {
      EXPECT_EQ(argmax(context.logits()), context.ranked().front().id);
      const std::span<const float> some = context.logits().subspan(static_cast<size_t>(best) / 2, 16);
      answer.logits.insert(answer.logits.end(), some.begin(), some.end());
    }
  }
  answer.cache = context.kv_digest();
  return answer;
}

TEST_F(CudaRunAhead, GivesTheSameAnswers) {
  test::Random random(1);
  const std::vector<TokenId> prompt = tokens(random, 5);
  for (const KvType type : {KvType::f16, KvType::f32, KvType::q8_0}) {
    for (const int bits : {8, 15}) {
      options_.cache_k = options_.cache_v = type;
      options_.activation_bits = bits;
      Context context(model_, options_);
      for (const int reads : {1, 7}) {
        const Answer expected = greedy(context, prompt, 270, false, reads),
                     found = greedy(context, prompt, 270, true, reads);
        EXPECT_EQ(found.ids, expected.ids);
        EXPECT_TRUE(found == expected) << static_cast<int>(type) << ", " << bits << " bits, every " << reads;
      }
    }
  }
}

// Two contexts, of which the second runs ahead, are asked for the same things in an order that is random but always the
// same.
class Pair {
 public:
  Pair(const std::shared_ptr<const Model>& model, const ContextOptions& a, const ContextOptions& b)
      : n_vocab_(static_cast<int>(model->state().built.plan.vocab_size)), a_(model, a), b_(model, b), random_(7) {
    EXPECT_TRUE(b_.runs_ahead());
  }

  void step(int i) {
    const int what = random_.below(20), sequence = random_.below(kSequences);
    SCOPED_TRACE(std::to_string(i) + ": " + std::to_string(what));
    if (what < 9) {
      follow_best();
    } else if (what < 11) {
      decode(tokens(random_, 1, n_vocab_), sequence);  // hardly the best one
    } else if (what < 13) {
      decode(tokens(random_, 1 + random_.below(40), n_vocab_), sequence);
    } else if (what == 13) {
      const int64_t n = random_.below(static_cast<int>(a_.n_past(sequence)) + 1);
      both([&](Context& c) { c.truncate(n, sequence); });
    } else if (what == 14) {
      set_n_ranked(1 + 3 * random_.below(2));
    } else if (what == 15) {
      EXPECT_EQ(a_.kv_digest(sequence), b_.kv_digest(sequence));
    } else if (what == 16) {
      together();
    } else if (what == 17) {
      follows_ = random_.below(3) > 0;
    } else if (what == 18 && last_.size() == 1) {  // again what was run last
      both([&](Context& c) { c.truncate(std::max<int64_t>(c.n_past(last_sequence_) - 1, 0), last_sequence_); });
      decode({last_}, last_sequence_);
    }
  }
  void finish() {
    for (int sequence = 0; sequence < kSequences; ++sequence)
      EXPECT_EQ(a_.kv_digest(sequence), b_.kv_digest(sequence)) << sequence;
  }

 private:
  void both(const std::function<void(Context&)>& act) { act(a_), act(b_); }
  RunRequest request(const Context& context) const {
    return {.n_ranked = n_ranked_, .follows_best = &context == &b_ && follows_};
  }
  void set_n_ranked(int64_t n) {
    n_ranked_ = n;
    has_best_ = false;
  }

  void decode(const std::vector<TokenId>& ids, int sequence) {
    if (a_.n_past(sequence) + static_cast<int64_t>(ids.size()) > a_.n_ctx())
      return both([&](Context& c) { c.truncate(3, sequence); });
    both([&](Context& c) { c.decode(ids, sequence, request(c)); });
    last_ = ids;
    last_sequence_ = sequence;
    compare_last();
  }
  void follow_best() {
    if (!has_best_) return decode(tokens(random_, 1, n_vocab_), 0);
    for (int n = 1 + random_.below(6); n > 0; --n) decode({a_.ranked().front().id}, last_sequence_);
  }
  // A token of each sequence, after which the best of each follow for a while.
  void together() {
    std::vector<BatchToken> batch;
    for (int sequence = 0; sequence < kSequences; ++sequence)
      batch.push_back({random_.below(n_vocab_), sequence, true});
    for (int n = random_.below(6); n >= 0; --n) {
      for (int sequence = 0; sequence < kSequences; ++sequence) {
        if (a_.n_past(sequence) == a_.n_ctx()) return;
      }
      both([&](Context& c) { c.decode_batch(batch, request(c)); });
      last_.clear();
      last_sequence_ = kSequences - 1;
      for (int i = 0; i < kSequences; ++i) {
        ASSERT_EQ(a_.batch_ranked(i).front().id, b_.batch_ranked(i).front().id);
        if (n % 2 == 0) expect_same(a_.batch_logits(i), b_.batch_logits(i), "output " + std::to_string(i));
        batch[static_cast<size_t>(i)].token = a_.batch_ranked(i).front().id;
      }
      if (random_.below(5) == 0) batch[1].token = 17;
    }
    has_best_ = true;
  }
  void compare_last() {
    has_best_ = true;
    ASSERT_EQ(a_.ranked().size(), b_.ranked().size());
    ASSERT_EQ(a_.ranked().front().id, b_.ranked().front().id);
    if (random_.below(3) == 0) expect_same(a_.logits(), b_.logits(), "the last token");
  }

  const int n_vocab_;
  Context a_, b_;
  test::Random random_;
  int64_t n_ranked_ = 1;
  bool follows_ = true, has_best_ = false;
  std::vector<TokenId> last_;
  int last_sequence_ = 0;
};

TEST_F(CudaRunAhead, AnythingElseMayBeAskedForNext) {
  Pair pair(model_, options_, options_);
  for (int i = 0; i < 600 && !HasFatalFailure(); ++i) pair.step(i);
  pair.finish();
}

// Families that keep states: what runs ahead must leave the state behind which anything else goes on.
TEST_F(CudaRunAhead, AnythingElseMayBeAskedForWhereStatesAreKept) {
  for (const char* name : {"qwen35", "kimilinear", "mamba2", "lfm2"}) {
    const std::string path = test::shared(std::string("goldens/arch/") + name + ".gguf").string();
    ASSAY_REQUIRE_FILE(path);
    SCOPED_TRACE(name);
    const auto model = Model::load(path, {.tokenizer = false});
    Pair pair(model, options_, options_);
    for (int i = 0; i < 150 && !HasFatalFailure(); ++i) pair.step(i);
    pair.finish();
  }
}

void expect_end_of_context(const std::shared_ptr<const Model>& model, ContextOptions options) {
  test::Random random(3);
  options.n_ctx = 40;
  Context context(model, options);
  const RunRequest request{.n_ranked = 1, .follows_best = true};
  context.decode(tokens(random, 33), 0, request);
  for (int i = 0; i < 7; ++i) {
    const TokenId best = context.ranked().front().id;
    context.decode({&best, 1}, 0, request);
  }
  EXPECT_EQ(context.n_past(), 40);
  const TokenId best = context.ranked().front().id;
  EXPECT_THROW(context.decode({&best, 1}, 0, request), Error);
  const std::vector<TokenId> prompt = tokens(random, 2);
  EXPECT_TRUE(greedy(context, prompt, 30, true, 1) == greedy(context, prompt, 30, false, 1));
}

TEST_F(CudaRunAhead, EndsWithTheContext) { expect_end_of_context(model_, options_); }

TEST_F(CudaRunAhead, GeneratorAnswersAsOnTheCpu) {
  test::Random random(5);
  ContextOptions on_cpu = options_;
  on_cpu.backend = Backend::cpu;
  Context cpu(model_, on_cpu), gpu(model_, options_);
  EXPECT_FALSE(cpu.runs_ahead());
  Generator of_cpu(cpu), of_gpu(gpu);
  GenerateOptions options;
  options.sampling.temperature = 0;
  std::vector<TokenId> prompt = tokens(random, 12);
  for (const int64_t n_predict : {24, 1, 2, 0, 30, -1}) {
    options.n_predict = n_predict;
    const Generation expected = of_cpu.run(prompt, options), found = of_gpu.run(prompt, options);
    EXPECT_EQ(found.ids, expected.ids) << n_predict;
    EXPECT_EQ(found.context_full, expected.context_full);
    EXPECT_EQ(gpu.n_past(), cpu.n_past());
    EXPECT_EQ(gpu.kv_digest(), cpu.kv_digest()) << n_predict;
    prompt.push_back(random.below(5000));
  }
  int n_polls = 0;
  const auto stops = [&] { return ++n_polls == 20; };
  options.n_predict = 50;
  const Generation cut = of_gpu.run(prompt, options, {}, stops);
  EXPECT_EQ(cut.finish_reason, FinishReason::cancelled);
  const Generation whole = of_gpu.run(prompt, options);
  EXPECT_EQ(whole.ids, of_cpu.run(prompt, options).ids);
  EXPECT_TRUE(std::equal(cut.ids.begin(), cut.ids.end(), whole.ids.begin()));
}

// A model whose products of columns are summed by both of two GPUs.
class CudaRunAheadInShards : public CudaRunAhead {
 protected:
  CudaRunAheadInShards() {
    test::TinyLlama spec;
    spec.dtype = tensor::DType::Q4_K;
    spec.vocab_size = kVocabSize;
    spec.d_model = 1024, spec.d_ff = 4096, spec.n_heads = 16, spec.n_kv_heads = 4, spec.head_dim = 128;
    test::TinyLlamaWriter(spec).file().write(folder_ / "wide.gguf");
    model_ = Model::load((folder_ / "wide.gguf").string(), {.tokenizer = false});
    in_shards_ = options_;
    in_shards_.devices = {0, 1};
    in_shards_.split_mode = SplitMode::tensor;
  }
  void SetUp() override {
    if (const int n = test::n_cuda_gpus(); n < 2) GTEST_SKIP() << "needs 2 GPUs, found " << n;
  }
  ContextOptions in_shards_;
};

TEST_F(CudaRunAheadInShards, GivesTheSameAnswers) {
  test::Random random(1);
  const std::vector<TokenId> prompt = tokens(random, 5);
  for (const int bits : {8, 15}) {
    options_.activation_bits = in_shards_.activation_bits = bits;
    Context one(model_, options_), two(model_, in_shards_);
    for (const int reads : {1, 7}) {
      const Answer expected = greedy(one, prompt, 270, false, reads), found = greedy(two, prompt, 270, true, reads);
      EXPECT_EQ(found.ids, expected.ids);
      EXPECT_TRUE(found == expected) << bits << " bits, every " << reads;
      EXPECT_TRUE(greedy(two, prompt, 270, false, reads) == expected) << bits << " bits, not ahead";
    }
  }
}

TEST_F(CudaRunAheadInShards, AnythingElseMayBeAskedForNext) {
  Pair pair(model_, options_, in_shards_);
  for (int i = 0; i < 600 && !HasFatalFailure(); ++i) pair.step(i);
  pair.finish();
}

TEST_F(CudaRunAheadInShards, EndsWithTheContext) { expect_end_of_context(model_, in_shards_); }

TEST_F(CudaRunAhead, IsNotWhereTheModelIsSplitByLayers) {
  options_.n_gpu_layers = 1;
  Context context(model_, options_);
  EXPECT_FALSE(context.runs_ahead());
}

}  // namespace
}  // namespace assay
