// Between the first token and the last none takes memory: the model's run, the draw and the text.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "assay/context.h"
#include "assay/sampler.h"
#include "assay/tokenizer.h"
#include "engine/sampling/stop_strings.h"
#include "support/count_allocations.h"
#include "support/engine/scheduler_test_base.h"
#include "support/rounds.h"
#include "support/small_vocabularies.h"
#include "support/temp_folder.h"
#include "support/tiny_llama.h"

namespace assay {
namespace {

std::vector<SamplerOptions> chains() {
  std::vector<SamplerOptions> list(7);
  list[1].temperature = 0;
  list[2].repeat_penalty = 1.1;
  list[2].frequency_penalty = 0.1;
  list[3].top_k = 0;
  list[3].min_p = 0;
  list[4].top_k = 0;
  list[4].top_p = 1;
  list[5].dynamic_range = 0.5;
  list[5].xtc_probability = 0.5;
  list[6].top_k = 0;
  list[6].typical_p = 0.9;
  for (SamplerOptions& options : list) options.seed = 7;
  return list;
}

TEST(Allocations, NoneForATokenOfAnAnswer) {
  const test::TempFolder folder;
  test::TinyLlama spec;
  spec.dtype = tensor::DType::Q8_0;
  test::TinyLlamaWriter(spec).file().write(folder / "tiny.gguf");
  const auto model = Model::load((folder / "tiny.gguf").string(), {.tokenizer = false});
  const auto tokenizer = text::make_tokenizer(test::sentence_piece_facts());
  ContextOptions options;
  options.n_threads = 2;
  options.n_ctx = 400;
  const std::vector<SamplerOptions> chains_tried = chains();
  for (const SamplerOptions& chain : chains_tried) {
    SCOPED_TRACE(&chain - chains_tried.data());
    Context context(model, options);
    Sampler sampler(chain, model->vocab_size());
    StreamDecoder decoder(tokenizer);
    engine::StopStrings stop({"</never>"});
    const std::vector<TokenId> prompt = {1, 2, 3};
    context.decode(prompt);
    sampler.start(prompt);
    std::string part, shown;
    int64_t before = 0;
    const int64_t n_tokens = &chain == chains_tried.data() ? 300 : 60;  // the first past a segment of attention
    for (int64_t i = 0; i < n_tokens; ++i) {
      if (i == 16) before = test::n_allocations;  // buffers have grown to their sizes
      const TokenId id = sampler.sample(context.logits(), 3 + i);
      sampler.accept(id);
      part.clear();
      shown.clear();
      decoder.push(id % tokenizer->vocab_size(), part);
      stop.push(part, shown);
      context.decode({&id, 1});
    }
    EXPECT_EQ(test::n_allocations, before);
  }
}

// Whichever allocation of a step fails: the request concerned fails, alone, and all others have their answers; the
// scheduler goes on, and no page is lost.
using AllocationFailure = test::SchedulerTest;
TEST_F(AllocationFailure, FailsOneRequestAlone) {
  options_.context.n_positions_max = 192;  // of 4 times 128: with preemptions
  options_.n_waiting_max = 1000;
  options_.caches_prompts = true;
  int64_t n_failures = 0, n_failed = 0;
  for (int64_t i_failure = 0; i_failure < 400; i_failure += test::unless_sanitized(1, 11) + i_failure / 40) {
    outcomes_.clear();
    Scheduler scheduler(model_, options_);
    std::map<RequestId, Request> requests;
    for (int i = 0; i < 8; ++i) {
      Request r = varied(i);
      r.generate.n_predict = 12 + i;
      r.generate.mask = {};
      requests[*scheduler.submit(r, sink())] = r;
    }
    int64_t n_left = i_failure;
    for (bool goes_on = true; goes_on;) {
      const int64_t before = test::n_allocations;
      test::n_until_failure = n_left;
      goes_on = scheduler.step();
      n_failures += n_left >= 0 && test::n_until_failure < 0 ? 1 : 0;
      test::n_until_failure = -1;
      n_left = n_left < 0 ? -1 : n_left - (test::n_allocations - before);
    }
    int n_without = 0;
    for (const auto& [id, request] : requests) {
      const test::Outcome& o = outcomes_[id];
      if (!o.failure.empty()) {
        ++n_without;
        EXPECT_NE(o.failure.find("memory"), std::string::npos) << o.failure;
      } else if (o.finished && o.finished->reason != FinishReason::cancelled && i_failure % 16 == 0) {
        expect_as_alone(request, o);
      } else {
        EXPECT_TRUE(o.finished) << "allocation " << i_failure << ", request " << id;
      }
    }
    EXPECT_LE(n_without, 1) << "allocation " << i_failure;
    n_failed += n_without;
    const SchedulerFigures f = scheduler.figures();
    EXPECT_EQ(f.n_running + f.n_waiting, 0);
    EXPECT_EQ(f.n_positions_used, 0);
  }
  EXPECT_GT(n_failures, test::unless_sanitized(20, 10));
  EXPECT_GT(n_failed, test::unless_sanitized(10, 2));
}

// The same where beginnings of prompts come from files: whoever cannot take his pages reads what is missing, or fails
// alone.
TEST_F(AllocationFailure, OfSavedPromptsFailsOneRequestAlone) {
  options_.context.n_positions_max = 192;
  options_.n_waiting_max = 1000;
  options_.prompt_folder = (folder_ / "saved").string();
  const auto made = [this](int i) {
    Request r = varied(i);
    r.prompt = tokens(100 + i % 3, i % 2);
    r.generate.n_predict = 5;
    r.generate.mask = {};
    return r;
  };
  {
    Scheduler scheduler(model_, options_);
    expect_all_as_alone(scheduler, 2, made);
  }
  const auto heard = [listener = sink()](RequestId id, const RequestEvent& event) {  // it has memory
    const int64_t left = std::exchange(test::n_until_failure, -1);
    listener(id, event);
    test::n_until_failure = left;
  };
  int64_t n_failures = 0, n_read = 0;
  for (int64_t i_failure = 0; i_failure < 300; i_failure += test::unless_sanitized(2, 23) + i_failure / 40) {
    outcomes_.clear();
    Scheduler scheduler(model_, options_);
    std::map<RequestId, Request> requests;
    for (int i = 0; i < 4; ++i) {
      const Request r = made(i);
      requests[*scheduler.submit(r, heard)] = r;
    }
    int64_t n_left = i_failure;
    for (bool goes_on = true; goes_on;) {
      test::n_until_failure = n_left;
      goes_on = scheduler.step();
      const int64_t left = std::exchange(test::n_until_failure, -1);
      n_failures += n_left >= 0 && left < 0 ? 1 : 0;
      n_left = left;
    }
    int n_without = 0;
    for (const auto& [id, request] : requests) {
      const test::Outcome& o = outcomes_[id];
      n_without += o.failure.empty() ? 0 : 1;
      if (o.failure.empty()) expect_as_alone(request, o);
    }
    EXPECT_LE(n_without, 1) << "allocation " << i_failure;
    n_read += scheduler.figures().n_prompt_tokens_read;
    EXPECT_EQ(scheduler.figures().n_running + scheduler.figures().n_positions_used, 0);
  }
  EXPECT_GT(n_failures, test::unless_sanitized(20, 2));
  EXPECT_GT(n_read, 0);
}

}  // namespace
}  // namespace assay
