// What a Scheduler holds. The lock guards what several threads touch (what waits, who is cancelled, the figures); what
// runs belongs to the thread that steps. scheduler.cpp: the doors; scheduler_admit.cpp: who has a place;
// scheduler_saved.cpp: prompts that are read back from files and written there; scheduler_step.cpp: a batch;
// scheduler_draw.cpp: what comes of it.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <vector>

#include "assay/scheduler.h"
#include "base/aligned_buffer.h"
#include "base/pending_copies.h"
#include "engine/sampling/answer.h"
#include "engine/scheduler/draft_pace.h"
#include "engine/scheduler/drafter.h"
#include "engine/scheduler/fair_queue.h"
#include "engine/scheduler/sequence_tables.h"
#include "engine/scheduler/step_cost.h"
#include "engine/scheduler/swap_store.h"
#include "ops/plan/executor.h"
#include "pages/prompt_folder.h"

namespace assay::engine {

using Clock = std::chrono::steady_clock;

inline double ms_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

// Error(bad_request) where they are none, too many for the context, or not of the vocabulary.
void check_tokens(std::span<const TokenId> tokens, const Context& context);

// A request from its door to its end.
struct Job {
  RequestId id = 0;
  Request request;  // its prompt has moved to tokens
  RequestSink sink;
  Answer answer;
  std::vector<TokenId> tokens;  // prompt and answer so far
  int64_t n_prompt = 0;
  Clock::time_point submitted = {}, started = {}, drew_first = {}, aside_since = {};
  double aside_ms = 0;       // with no place because of its listener
  bool has_started = false;  // its listener was told
  int sequence = -1;         // its place; -1: it has none
  int64_t n_cached = 0;
  int64_t n_prompt_run = 0;  // of the prompt, the cached ones among them
  int64_t n_passed = 0;      // prompt tokens of others that went before its own: what makes it older
  RequestId follows = 0;     // it waits until this one has read what they have in common, and takes it from there
  int reading = 0;           // its number, while pages of its prompt come from the folder; 0: none do
  int64_t n_read_on = 0;     // positions that it had when this began
  int64_t n_saved = 0;       // that came from there
  bool is_stalled = false;   // left out of this step for want of pages, or until its own are back
  bool is_held = false;      // its listener does not keep up: it stands aside once it has drawn
  bool is_aside = false;     // it does
  int n_preempted = 0;
  DraftPace pace;
  std::vector<TokenId> guesses;
  int64_t n_drafted = 0, n_accepted = 0;
  int64_t n_read_from = 0;  // positions that its sequence had when it began to read
  int64_t n_dropped = 0;    // tokens that left it for others
  int64_t n_read_anew = 0;  // in place of the token drawn last, where it was full

  Job(Request r, RequestSink s, const Model& model);
  int64_t n_tokens() const noexcept { return static_cast<int64_t>(tokens.size()); }
  int64_t n_answer() const noexcept { return static_cast<int64_t>(answer.ids().size()); }
  bool waits() const noexcept { return follows != 0 || reading != 0; }  // for others to read its prompt
  bool late(Clock::time_point now) const noexcept { return request.deadline && now > *request.deadline; }
};

// An image of a page from the folder, until it has reached its page.
struct ComingPage {
  base::AlignedBuffer image;
  std::unique_ptr<base::PendingCopies> copies;  // whose end is waited for before the image goes
};

// A request's tokens in a batch.
struct BatchPart {
  Job* job = nullptr;
  int64_t n_before = 0;  // positions that its sequence had
  int64_t n_tokens = 0, n_guesses = 0;
  int64_t i_output = -1;   // its first output, of 1 + n_guesses; -1: it has none
  bool is_answer = false;  // a token of an answer, not of a prompt or of what is read again
  // Of its first draw, where that is made beside the others'.
  std::span<const float> logits = {};
  bool is_drawn = false;
  std::exception_ptr failure = {};  // why there is no token
};

// The masks of the draws that a batch is for, asked while it runs where the best logits are found before the draw.
// Behind a guess a mask is asked by the draw: it has to know which tokens were drawn.
class BatchMasks final : public ops::OutputMasks {
 public:
  void begin(std::span<const BatchPart> parts);
  bool any() const noexcept { return !held_.empty(); }
  std::span<const ops::AllowedTokens> allowed() noexcept override;

 private:
  std::vector<const BatchPart*> held_;       // kept, as below: a batch takes no memory
  std::vector<ops::AllowedTokens> allowed_;  // where masks leave less than all
};

}  // namespace assay::engine

namespace assay {

struct Scheduler::State {
  using Job = engine::Job;
  using Jobs = std::vector<std::unique_ptr<Job>>;

  State(std::shared_ptr<const Model> model, const SchedulerOptions& asked);

  // Who has a place.
  bool take_commands(Jobs& ended, std::set<RequestId>& cancelled);
  void end_cancelled_and_late(const std::set<RequestId>& cancelled);
  void admit();
  std::unique_ptr<Job> next_job();
  bool has_room_for(const Job& job) const;
  void start(Job& job);
  void set_off(Job& job);
  // Of a request's tokens, but for the last, how many are the first ones of another's as well.
  static int64_t n_in_common(const Job& job, const Job& other);
  void follow_others(Job& job, int64_t n_saved);
  void catch_up(Job& job);
  bool take_pages();
  void set_unready_aside();
  Job* victim(bool with_protected);
  void preempt(Job& job);
  bool leave_place(Job& job);
  void set_held_aside();
  void bring_resumed_back();

  // Prompts in files.
  int64_t n_saved(const Job& job) const;
  bool read_saved(Job& job);
  void take_saved();
  bool take_saved_pages(Job& job);
  void end_reading(Job& job);
  void await_saved();
  void save(const Job& job);

  // A batch.
  bool step();
  int64_t n_left(const Job& job) const noexcept { return job.n_tokens() - tables.n_positions(job.sequence); }
  bool is_reading(const Job& job) const noexcept { return job.n_answer() == 0 || n_left(job) > 1; }
  void guess();
  int64_t n_guesses_max(const Job& job) const;
  void build_batch();
  void add_answers();
  void add_prompts();
  int64_t n_to_followers(const Job& job, int64_t n) const;
  void ask_for_ranked();
  bool best_follows();
  bool run_batch();
  void after_run();
  void learn(double ms);

  // What comes of it.
  void draw_all();
  void draw_first();
  bool draw_part(const engine::BatchPart& part);
  void draw(Job& job, int64_t i_output);
  bool is_over(Job& job, int64_t n_positions, FinishReason& reason, bool& context_full) const;
  bool make_room(Job& job);
  void tell_start(Job& job);
  void emit(Job& job, RequestEvent event);
  void tell_progress(Job& job);
  template <class Call>
  void call(const Job& job, const Call& listener);
  void finish(Job& job, FinishReason reason, bool context_full);
  void fail(Job& job, const Error& error);
  void count(FinishReason reason);
  int64_t n_with_place() const {
    return static_cast<int64_t>(running_ids.size()) - figures.n_held;
  }  // or next to have one
  bool runs(RequestId id) const { return std::find(running_ids.begin(), running_ids.end(), id) != running_ids.end(); }
  void release(Job& job);
  void fail_batch(const Error& error);
  void drop(const Job* job);
  void notice(std::string_view line) const;
  void tell_news();

  SchedulerOptions options;
  Context context;
  engine::SequenceTables tables;
  engine::SwapStore swap;
  std::unique_ptr<engine::Drafter> drafter;  // null: none
  engine::StepCost cost;
  Jobs running;  // in the order they came in; null: over
  Jobs parked;   // go before what waits, the last one first: preempted, or next and short of pages
  Jobs held;     // stand aside until they are resumed; parked has room for them all
  std::vector<BatchToken> batch;
  std::vector<engine::BatchPart> parts;
  std::vector<engine::BatchPart*> first_draws;  // of draw_first, kept
  std::vector<Job*> prompts;                    // of add_prompts, kept
  std::vector<engine::DraftAsk> asks;
  std::deque<engine::ComingPage> coming;  // in their order
  int64_t n_outputs = 0;                  // of the batch
  RunRequest request;                     // of the batch at work: the best logits that the context finds by itself
  engine::BatchMasks masks;               // of the batch at work

  mutable std::mutex mutex;
  std::condition_variable_any changed;
  engine::FairQueue queue;
  std::map<RequestId, std::unique_ptr<Job>> waiting;
  std::vector<RequestId> running_ids;  // of running, parked and held
  std::set<RequestId> cancelled_ids, held_ids;
  bool has_resumed = false;  // since the last step
  bool has_news = false;     // the same of anything that a step looks at
  RequestId last_id = 0;
  SchedulerFigures figures;
  double service_ms = 0;  // of requests lately, from start to end

  std::unique_ptr<pages::PromptFolder> folder;  // null: none. The last: its thread tells the others of pages
};

}  // namespace assay
