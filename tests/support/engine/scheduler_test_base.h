// For tests of the scheduler: a tiny model, requests that differ in everything, and what each has when it runs alone on
// the CPU.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "assay/scheduler.h"
#include "support/temp_folder.h"
#include "support/tiny_llama.h"

namespace assay::test {

// What came of a request.
struct Outcome {
  std::vector<TokenId> ids;
  std::vector<TokenLogprobs> logprobs;
  std::optional<RequestStarted> started;
  std::optional<RequestFinished> finished;
  std::string failure;
  int64_t first_step = -1, last_step = -1;
};

class SchedulerTest : public ::testing::Test {
 protected:
  SchedulerTest() {
    TinyLlama spec;
    spec.d_model = 64;
    spec.d_ff = 96;
    spec.head_dim = 16;
    spec.n_ctx_train = 256;
    TinyLlamaWriter(spec).file().write(folder_ / "tiny.gguf");
    model_ = Model::load((folder_ / "tiny.gguf").string(), {.tokenizer = false});
    options_.context.n_threads = 1;
    options_.context.n_ctx = 128;
    options_.context.n_sequences = 4;
    options_.context.n_ubatch = 24;
  }

  static std::vector<TokenId> tokens(int n, int from = 0) {
    std::vector<TokenId> ids;
    for (int i = 0; i < n; ++i) ids.push_back((i * 37 + 11 + from) % 96);
    return ids;
  }

  // Unlike in everything: length, chain, seed, limit, logprobs, mask.
  Request varied(int i) const {
    Request r;
    r.prompt = tokens(1 + i * 7 % 60, i % 5);
    r.client = std::string("client ") + std::to_string(i % 3);
    r.generate.n_predict = 3 + i * 5 % 20;
    r.generate.request = static_cast<uint64_t>(i % 2);
    r.generate.sampling.seed = static_cast<uint64_t>(i);
    r.generate.sampling.temperature = i % 3 == 0 ? 0 : 1.5;
    if (i % 4 == 1) r.generate.sampling.repeat_penalty = 1.2;
    if (i % 5 == 2) r.generate.sampling.top_k = 0;
    if (i % 2 == 0) r.generate.n_top_logprobs = i % 4;
    if (i % 7 == 3) {
      const auto n_words = static_cast<size_t>(model_->vocab_size() + 63) / 64;
      r.generate.mask = [n_words](std::span<const TokenId>) { return std::span<const uint64_t>(kEven).first(n_words); };
    }
    return r;
  }

  void expect_as_alone(const Request& request, const Outcome& outcome) const {
    ContextOptions alone = options_.context;
    alone.backend = Backend::cpu;
    alone.n_sequences = 1;
    alone.n_ubatch = 512;
    Context context(model_, alone);
    const Generation g = Generator(context).run(request.prompt, request.generate);
    EXPECT_EQ(outcome.failure, "");
    EXPECT_EQ(outcome.ids, g.ids);
    ASSERT_EQ(outcome.logprobs.size(), g.logprobs.size());
    for (size_t i = 0; i < g.logprobs.size(); ++i) {
      EXPECT_EQ(outcome.logprobs[i].logprob, g.logprobs[i].logprob);
      EXPECT_EQ(outcome.logprobs[i].top, g.logprobs[i].top);
    }
    ASSERT_TRUE(outcome.finished);
    EXPECT_EQ(outcome.finished->reason, g.finish_reason);
    EXPECT_EQ(outcome.finished->context_full, g.context_full);
    EXPECT_EQ(outcome.finished->n_answer, static_cast<int64_t>(g.ids.size()));
  }

  RequestSink sink() {
    return [this](RequestId id, const RequestEvent& event) {
      Outcome& o = outcomes_[id];
      EXPECT_FALSE(o.finished || !o.failure.empty()) << "an event after the last one";
      if (const auto* started = std::get_if<RequestStarted>(&event)) o.started = *started;
      if (const auto* failed = std::get_if<RequestFailed>(&event)) o.failure = failed->error.what();
      if (const auto* finished = std::get_if<RequestFinished>(&event)) o.finished = *finished;
      if (const auto* token = std::get_if<RequestToken>(&event)) {
        if (o.first_step < 0) o.first_step = n_steps_;
        o.last_step = n_steps_;
        o.ids.push_back(token->id);
        if (token->logprobs) o.logprobs.push_back(*token->logprobs);
      }
    };
  }
  void run(Scheduler& scheduler) {
    while (scheduler.step()) ++n_steps_;
  }
  // Requests 0 to n - 1 at once, each as alone; at the end nobody has a position.
  void expect_all_as_alone(Scheduler& scheduler, int n, const std::function<Request(int)>& make) {
    outcomes_.clear();
    std::map<RequestId, Request> requests;
    for (int i = 0; i < n; ++i) {
      const Request r = make(i);
      requests[*scheduler.submit(r, sink())] = r;
    }
    run(scheduler);
    for (const auto& [id, request] : requests) {
      SCOPED_TRACE(id);
      expect_as_alone(request, outcomes_.at(id));
    }
    EXPECT_EQ(scheduler.figures().n_positions_used, 0);
  }
  // As alone; how much of the prompt was held.
  int64_t n_cached(Scheduler& scheduler, const Request& r) {
    outcomes_.clear();
    const RequestId id = *scheduler.submit(r, sink());
    run(scheduler);
    expect_as_alone(r, outcomes_.at(id));
    return outcomes_.at(id).started.value().n_prompt_cached;
  }
  std::string refusal(Scheduler& scheduler, Request request) {
    try {
      if (!scheduler.submit(std::move(request), sink())) return "full";
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  static constexpr uint64_t kEven[5] = {0x5555555555555555u, 0x5555555555555555u, 0x5555555555555555u,
                                        0x5555555555555555u, 0x5555555555555555u};  // of 320 tokens at most
  TempFolder folder_;
  std::shared_ptr<const Model> model_;
  SchedulerOptions options_;
  std::map<RequestId, Outcome> outcomes_;
  int64_t n_steps_ = 0;
};

}  // namespace assay::test
