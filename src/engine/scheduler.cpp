// See assay/scheduler.h. The lock guards what several threads touch (what waits, who is cancelled, the figures); what runs
// belongs to the thread that steps.
#include "assay/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <utility>

#include "engine/answer.h"
#include "engine/context_state.h"
#include "engine/fair_queue.h"
#include "engine/sequence_slots.h"
#include "engine/step_cost.h"

namespace assay {
namespace {

using Clock = std::chrono::steady_clock;

double ms_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

// A request from its door to its end.
struct Job {
  RequestId id = 0;
  Request request;
  RequestSink sink;
  engine::Answer answer;
  Clock::time_point submitted = {}, started = {}, drew_first = {};
  int sequence = -1;
  int64_t n_cached = 0;
  int64_t n_prompt_run = 0;  // of the prompt, the cached ones among them
  int64_t n_passed = 0;      // prompt tokens of others that went before its own: what makes it older

  Job(Request r, RequestSink s, const Model& model)
      : request(std::move(r)), sink(std::move(s)), answer(model, request.generate) {}
  int64_t n_prompt() const noexcept { return static_cast<int64_t>(request.prompt.size()); }
  int64_t n_prompt_left() const noexcept { return n_prompt() - n_prompt_run; }
  int64_t n_answer() const noexcept { return static_cast<int64_t>(answer.ids().size()); }
  bool late(Clock::time_point now) const noexcept { return request.deadline && now > *request.deadline; }
};
using Jobs = std::vector<std::unique_ptr<Job>>;

void check_prompt(const Request& request, const Context& context) {
  const auto size = static_cast<int64_t>(request.prompt.size());
  const int64_t vocab_size = context.model().vocab_size();
  if (size == 0) throw Error(Errc::bad_request, "the prompt is empty");
  if (size > context.n_ctx()) {
    throw Error(Errc::bad_request, fmt::format("the prompt has {} tokens, the context holds {}: a larger n_ctx has room", size,
                                               context.n_ctx()));
  }
  for (size_t i = 0; i < request.prompt.size(); ++i) {
    const TokenId id = request.prompt[i];
    if (id >= 0 && id < vocab_size) continue;
    throw Error(Errc::bad_request, fmt::format("token {} of the prompt: needs an id from 0 to {}, found {}", i,
                                               vocab_size - 1, id));
  }
  if (!(request.weight > 0 && request.weight <= 1e6)) {
    throw Error(Errc::bad_request, fmt::format("weight {}: needs a number above 0, at most 1e6", request.weight));
  }
}

}  // namespace

struct Scheduler::State {
  State(std::shared_ptr<const Model> model, const SchedulerOptions& asked);

  bool step();
  void take_commands(Jobs& ended, std::set<RequestId>& cancelled);
  void admit();
  void end_cancelled_and_late(const std::set<RequestId>& cancelled);
  void build_batch();
  void add_prompts(int64_t n_answers);
  void ask_for_ranked();
  void draw_all();
  void draw(Job& job, int64_t i_output);
  bool is_over(Job& job, FinishReason& reason, bool& context_full) const;
  void emit(Job& job, RequestEvent event);
  void finish(Job& job, FinishReason reason, bool context_full);
  void fail(Job& job, const Error& error);
  void count(FinishReason reason);
  void release(Job& job);
  void fail_batch(const Error& error);

  SchedulerOptions options;
  Context context;
  engine::SequenceSlots slots;
  engine::StepCost cost;
  Jobs running;  // in the order they came in; null: over
  std::vector<BatchToken> batch;
  std::vector<std::pair<Job*, int64_t>> in_batch;  // who has tokens in the batch, and which output is theirs; -1: none
  int64_t n_ranked = 0;                            // what the context finds by itself

  mutable std::mutex mutex;
  std::condition_variable_any changed;
  engine::FairQueue queue;
  std::map<RequestId, std::unique_ptr<Job>> waiting;
  std::set<RequestId> running_ids, cancelled_ids;
  RequestId last_id = 0;
  SchedulerFigures figures;
  double service_ms = 0;  // of requests lately, from start to end
};

Scheduler::State::State(std::shared_ptr<const Model> model, const SchedulerOptions& asked)
    : options(asked), context(std::move(model), asked.context), slots(context, asked.caches_prompts) {
  const int64_t n = context.options().n_sequences;
  if (n > context.options().n_ubatch || n > context.options().n_outputs_max) {
    throw Error(Errc::bad_request, fmt::format("{} requests at once need batches of as many tokens: -ub is {}", n,
                                               context.options().n_ubatch));
  }
  if (!(options.gap_ms_max > 0)) throw Error(Errc::bad_request, fmt::format("a gap of {} ms: needs more than 0", options.gap_ms_max));
  if (options.n_waiting_max < 0) {
    throw Error(Errc::bad_request, fmt::format("a queue of {} requests: needs 0 or more", options.n_waiting_max));
  }
  if (options.n_waiting_max == 0) options.n_waiting_max = std::max<int64_t>(16, 4 * n);
  figures.n_running_max = n;
  figures.n_waiting_max = options.n_waiting_max;
  figures.n_positions = n * context.n_ctx();
}

// Takes the cancelled ids; those of them that wait, and those whose time is over, leave the queue.
void Scheduler::State::take_commands(Jobs& ended, std::set<RequestId>& cancelled) {
  const std::lock_guard lock(mutex);
  cancelled = std::exchange(cancelled_ids, {});
  const auto now = Clock::now();
  for (auto it = waiting.begin(); it != waiting.end();) {
    if (!cancelled.contains(it->first) && !it->second->late(now)) {
      ++it;
      continue;
    }
    queue.remove(it->first);
    ended.push_back(std::move(it->second));
    it = waiting.erase(it);
  }
}

void Scheduler::State::admit() {
  while (static_cast<int64_t>(running.size()) < context.options().n_sequences) {
    std::unique_ptr<Job> job;
    {
      const std::lock_guard lock(mutex);
      const auto id = queue.pop();
      if (!id) return;
      job = std::move(waiting.extract(*id).mapped());
      running_ids.insert(*id);
    }
    const auto place = slots.take(job->request.prompt, job->request.salt);
    job->sequence = place->sequence;  // there is one: fewer run than there are
    job->n_cached = job->n_prompt_run = place->n_cached;
    job->started = Clock::now();
    job->answer.start(job->request.prompt);
    {
      const std::lock_guard lock(mutex);
      figures.n_prompt_tokens += job->n_prompt();
      figures.n_prompt_tokens_cached += job->n_cached;
      queue.charge(job->request.client, job->n_prompt_left());
    }
    running.push_back(std::move(job));
    Job& last = *running.back();
    emit(last, RequestStarted{last.n_prompt(), last.n_cached, ms_between(last.submitted, last.started)});
  }
}

void Scheduler::State::end_cancelled_and_late(const std::set<RequestId>& cancelled) {
  const auto now = Clock::now();
  for (auto& job : running) {
    const bool is_cancelled = cancelled.contains(job->id);
    if (!is_cancelled && !job->late(now)) continue;
    finish(*job, is_cancelled ? FinishReason::cancelled : FinishReason::late, false);
    job.reset();
  }
  std::erase(running, nullptr);
}

// One token of every answer, then as much of the prompts as a step may take.
void Scheduler::State::build_batch() {
  batch.clear();
  in_batch.clear();
  int64_t n_outputs = 0;
  for (const auto& job : running) {
    if (job->n_prompt_left() > 0) continue;
    batch.push_back({job->answer.ids().back(), job->sequence, true});
    in_batch.emplace_back(job.get(), n_outputs++);
  }
  add_prompts(n_outputs);
}

void Scheduler::State::add_prompts(int64_t n_answers) {
  std::vector<Job*> prompts;
  for (const auto& job : running) {
    if (job->n_prompt_left() > 0) prompts.push_back(job.get());
  }
  if (prompts.empty()) return;
  // The shortest rest first; who was passed over grows shorter by what went before it.
  std::stable_sort(prompts.begin(), prompts.end(), [](const Job* a, const Job* b) {
    return a->n_prompt_left() - a->n_passed < b->n_prompt_left() - b->n_passed;
  });
  const int64_t room = context.options().n_ubatch - n_answers;
  const int64_t budget = cost.prompt_tokens(n_answers, options.gap_ms_max, room);
  int64_t left = budget, n_outputs = n_answers;
  for (Job* job : prompts) {
    if (left == 0) {
      job->n_passed += budget;
      continue;
    }
    const int64_t n = std::min(left, job->n_prompt_left());
    const bool is_last = n == job->n_prompt_left();
    for (int64_t i = 0; i < n; ++i) {
      const TokenId token = job->request.prompt[static_cast<size_t>(job->n_prompt_run + i)];
      batch.push_back({token, job->sequence, is_last && i + 1 == n});
    }
    in_batch.emplace_back(job, is_last ? n_outputs++ : -1);
    left -= n;
  }
}

// The best logits leave a device instead of all of them, as many as the most demanding of those needs that can do with them.
void Scheduler::State::ask_for_ranked() {
  int64_t n = 0;
  for (const auto& [job, i_output] : in_batch) {
    if (i_output >= 0) n = std::max(n, job->answer.n_ranked());
  }
  if (n == n_ranked) return;
  n_ranked = n > 0 && context.set_n_ranked(n) ? n : 0;
  if (n_ranked == 0) context.set_n_ranked(0);
}

void Scheduler::State::draw(Job& job, int64_t i_output) {
  engine::Answer& answer = job.answer;
  const int64_t n = answer.n_ranked();
  std::span<const RankedLogit> best;
  if (n > 0 && n_ranked > 0) best = context.batch_ranked(i_output);
  if (!best.empty()) {
    answer.draw(best.first(std::min(best.size(), static_cast<size_t>(n))));
  } else {
    const auto wide = answer.wants_wide() ? context.state().read_logits(i_output) : std::span<const double>();
    answer.draw(context.batch_logits(i_output), wide);
  }
  if (job.n_answer() == 1) job.drew_first = Clock::now();
}

// After a draw, or where there is none to make.
bool Scheduler::State::is_over(Job& job, FinishReason& reason, bool& context_full) const {
  const int64_t n_predict = job.request.generate.n_predict;
  if (job.answer.ended()) {
    reason = FinishReason::stop;
    return true;
  }
  reason = FinishReason::length;
  if (n_predict >= 0 && job.n_answer() >= n_predict) return true;
  context_full = slots.n_positions(job.sequence) == context.n_ctx();  // the token drawn last has no place any more
  return context_full;
}

void Scheduler::State::draw_all() {
  for (const auto& [job, i_output] : in_batch) {
    if (i_output < 0) continue;
    FinishReason reason = FinishReason::length;
    bool context_full = false, is_done = false;
    try {
      if (job->request.generate.n_predict != 0) {
        draw(*job, i_output);
        {
          const std::lock_guard lock(mutex);
          ++figures.n_answer_tokens;
          queue.charge(job->request.client, 1);
        }
        emit(*job, RequestToken{job->answer.ids().back(), std::string(job->answer.shown()), job->answer.logprobs()});
      }
      is_done = is_over(*job, reason, context_full);
      if (is_done) finish(*job, reason, context_full);
    } catch (const Error& error) {  // of this answer alone: logits that are no numbers, nothing left to choose from
      fail(*job, error);
      is_done = true;
    } catch (const std::bad_alloc&) {
      fail(*job, Error(Errc::out_of_memory, "no memory for the next token of an answer"));
      is_done = true;
    }
    if (is_done) *std::find_if(running.begin(), running.end(), [j = job](const auto& r) { return r.get() == j; }) = nullptr;
  }
  std::erase(running, nullptr);
}

void Scheduler::State::emit(Job& job, RequestEvent event) {
  try {
    job.sink(job.id, event);
  } catch (const std::exception&) {  // its listener is gone or broken: nobody else may suffer
    const std::lock_guard lock(mutex);
    if (running_ids.contains(job.id)) cancelled_ids.insert(job.id);
  }
}

// Its place and its numbers are given back before anybody hears of its end.
void Scheduler::State::release(Job& job) {
  if (job.sequence < 0) return;
  slots.give_back(job.sequence);
  const double ms = ms_between(job.started, Clock::now());
  const std::lock_guard lock(mutex);
  queue.over(job.request.client);
  running_ids.erase(job.id);
  figures.n_positions_used = slots.n_positions_taken();
  service_ms = service_ms == 0 ? ms : service_ms + 0.2 * (ms - service_ms);
}

void Scheduler::State::finish(Job& job, FinishReason reason, bool context_full) {
  RequestFinished finished;
  finished.text = job.answer.finish();
  if (const std::string* stop = job.answer.stop_string()) {
    finished.stop_string = *stop;
    if (reason == FinishReason::length) reason = FinishReason::stop;
  }
  finished.reason = reason;
  finished.context_full = context_full && reason == FinishReason::length;
  finished.n_prompt = job.n_prompt();
  finished.n_prompt_cached = job.n_cached;
  finished.n_answer = job.n_answer();
  const auto now = Clock::now();
  if (job.sequence >= 0) {
    const auto drew = finished.n_answer > 0 ? job.drew_first : now;
    finished.queue_ms = ms_between(job.submitted, job.started);
    finished.prefill = {job.n_prompt_run - job.n_cached, ms_between(job.started, drew)};
    finished.decode = {std::max<int64_t>(finished.n_answer - 1, 0), ms_between(drew, now)};
  } else {
    finished.queue_ms = ms_between(job.submitted, now);
  }
  release(job);
  {
    const std::lock_guard lock(mutex);
    count(reason);
  }
  emit(job, std::move(finished));
}

void Scheduler::State::count(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop: ++figures.n_stop; break;
    case FinishReason::length: ++figures.n_length; break;
    case FinishReason::cancelled: ++figures.n_cancelled; break;
    case FinishReason::late: ++figures.n_late; break;
  }
}

void Scheduler::State::fail(Job& job, const Error& error) {
  release(job);
  {
    const std::lock_guard lock(mutex);
    ++figures.n_failed;
  }
  emit(job, RequestFailed{error});
}

// A run that failed: whose fault it was nobody can say, and what the cache holds of its sequences neither.
void Scheduler::State::fail_batch(const Error& error) {
  for (const auto& [job, i_output] : in_batch) {
    slots.forget(job->sequence);
    fail(*job, error);
    *std::find_if(running.begin(), running.end(), [j = job](const auto& r) { return r.get() == j; }) = nullptr;
  }
  std::erase(running, nullptr);
}

bool Scheduler::State::step() {
  Jobs ended;
  std::set<RequestId> cancelled;
  take_commands(ended, cancelled);
  for (const auto& job : ended) {
    finish(*job, cancelled.contains(job->id) ? FinishReason::cancelled : FinishReason::late, false);
  }
  end_cancelled_and_late(cancelled);
  admit();
  if (running.empty()) return false;
  build_batch();
  const auto start = Clock::now();
  try {
    ask_for_ranked();
    context.decode_batch(batch);
  } catch (const Error& error) {
    fail_batch(error);
    return true;
  } catch (const std::bad_alloc&) {
    fail_batch(Error(Errc::out_of_memory, "no memory for a batch of tokens"));
    return true;
  }
  for (const BatchToken& token : batch) slots.append(token.sequence, token.token);
  int64_t n_answers = 0;
  for (const auto& [job, i_output] : in_batch) {
    if (job->n_prompt_left() == 0) ++n_answers;
    job->n_prompt_run = std::min(job->n_prompt(), slots.n_positions(job->sequence));
  }
  draw_all();
  cost.add(n_answers, static_cast<int64_t>(batch.size()) - n_answers, ms_between(start, Clock::now()));
  const std::lock_guard lock(mutex);
  ++figures.n_steps;
  figures.n_running = static_cast<int64_t>(running.size());
  figures.n_positions_used = slots.n_positions_taken();
  return true;
}

Scheduler::Scheduler(std::shared_ptr<const Model> model, const SchedulerOptions& options)
    : state_(std::make_unique<State>(std::move(model), options)) {}
Scheduler::~Scheduler() = default;

std::optional<RequestId> Scheduler::submit(Request request, RequestSink sink) {
  State& s = *state_;
  check_prompt(request, s.context);
  auto job = std::make_unique<Job>(std::move(request), std::move(sink), s.context.model());
  job->submitted = Clock::now();
  const std::lock_guard lock(s.mutex);
  const int64_t n_free = s.figures.n_running_max - static_cast<int64_t>(s.running_ids.size());
  if (s.queue.size() >= s.options.n_waiting_max + n_free) {
    ++s.figures.n_refused;
    return std::nullopt;
  }
  const RequestId id = ++s.last_id;
  job->id = id;
  s.queue.push(id, job->request.client, job->request.weight);
  s.waiting.emplace(id, std::move(job));
  s.changed.notify_all();
  return id;
}

bool Scheduler::cancel(RequestId id) {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  if (!s.waiting.contains(id) && !s.running_ids.contains(id)) return false;
  s.cancelled_ids.insert(id);
  s.changed.notify_all();
  return true;
}

void Scheduler::cancel_all() {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  s.cancelled_ids.insert(s.running_ids.begin(), s.running_ids.end());
  for (const auto& [id, job] : s.waiting) s.cancelled_ids.insert(id);
  s.changed.notify_all();
}

SchedulerFigures Scheduler::figures() const {
  const State& s = *state_;
  const std::lock_guard lock(s.mutex);
  SchedulerFigures figures = s.figures;
  figures.n_running = static_cast<int64_t>(s.running_ids.size());
  figures.n_waiting = s.queue.size();
  if (figures.n_running + figures.n_waiting >= figures.n_running_max) {
    figures.wait_ms = s.service_ms * static_cast<double>(figures.n_waiting + 1) / static_cast<double>(figures.n_running_max);
  }
  return figures;
}

bool Scheduler::step() { return state_->step(); }

void Scheduler::run(std::stop_token stop) {
  while (!stop.stop_requested()) {
    if (step()) continue;
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, stop, [this] { return state_->queue.size() > 0 || !state_->cancelled_ids.empty(); });
  }
}

const Context& Scheduler::context() const noexcept { return state_->context; }

}  // namespace assay
