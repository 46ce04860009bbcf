// Many requests at a time on one model. They share every pass over the weights, and each gets the bits that it has
// alone: which others run beside it, where its prompt is cut and what the cache held already change nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <variant>
#include <vector>

#include "assay/context.h"
#include "assay/error.h"
#include "assay/generate.h"
#include "assay/logprobs.h"

namespace assay {

struct Request {
  std::vector<TokenId> prompt;
  GenerateOptions generate;
  std::string client;  // whose it is: waiting requests of different clients take turns by the tokens they had
  double weight = 1;   // of the client: with 2 it gets twice the tokens of one with 1
  std::string salt;    // only requests of the same salt share what the cache holds of their prompts
  std::optional<std::chrono::steady_clock::time_point> deadline = {};  // then it ends with FinishReason::late
  MakeRoom make_room = {};  // what the answer goes on with where its n_ctx positions are full; none: it ends there
  // After every part of its tokens that was read: how many of those that the cache did not have are done.
  std::function<void(int64_t done, int64_t total)> progress = {};
};

using RequestId = uint64_t;

// What happens to a request, in this order: started, tokens, then finished or failed. One that is cancelled, or late,
// finishes.
struct RequestStarted {
  int64_t n_prompt = 0;
  int64_t n_prompt_cached = 0;  // of these were in the KV cache already
  double queue_ms = 0;
};
struct RequestToken {
  TokenId id = 0;
  std::string text;  // what became certain with it: whole characters, no part of a stop string; may be empty
  std::optional<TokenLogprobs> logprobs;
};
struct RequestFinished {
  FinishReason reason = FinishReason::length;
  bool context_full = false;  // reason is length because n_ctx positions are used up
  std::string stop_string;    // which one ended the answer; empty: none did
  std::string text;           // what was still held back
  int64_t n_prompt = 0, n_prompt_cached = 0, n_answer = 0;
  int64_t n_drafted = 0, n_accepted = 0;  // tokens that were guessed ahead; of these the model's own draw gave the same
  int64_t n_dropped = 0;                  // tokens that left its positions for others (Request::make_room)
  int64_t n_positions = 0;                // that it held at its end
  int64_t n_preempted = 0;                // times that it lost its place in the cache to others, and got it back
  double queue_ms = 0;
  PhaseTiming prefill, decode;
};
struct RequestFailed {
  Error error;
};
using RequestEvent = std::variant<RequestStarted, RequestToken, RequestFinished, RequestFailed>;
// Called by the thread that steps, which must not be held up: hand the event on. One that throws cancels its request.
using RequestSink = std::function<void(RequestId, const RequestEvent&)>;

struct SchedulerOptions {
  // n_ctx: positions of one request; n_sequences: requests that run at once; n_positions_max: of the pool that they
  // share, at least n_ctx. With a smaller pool than they need together, a request may have to wait for its place a
  // while (it is preempted), with the same answer.
  ContextOptions context;
  int64_t n_waiting_max = 0;    // 0: 16, or four for each that can run where that is more
  double gap_ms_max = 250;      // a step with prompts is kept this short while others wait for their next token
  bool caches_prompts = true;   // a prompt that begins as an earlier one did reuses its positions
  int64_t swap_bytes_max = -1;  // of memory beside the pool for what preempted requests had in it; -1: a quarter of the
                                // pool; 0: they compute it again
  DraftOptions drafts;
  // A folder where beginnings of prompts outlive the program, and how much of it may be used; empty: none. Prompts lie
  // there in the clear.
  std::string prompt_folder;
  int64_t prompt_folder_bytes_max = int64_t{8} << 30;
  std::function<void(std::string_view)>
      on_notice{};  // told what went wrong without failing anybody: a line, by any thread
};

struct SchedulerFigures {
  int64_t n_running = 0, n_waiting = 0, n_running_max = 0, n_waiting_max = 0;
  int64_t n_held = 0;                             // stand aside by hold(): neither running nor waiting
  int64_t n_positions_used = 0, n_positions = 0;  // of running requests; of the whole cache
  int64_t n_pages = 0, n_pages_free = 0;  // of the pool, where the cache has pages; those in use hold running requests
                                          // or what may be wanted again
  int64_t cache_bytes_used = 0;           // of pages in use: what layers with a window gave back is none of it
  int64_t n_steps = 0;
  int64_t n_prompt_tokens = 0, n_prompt_tokens_cached = 0, n_answer_tokens = 0;  // so far
  int64_t n_stop = 0, n_length = 0, n_cancelled = 0, n_late = 0, n_failed = 0, n_refused = 0;
  int64_t n_preempted = 0, n_swapped = 0;  // requests that lost their place; of these kept it in memory beside the pool
  int64_t n_prompt_tokens_read = 0;        // of the cached ones, from prompt_folder
  int64_t n_drafted = 0, n_accepted = 0;
  std::vector<int64_t> n_accepted_at = {};  // by the guess's place in its run, from 0 on
  double wait_ms = 0;                       // how long a request that comes now will wait, by what requests took lately
};

class Scheduler {  // threads: as each function says
 public:
  // Error as Context; Error(bad_request) where n_sequences tokens do not fit into one batch.
  Scheduler(std::shared_ptr<const Model> model, const SchedulerOptions& options);
  ~Scheduler();  // what still runs or waits is dropped without a word
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // From any thread. submit: Error(bad_request) for what can never be served (an empty prompt or one that does not fit,
  // options out of range); nothing where the queue is full. cancel: takes effect with the next step; false where the
  // request is over.
  std::optional<RequestId> submit(Request request, RequestSink sink);
  bool cancel(RequestId id);
  void cancel_all();
  // For a listener that does not keep up. hold: from the next step on the answer does not grow, and its place goes to
  // others; resume: it goes on as soon as there is a place, with the same tokens. hold is false where the request is
  // over.
  bool hold(RequestId id);
  void resume(RequestId id);
  SchedulerFigures figures() const;

  // By one thread. step: runs one batch: the next token of every running request and parts of prompts; false where
  // nothing is left to do. Where all that is left waits for saved prompts it sleeps a moment, which anything that
  // happens ends. run: steps until asked to stop, sleeping while there is nothing to do; after_step is called
  // once a step's events are out.
  bool step();
  void run(std::stop_token stop, const std::function<void()>& after_step = {});

  const Context& context() const noexcept;

  struct State;  // engine/scheduler/scheduler_state.h, for the library itself
  State& state() noexcept { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

// One request from its prompt to its end, by the thread that steps the scheduler, which is this one; others that run
// there are stepped along. sink: as Generator::run has it; `cancelled` is polled before every step, and once it says
// true, what there is so far is returned. Errors, the request's own among them, and what the callbacks throw are thrown
// on.
Generation run_request(Scheduler& scheduler, Request request, const Generator::TextSink& sink = {},
                       const std::function<bool()>& cancelled = {});

}  // namespace assay
