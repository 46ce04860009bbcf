// What comes of a run: tokens drawn, guesses kept or not, requests that end.
#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "engine/context_state.h"
#include "engine/scheduler/scheduler_state.h"

namespace assay {

using engine::Clock, engine::ms_between;

void Scheduler::State::draw(Job& job, int64_t i_output) {
  engine::Answer& answer = job.answer;
  const int64_t n = answer.n_ranked();
  std::span<const RankedLogit> best;
  const bool is_ranked = !answer.has_mask() || answer.has_looked_ahead();
  if (n > 0 && request.n_ranked > 0 && is_ranked) best = context.batch_ranked(i_output);
  best = best.first(std::min(best.size(), static_cast<size_t>(n)));
  if (!best.empty() && answer.decides(best)) {
    answer.draw(best);
  } else {
    const auto wide = answer.wants_wide() ? context.state().read_logits(i_output) : std::span<const double>();
    answer.draw(context.batch_logits(i_output), wide);
  }
}

// The first token of every part at once: each draw looks at as many logits as the vocabulary has tokens, and what two of
// them have in common nobody changes. Left to draw() is what asks its submitter (a mask), reads the one row of doubles
// that the context has (logprobs), or has its best logits already.
void Scheduler::State::draw_first() {
  first_draws.clear();
  for (engine::BatchPart& part : parts) {
    if (part.job == nullptr || part.i_output < 0 || part.job->request.generate.n_predict == 0) continue;
    const engine::Answer& answer = part.job->answer;
    if (answer.has_mask() || answer.wants_wide() || (request.n_ranked > 0 && answer.n_ranked() > 0)) continue;
    try {
      part.logits = context.batch_logits(part.i_output);
    } catch (const Error&) {
      continue;  // draw() meets it again, as the failure of this answer
    }
    first_draws.push_back(&part);
  }
  if (first_draws.size() < 2) return;
  context.state().pool.run(static_cast<int64_t>(first_draws.size()), [this](int64_t i, int) {
    engine::BatchPart& part = *first_draws[static_cast<size_t>(i)];
    try {
      part.job->answer.draw(part.logits);
    } catch (...) {
      part.failure = std::current_exception();
    }
    part.is_drawn = true;
  });
}

// After a draw, or where there is none to make; n_positions: how many hold what was drawn before.
bool Scheduler::State::is_over(Job& job, int64_t n_positions, FinishReason& reason, bool& context_full) const {
  const int64_t n_predict = job.request.generate.n_predict;
  if (job.answer.ended()) {
    reason = FinishReason::stop;
    return true;
  }
  reason = FinishReason::length;
  if (n_predict >= 0 && job.n_answer() >= n_predict) return true;
  context_full = n_positions == context.n_ctx();  // the token drawn last has no place any more
  return context_full;
}

// Where its positions are full: what it goes on with, read anew as far as it differs. False: it ends here.
bool Scheduler::State::make_room(Job& job) {
  if (!job.request.make_room) return false;
  std::vector<TokenId> next = job.request.make_room(job.tokens, job.answer.ids());
  if (next.empty()) return false;
  engine::check_tokens(next, context);
  const int64_t n_same = engine::n_common(tables.tokens(job.sequence), next);
  const auto size = static_cast<int64_t>(next.size());
  tables.truncate(job.sequence, std::min<int64_t>(n_same, size - 1));
  tables.set_parted(job.sequence, n_same);  // the next time it goes back there
  job.n_read_from = tables.n_positions(job.sequence);
  job.n_read_anew += size - job.n_read_from - 1;
  job.n_dropped += job.n_tokens() - size;
  job.tokens = std::move(next);
  return true;
}

// Draws as long as the guesses are what is drawn. True: the request is over.
bool Scheduler::State::draw_part(const engine::BatchPart& part) {
  Job& job = *part.job;
  FinishReason reason = FinishReason::length;
  bool context_full = false;
  if (job.request.generate.n_predict == 0) {
    is_over(job, part.n_before + part.n_tokens, reason, context_full);
    finish(job, reason, context_full);
    return true;
  }
  int64_t n_positions = part.n_before + part.n_tokens - part.n_guesses, n_accepted = 0;
  bool is_done = false;
  for (;; ++n_positions, ++n_accepted) {
    if (n_accepted > 0 || !part.is_drawn) {
      draw(job, part.i_output + n_accepted);
    } else if (part.failure != nullptr) {
      std::rethrow_exception(part.failure);
    }
    if (job.n_answer() == 1) job.drew_first = Clock::now();
    const TokenId token = job.answer.ids().back();
    job.tokens.push_back(token);
    {
      const std::lock_guard lock(mutex);
      ++figures.n_answer_tokens;
      queue.charge(job.request.client, 1);
    }
    emit(job, RequestToken{token, std::string(job.answer.shown()), job.answer.logprobs()});
    is_done = is_over(job, n_positions, reason, context_full);
    if (context_full && make_room(job)) return false;  // it has no guesses
    if (is_done || n_accepted == part.n_guesses || job.guesses[static_cast<size_t>(n_accepted)] != token) break;
  }
  if (part.n_guesses > 0) {
    tables.truncate(job.sequence, n_positions);
    job.n_drafted += part.n_guesses;
    job.n_accepted += n_accepted;
    job.pace.add(part.n_guesses, n_accepted);
    const std::lock_guard lock(mutex);
    figures.n_drafted += part.n_guesses;
    figures.n_accepted += n_accepted;
    for (int64_t i = 0; i < n_accepted; ++i) ++figures.n_accepted_at[static_cast<size_t>(i)];
  }
  if (is_done) finish(job, reason, context_full);
  return is_done;
}

void Scheduler::State::draw_all() {
  draw_first();
  for (const engine::BatchPart& part : parts) {
    if (part.job == nullptr || part.i_output < 0) continue;
    bool is_done = false;
    try {
      is_done = draw_part(part);
    } catch (const Error& error) {  // of this answer alone: logits that are no numbers, nothing left to choose from
      fail(*part.job, error);
      is_done = true;
    } catch (const std::bad_alloc&) {
      fail(*part.job, Error(Errc::out_of_memory, "no memory for the next token of an answer"));
      is_done = true;
    } catch (const std::exception& error) {  // of what its submitter wrote: a mask, what makes room
      fail(*part.job, Error(Errc::bad_request, error.what()));
      is_done = true;
    }
    if (is_done)
      *std::find_if(running.begin(), running.end(), [&](const auto& r) { return r.get() == part.job; }) = nullptr;
  }
  std::erase(running, nullptr);
}

void Scheduler::State::drop(const Job* job) {
  std::erase_if(running, [job](const auto& r) { return r.get() == job; });
}

template <class Call>
void Scheduler::State::call(const Job& job, const Call& listener) {
  try {
    listener();
  } catch (const std::exception&) {  // its listener is gone or broken: nobody else may suffer
    const std::lock_guard lock(mutex);
    if (runs(job.id)) cancelled_ids.insert(job.id);
  }
}

void Scheduler::State::emit(Job& job, RequestEvent event) {
  call(job, [&] { job.sink(job.id, event); });
}

void Scheduler::State::tell_progress(Job& job) {
  const int64_t n_done = tables.n_positions(job.sequence) - job.n_read_from;
  call(job, [&] { job.request.progress(n_done, job.n_tokens() - job.n_read_from); });
}

// Its place and its numbers are given back before anybody hears of its end.
void Scheduler::State::release(Job& job) {
  end_reading(job);
  swap.drop(job.id);
  if (drafter != nullptr) drafter->over(job.id);
  save(job);
  if (job.sequence >= 0) tables.give_back(std::exchange(job.sequence, -1));
  const std::lock_guard lock(mutex);
  held_ids.erase(job.id);
  if (std::exchange(job.is_aside, false)) {
    --figures.n_held;
    job.aside_ms += ms_between(job.aside_since, Clock::now());
  }
  if (std::erase(running_ids, job.id) == 0) return;  // it only waited
  queue.over(job.request.client);
  figures.n_positions_used = tables.n_positions_taken();
  figures.n_pages_free = tables.has_pages() ? tables.n_pages_free() : 0;
  figures.cache_bytes_used = tables.used_bytes();
  const double ms = ms_between(job.started, Clock::now()) - job.aside_ms;  // what the model had to do with it
  if (job.started != Clock::time_point()) service_ms = service_ms == 0 ? ms : service_ms + 0.2 * (ms - service_ms);
}

void Scheduler::State::finish(Job& job, FinishReason reason, bool context_full) {
  RequestFinished finished;
  finished.text = job.answer.finish();
  if (const std::string* stop = job.answer.stop_string()) {
    finished.stop_string = *stop;
    if (reason == FinishReason::length) reason = FinishReason::stop;
  }
  end_reading(job);
  finished.reason = reason;
  finished.context_full = context_full && reason == FinishReason::length;
  finished.n_prompt = job.n_prompt;
  finished.n_prompt_cached = job.n_cached;
  finished.n_answer = job.n_answer();
  finished.n_drafted = job.n_drafted;
  finished.n_accepted = job.n_accepted;
  finished.n_preempted = job.n_preempted;
  finished.n_dropped = job.n_dropped;
  finished.n_positions = job.sequence < 0 ? 0 : tables.n_positions(job.sequence);
  const auto now = Clock::now();
  if (job.started != Clock::time_point()) {
    const auto drew = finished.n_answer > 0 ? job.drew_first : now;
    finished.queue_ms = ms_between(job.submitted, job.started);
    finished.prefill = {job.n_prompt_run - job.n_cached, ms_between(job.started, drew)};
    finished.decode = {std::max<int64_t>(finished.n_answer - 1, 0) + job.n_read_anew, ms_between(drew, now)};
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
  for (const engine::BatchPart& part : parts) {
    tables.forget(part.job->sequence);
    fail(*part.job, error);
    drop(part.job);
  }
}

}  // namespace assay
