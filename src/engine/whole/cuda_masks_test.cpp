// Masks where a GPU ranks the logits: answers that are held to something are the CPU's, alone and beside others, and
// what is ranked is what the mask leaves, for one run.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "assay/context.h"
#include "assay/error.h"
#include "assay/generate.h"
#include "assay/sampler.h"
#include "assay/scheduler.h"
#include "engine/context_state.h"
#include "support/engine/cuda_gpus.h"
#include "support/engine/cuda_tiny_llama.h"
#include "support/random_numbers.h"

namespace assay {
namespace {

constexpr size_t kWords = (5000 + 63) / 64;
constexpr int64_t kAnswerTokens = 24;

class CudaMasks : public test::CudaTinyLlama {
 protected:
  CudaMasks() {
    options_.n_ctx = 64;
    options_.n_threads = 2;
  }
  Context context(Backend backend) {
    options_.backend = backend;
    return Context(model_, options_);
  }
  Generation alone(Backend backend, const Request& request) {
    Context own = context(backend);
    return Generator(own).run(request.prompt, request.generate);
  }

  ContextOptions options_;
};

std::vector<uint64_t> random_words(uint64_t seed, int one_in) {
  test::Random random(seed);
  std::vector<uint64_t> words(kWords, 0);
  for (int32_t id = 0; id < 5000; ++id) {
    if (random.below(one_in) == 0) words[static_cast<size_t>(id / 64)] |= uint64_t{1} << (id % 64);
  }
  return words;
}

// By what was drawn so far: everything, a few tokens, one alone, or about every other.
TokenMask mask_of(uint64_t seed) {
  return [seed, words = std::vector<uint64_t>(), n_asked = size_t{0}](std::span<const TokenId> answer) mutable {
    EXPECT_EQ(answer.size(), n_asked++);
    const uint64_t last = answer.empty() ? 0 : static_cast<uint64_t>(answer.back());
    const uint64_t state = seed * 1'000'003 + answer.size() * 5003 + last;
    const uint64_t kind = state % 5;
    if (kind == 0) return std::span<const uint64_t>();
    words = random_words(state, kind == 1 ? 2 : kind == 2 ? 40 : 1200);
    if (kind == 3) words.assign(kWords, 0);
    if (kind >= 3) words[state % 5000 / 64] |= uint64_t{1} << (state % 5000 % 64);  // one at least
    return std::span<const uint64_t>(words);
  };
}

std::vector<SamplerOptions> chains() {
  SamplerOptions greedy, warm, narrow, wide, penalised;
  greedy.temperature = 0;
  warm.seed = 11;
  narrow.top_k = 5;
  narrow.typical_p = 0.9;
  wide.top_k = 0;
  penalised.repeat_penalty = 1.3;
  return {greedy, warm, narrow, wide, penalised};
}

Request request_of(size_t i, bool has_mask) {
  Request r;
  for (size_t t = 0; t < 3 + i % 7; ++t) r.prompt.push_back(static_cast<TokenId>((i * 131 + t * 17) % 5000));
  r.generate.n_predict = kAnswerTokens;
  r.generate.sampling = chains()[i % chains().size()];
  r.generate.request = i;
  if (has_mask) r.generate.mask = mask_of(i);
  return r;
}

TEST_F(CudaMasks, AnswersAreThoseOfTheCpu) {
  for (size_t i = 0; i < 3 * chains().size(); ++i) {
    const Generation expected = alone(Backend::cpu, request_of(i, true)),
                     found = alone(Backend::cuda, request_of(i, true));
    EXPECT_EQ(found.ids, expected.ids) << i;
    EXPECT_EQ(static_cast<int64_t>(expected.ids.size()), kAnswerTokens);
    EXPECT_NE(alone(Backend::cuda, request_of(i, false)).ids, expected.ids) << i;
  }
}

TEST_F(CudaMasks, LogprobsAreOfWhatTheModelSays) {
  for (size_t i = 0; i < chains().size(); ++i) {
    Request r = request_of(i, true);
    r.generate.n_top_logprobs = 2;
    const Generation expected = alone(Backend::cpu, r);
    const Generation found = alone(Backend::cuda, r);
    EXPECT_EQ(found.ids, expected.ids) << i;
    EXPECT_EQ(found.ids, alone(Backend::cuda, request_of(i, true)).ids) << i;
    for (size_t t = 0; t < found.logprobs.size(); ++t) {
      EXPECT_EQ(found.logprobs[t].logprob, expected.logprobs[t].logprob);
      EXPECT_EQ(found.logprobs[t].top, expected.logprobs[t].top);
    }
  }
}

// Every second one is free; some guess ahead.
TEST_F(CudaMasks, BesideOthersEachHasItsOwn) {
  for (const DraftKind drafts : {DraftKind::none, DraftKind::ngram}) {
    SchedulerOptions options;
    options.context = options_;
    options.context.backend = Backend::cuda;
    options.context.n_sequences = 6;
    options.n_waiting_max = 32;
    options.drafts.kind = drafts;
    Scheduler scheduler(model_, options);
    std::map<RequestId, std::vector<TokenId>> found;
    std::map<RequestId, size_t> numbers;
    for (size_t i = 0; i < 20; ++i) {
      const auto id = scheduler.submit(request_of(i, i % 2 == 0), [&found](RequestId of, const RequestEvent& event) {
        if (const auto* token = std::get_if<RequestToken>(&event)) found[of].push_back(token->id);
        EXPECT_FALSE(std::holds_alternative<RequestFailed>(event));
      });
      ASSERT_TRUE(id.has_value());
      numbers[*id] = i;
    }
    while (scheduler.step()) {
    }
    for (const auto& [id, i] : numbers) EXPECT_EQ(found[id], alone(Backend::cpu, request_of(i, i % 2 == 0)).ids) << i;
  }
}

TEST_F(CudaMasks, NothingLeftFailsItsAnswerAlone) {
  const std::vector<uint64_t> none(kWords, 0);
  Request bad = request_of(1, false);
  bad.generate.mask = [&](std::span<const TokenId> answer) {
    return answer.size() < 3 ? std::span<const uint64_t>() : std::span<const uint64_t>(none);
  };
  std::string messages[2];
  for (const Backend backend : {Backend::cpu, Backend::cuda}) {
    try {
      alone(backend, bad);
      ADD_FAILURE() << "drawn from nothing";
    } catch (const Error& error) {
      messages[backend == Backend::cuda] = error.what();
    }
  }
  EXPECT_EQ(messages[1], messages[0]);
  SchedulerOptions options;
  options.context = options_;
  options.context.backend = Backend::cuda;
  options.context.n_sequences = 2;
  Scheduler scheduler(model_, options);
  std::string failure;
  std::vector<TokenId> ids;
  scheduler.submit(bad, [&](RequestId, const RequestEvent& event) {
    if (const auto* failed = std::get_if<RequestFailed>(&event)) failure = failed->error.what();
  });
  scheduler.submit(request_of(2, true), [&](RequestId, const RequestEvent& event) {
    if (const auto* token = std::get_if<RequestToken>(&event)) ids.push_back(token->id);
  });
  while (scheduler.step()) {
  }
  EXPECT_EQ(failure, messages[0]);
  EXPECT_EQ(ids, alone(Backend::cpu, request_of(2, true)).ids);
}

std::vector<TokenId> ids_of(std::span<const RankedLogit> best) {
  std::vector<TokenId> ids;
  for (const RankedLogit& x : best) ids.push_back(x.id);
  return ids;
}

std::vector<TokenId> best_of(std::span<const float> logits, const std::vector<uint64_t>& words, size_t n) {
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < static_cast<TokenId>(logits.size()); ++id) {
    if ((words[static_cast<size_t>(id / 64)] >> (id % 64) & 1) != 0) ids.push_back(id);
  }
  std::stable_sort(ids.begin(), ids.end(), [&](TokenId a, TokenId b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  ids.resize(std::min(n, ids.size()));
  return ids;
}

// Also of a run that the GPU has begun by itself, and of graphs.
TEST_F(CudaMasks, RankedIsWhatIsAllowedForOneCall) {
  options_.n_sequences = 3;
  Context gpu = context(Backend::cuda), cpu = context(Backend::cpu);
  Context::State& state = gpu.state();
  const std::vector<uint64_t> all(kWords, ~uint64_t{0});
  EXPECT_EQ(cpu.n_ranked_max(), 0);  // so it asks no masks
  for (const int64_t n : {1, 3, 200}) {
    gpu.clear();
    cpu.clear();
    std::vector<TokenId> next = {1, 2, 3};
    for (int step = 0; step < 12; ++step) {
      const std::vector<uint64_t> words = random_words(static_cast<uint64_t>(step), step % 2 == 0 ? 50 : 3);
      const bool has_mask = step % 3 != 1;
      std::vector<ops::AllowedTokens> allowed;
      if (has_mask) allowed.push_back({0, words});
      ops::KnownMasks masks(allowed);
      state.decode(next, 0, {.n_ranked = n, .follows_best = n == 1}, &masks);
      cpu.decode(next);
      const std::span<const float> logits = cpu.logits();
      const std::vector<TokenId> expected = best_of(logits, has_mask ? words : all, static_cast<size_t>(n));
      ASSERT_EQ(ids_of(gpu.ranked()), expected) << n << ", step " << step;
      ASSERT_TRUE(std::equal(logits.begin(), logits.end(), gpu.logits().begin()));
      next = {gpu.ranked().front().id};
    }
  }
  // In a batch each output has its own.
  for (int step = 0; step < 4; ++step) {
    std::vector<BatchToken> batch;
    for (int sequence = 0; sequence < 3; ++sequence)
      batch.push_back({static_cast<TokenId>(100 * sequence + step), sequence, true});
    const std::vector<uint64_t> first = random_words(77, 30), last = random_words(78, 1000);
    std::vector<ops::AllowedTokens> allowed = {{2, last}, {0, first}};
    if (step == 3) {  // nor does what is allowed outlive a call that fails
      ops::KnownMasks masks(allowed);
      EXPECT_THROW(state.decode_batch({}, {.n_ranked = 7}, &masks), Error);
      allowed.clear();
    }
    ops::KnownMasks masks(allowed);
    state.decode_batch(batch, {.n_ranked = 7}, &masks);
    for (int i = 0; i < 3; ++i) {
      const std::vector<uint64_t>& words = step == 3 || i == 1 ? all : i == 0 ? first : last;
      const std::span<const float> logits = gpu.batch_logits(i);
      ASSERT_EQ(ids_of(gpu.batch_ranked(i)), best_of(logits, words, 7)) << i;
    }
  }
}

// Of two GPUs, each of which has some layers, or some columns of all.
TEST_F(CudaMasks, DividedModelsGiveTheCpusAnswers) {
  if (const int n = test::n_cuda_gpus(); n < 2) GTEST_SKIP() << "needs 2 GPUs, found " << n;
  for (const SplitMode mode : {SplitMode::layer, SplitMode::tensor}) {
    for (size_t i = 0; i < chains().size(); ++i) {
      const Generation expected = alone(Backend::cpu, request_of(i, true));
      ContextOptions divided = options_;
      divided.backend = Backend::cuda;
      divided.devices = {0, 1};
      divided.split_mode = mode;
      Context own(model_, divided);
      Generator generator(own);
      EXPECT_EQ(generator.run(request_of(i, true).prompt, request_of(i, true).generate).ids, expected.ids) << i;
      // A free answer on the same context is as if nothing had been held, and runs ahead again.
      EXPECT_EQ(generator.run(request_of(i, false).prompt, request_of(i, false).generate).ids,
                alone(Backend::cpu, request_of(i, false)).ids);
    }
  }
}

}  // namespace
}  // namespace assay
