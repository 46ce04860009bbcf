// Who has a place in the cache: requests come in, follow others that read the same, give way when pages are short, and
// come back.
#include <algorithm>
#include <new>
#include <utility>

#include "engine/scheduler/scheduler_state.h"

namespace assay {
namespace {

constexpr int kPreemptedMax = 3;  // then a request keeps its pages

}  // namespace

using engine::Clock, engine::ms_between;

// Takes the cancelled ids; those of them that wait, and those whose time is over, leave the queue. False: there is no
// memory to do so now.
bool Scheduler::State::take_commands(Jobs& ended, std::set<RequestId>& cancelled) {
  const std::lock_guard lock(mutex);
  const auto now = Clock::now();
  const auto leaves = [&](const auto& entry) { return cancelled_ids.contains(entry.first) || entry.second->late(now); };
  try {
    ended.reserve(static_cast<size_t>(std::count_if(waiting.begin(), waiting.end(), leaves)));
  } catch (const std::bad_alloc&) {
    return false;
  }
  for (auto it = waiting.begin(); it != waiting.end();) {
    if (!leaves(*it)) {
      ++it;
      continue;
    }
    queue.remove(it->first);
    held_ids.erase(it->first);
    ended.push_back(std::move(it->second));
    it = waiting.erase(it);
  }
  cancelled.swap(cancelled_ids);
  for (const Jobs* jobs : {&running, &parked, &held}) {
    for (const auto& job : *jobs) job->is_held = held_ids.contains(job->id);
  }
  has_resumed = has_news = false;
  return true;
}

void Scheduler::State::end_cancelled_and_late(const std::set<RequestId>& cancelled) {
  const auto now = Clock::now();
  const auto end = [&](std::unique_ptr<Job>& job) {
    const bool is_cancelled = cancelled.contains(job->id);
    if (!is_cancelled && !job->late(now)) return;
    try {
      finish(*job, is_cancelled ? FinishReason::cancelled : FinishReason::late, false);
    } catch (const std::bad_alloc&) {
      fail(*job, Error(Errc::out_of_memory, "no memory for the end of an answer"));
    }
    job.reset();
  };
  for (auto& job : running) end(job);
  for (auto& job : parked) end(job);
  for (auto& job : held) end(job);
  std::erase(running, nullptr);
  std::erase(parked, nullptr);
  std::erase(held, nullptr);
}

// Those that have drawn, whose listeners do not keep up, make room for others.
void Scheduler::State::set_held_aside() {
  size_t n = 0;
  for (const auto& job : running) n += job->is_held && job->n_answer() > 0 ? 1 : 0;
  if (n == 0) return;
  try {
    held.reserve(held.size() + n);
    parked.reserve(parked.size() + held.size() + n + static_cast<size_t>(context.options().n_sequences) + 1);
  } catch (const std::bad_alloc&) {
    return;  // they go on, and are asked again in the next step
  }
  for (auto& job : running) {
    if (!job->is_held || job->n_answer() == 0) continue;
    leave_place(*job);
    job->is_aside = true;
    job->aside_since = Clock::now();
    held.push_back(std::move(job));
  }
  std::erase(running, nullptr);
  const std::lock_guard lock(mutex);
  figures.n_held += static_cast<int64_t>(n);
  figures.n_positions_used = tables.n_positions_taken();
  figures.n_pages_free = tables.has_pages() ? tables.n_pages_free() : 0;
}

void Scheduler::State::bring_resumed_back() {
  int64_t n = 0;
  for (auto& job : held) {
    if (job->is_held) continue;
    job->is_aside = false;
    job->aside_ms += ms_between(job->aside_since, Clock::now());
    parked.push_back(std::move(job));
    ++n;
  }
  std::erase(held, nullptr);
  const std::lock_guard lock(mutex);
  figures.n_held -= n;
}

// The next in turn: one that has been here before, or the queue's.
std::unique_ptr<engine::Job> Scheduler::State::next_job() {
  if (!parked.empty()) {
    std::unique_ptr<Job> job = std::move(parked.back());
    parked.pop_back();
    return job;
  }
  const std::lock_guard lock(mutex);
  try {
    running_ids.reserve(running_ids.size() + 1);
  } catch (const std::bad_alloc&) {
    return nullptr;  // it waits on
  }
  const auto id = queue.pop();
  if (!id) return nullptr;
  std::unique_ptr<Job> job = std::move(waiting.extract(*id).mapped());
  job->is_held = held_ids.contains(*id);
  running_ids.push_back(*id);
  return job;
}

// Whether its tokens fit beside those of the others, so that it need not give way at once. What one has in common with
// another is counted twice.
bool Scheduler::State::has_room_for(const Job& job) const {
  if (!tables.has_pages() || running.empty()) return true;
  int64_t n = tables.pages_of(job.n_tokens() + 1);
  for (const auto& other : running) n += tables.pages_of(other->n_tokens() + 1);
  return n <= tables.n_pages();
}

void Scheduler::State::admit() {
  while (static_cast<int64_t>(running.size()) < context.options().n_sequences) {
    std::unique_ptr<Job> job = next_job();
    if (job == nullptr) return;
    if (!has_room_for(*job) || (!running.empty() && swap.is_on_its_way(job->id))) {
      parked.push_back(std::move(job));
      return;
    }
    try {
      start(*job);
    } catch (const std::bad_alloc&) {
      fail(*job, Error(Errc::out_of_memory, "no memory for a request's place"));
      continue;
    }
    running.push_back(std::move(job));
    tell_start(*running.back());
  }
}

void Scheduler::State::start(Job& job) {
  job.sequence = tables.take(job.tokens, job.request.salt, job.n_prompt).sequence;
  swap.restore(job.id, tables, job.sequence, job.tokens);
  job.n_read_from = tables.n_positions(job.sequence);
  if (job.started != Clock::time_point()) return;  // it is back
  follow_others(job, n_saved(job));
  if (job.follows == 0 && read_saved(job)) return;
  set_off(job);
}

// What its prompt need not be read for is there, as far as it does not follow another one.
void Scheduler::State::set_off(Job& job) {
  job.n_read_from = tables.n_positions(job.sequence);
  job.n_cached = job.n_prompt_run = std::min(job.n_prompt, job.n_read_from);
  if (job.started != Clock::time_point()) return;
  job.answer.start(job.tokens);
  job.started = Clock::now();
}

int64_t Scheduler::State::n_in_common(const Job& job, const Job& other) {
  return std::min<int64_t>(engine::n_common(other.tokens, job.tokens), job.n_tokens() - 1);
}

// Where another request reads the beginning of the same prompt just now, this one waits for it: choices of one prompt
// are forks of one reading. n_saved: what a file has of it is not waited for.
void Scheduler::State::follow_others(Job& job, int64_t n_saved) {
  if (!tables.has_pages() || !options.caches_prompts || job.has_started) return;
  for (const auto& other : running) {
    if (other.get() == &job || other->follows != 0 || other->request.salt != job.request.salt) continue;
    const int64_t n_common = n_in_common(job, *other);
    if (n_common < n_saved) continue;
    if (n_common - tables.n_positions(job.sequence) < tables.page_positions() ||
        n_common <= tables.n_positions(other->sequence))
      continue;
    job.follows = other->id;
    return;
  }
}

// Takes what the request that it follows has read of its tokens, once that is all, or goes on alone where that one is
// gone.
void Scheduler::State::catch_up(Job& job) {
  if (job.follows == 0) return;
  const auto found =
      std::find_if(running.begin(), running.end(), [&](const auto& other) { return other->id == job.follows; });
  if (found != running.end()) {
    const Job& other = **found;
    const int64_t n_common = n_in_common(job, other), n_read = tables.n_positions(other.sequence);
    if (other.reading != 0 || n_read < n_common) return;
    tables.make_room(1);
    try {
      if (tables.n_usable(other.sequence, n_common) > tables.n_positions(job.sequence)) {
        tables.copy(other.sequence, n_common, job.sequence);
        tables.set_parted(job.sequence, n_common);
      }
    } catch (const std::bad_alloc&) {
      // it reads by itself what it could not take
    }
    set_off(job);
  }
  job.follows = 0;
  if (found != running.end() || !read_saved(job)) tell_start(job);
}

// Sees that there are pages for the batch: drops what nobody uses, then takes the place of a running request. True:
// somebody left or stands aside, so the batch has to be built anew.
bool Scheduler::State::take_pages() {
  if (!tables.has_pages()) return false;
  const auto needed = [this] {
    int64_t n = 0;
    for (const engine::BatchPart& part : parts) n += tables.n_pages_needed(part.job->sequence, part.n_tokens);
    return n;
  };
  for (int64_t n = needed(); n > tables.n_pages_free(); n = needed()) {
    if (tables.make_room(n)) continue;
    if (Job* job = victim(false)) {
      preempt(*job);
      return true;
    }
    const auto aside = std::find_if(running.rbegin(), running.rend(), [](const auto& job) { return !job->is_stalled; });
    if (aside != running.rend() && aside->get() != running.front().get()) {
      (*aside)->is_stalled = true;
      return true;
    }
    Job* job = victim(true);
    if (job == nullptr) return false;  // the run says what is missing
    preempt(*job);
    return true;
  }
  return false;
}

// Those whose pages are still on their way back are left out of this step, as long as another one runs.
void Scheduler::State::set_unready_aside() {
  bool one_runs = false;
  for (const auto& job : running) {
    job->is_stalled = !tables.is_ready(job->sequence);
    one_runs = one_runs || !(job->waits() || job->is_stalled);
  }
  for (const auto& job : running) job->is_stalled = job->is_stalled && one_runs;
}

// The one with the least to compute again, of all but the first.
engine::Job* Scheduler::State::victim(bool with_protected) {
  Job* best = nullptr;
  for (const auto& job : running) {
    if (job == running.front() || (!with_protected && job->n_preempted >= kPreemptedMax)) continue;
    if (best == nullptr || tables.n_positions(job->sequence) < tables.n_positions(best->sequence)) best = job.get();
  }
  return best;
}

// True: what it had in the cache is kept in memory.
bool Scheduler::State::leave_place(Job& job) {
  end_reading(job);
  const bool is_kept = tables.has_pages() && swap.save(job.id, tables, job.sequence);
  if (drafter != nullptr) drafter->over(job.id);
  tables.give_back(std::exchange(job.sequence, -1));
  job.follows = 0;
  if (job.started != Clock::time_point()) tell_start(job);  // else it begins anew, with what was kept
  return is_kept;
}

void Scheduler::State::preempt(Job& job) {
  const bool is_kept = leave_place(job);
  ++job.n_preempted;
  const auto place = std::find_if(running.begin(), running.end(), [&](const auto& r) { return r.get() == &job; });
  parked.push_back(std::move(*place));
  running.erase(place);
  const std::lock_guard lock(mutex);
  ++figures.n_preempted;
  figures.n_swapped += is_kept ? 1 : 0;
}

// Told once, when it is known how much of the prompt the cache had.
void Scheduler::State::tell_start(Job& job) {
  if (job.has_started || job.waits()) return;
  job.has_started = true;
  {
    const std::lock_guard lock(mutex);
    figures.n_prompt_tokens += job.n_prompt;
    figures.n_prompt_tokens_cached += job.n_cached;
    figures.n_prompt_tokens_read += std::min(job.n_saved, job.n_cached);
    queue.charge(job.request.client, job.n_prompt - job.n_cached);
  }
  emit(job, RequestStarted{job.n_prompt, job.n_cached, ms_between(job.submitted, job.started)});
}

}  // namespace assay
