// A step: which tokens run together, and the run.
#include <algorithm>
#include <new>
#include <utility>

#include "engine/context_state.h"
#include "engine/scheduler/scheduler_state.h"

namespace assay {

using engine::Clock, engine::ms_between;

void engine::BatchMasks::begin(std::span<const BatchPart> parts) {
  held_.clear();
  for (const BatchPart& part : parts) {
    const bool is_drawn = part.i_output >= 0 && part.job->request.generate.n_predict != 0;
    if (is_drawn && part.job->answer.has_mask() && part.job->answer.n_ranked() > 0) held_.push_back(&part);
  }
  allowed_.clear();
  allowed_.reserve(held_.size());
}

std::span<const ops::AllowedTokens> engine::BatchMasks::allowed() noexcept {
  for (const BatchPart* part : held_) {
    const std::span<const uint64_t> words = part->job->answer.look_ahead();
    if (!words.empty()) allowed_.push_back({part->i_output, words});
  }
  return allowed_;
}

// Guesses that may stand behind the request's last token: as many as it may still draw, less the one that is drawn
// without.
int64_t Scheduler::State::n_guesses_max(const Job& job) const {
  int64_t n = std::min<int64_t>(options.drafts.n_max, context.n_ctx() - job.n_tokens());
  if (job.request.generate.n_predict >= 0) n = std::min(n, job.request.generate.n_predict - job.n_answer() - 1);
  return std::max<int64_t>(n, 0);
}

void Scheduler::State::guess() {
  if (drafter == nullptr) return;
  asks.clear();
  // A batch holds one token of everybody and shares what is left.
  const auto n_running = static_cast<int64_t>(running.size());
  const int64_t room = std::min(context.options().n_ubatch, context.options().n_outputs_max) - n_running;
  const int64_t share = n_running > 0 ? std::max<int64_t>(room / n_running, 0) : 0;
  for (const auto& job : running) {
    job->guesses.clear();
    if (job->waits() || job->is_stalled || is_reading(*job) || job->request.make_room) continue;
    const int64_t n = job->pace.next(std::min(n_guesses_max(*job), share));
    if (n > 0) asks.push_back({job->id, job->tokens, job->n_prompt, n, &job->request.generate, &job->guesses});
  }
  if (asks.empty()) return;
  const auto give_up = [this](std::string_view why) {
    for (const engine::DraftAsk& ask : asks) {
      ask.guesses->clear();
      drafter->over(ask.id);
    }
    notice(std::string("no guesses in this step: ") + std::string(why));
  };
  try {
    drafter->guess(asks);
  } catch (const Error& error) {
    give_up(error.what());
  } catch (const std::bad_alloc&) {
    give_up("no memory for them");
  }
}

// A token and guesses of every answer, then as much of the prompts as a step may take.
void Scheduler::State::build_batch() {
  batch.clear();
  parts.clear();
  n_outputs = 0;
  add_answers();
  add_prompts();
}

void Scheduler::State::add_answers() {
  for (const auto& job : running) {
    if (job->waits() || job->is_stalled || is_reading(*job)) continue;
    engine::BatchPart part{
        job.get(), tables.n_positions(job->sequence), 0, static_cast<int64_t>(job->guesses.size()), n_outputs, true};
    part.n_tokens = 1 + part.n_guesses;
    batch.push_back({job->tokens.back(), job->sequence, true});
    for (const TokenId guess : job->guesses) batch.push_back({guess, job->sequence, true});
    n_outputs += part.n_tokens;
    parts.push_back(part);
  }
}

// Of n tokens of a prompt those up to where another request goes on by itself: that one can only take states as they
// are at the end of a run.
int64_t Scheduler::State::n_to_followers(const Job& job, int64_t n) const {
  if (!tables.has_states()) return n;
  const int64_t n_before = tables.n_positions(job.sequence);
  for (const auto& other : running) {
    if (other->follows != job.id) continue;
    const int64_t n_common = n_in_common(*other, job) - n_before;
    if (n_common > 0) n = std::min(n, n_common);
  }
  return n;
}

void Scheduler::State::add_prompts() {
  prompts.clear();
  for (const auto& job : running) {
    if (!job->waits() && !job->is_stalled && is_reading(*job)) prompts.push_back(job.get());
  }
  if (prompts.empty()) return;
  // The shortest rest first; who was passed over grows shorter by what went before it. Sorted in place: the lists are
  // short, and there is no memory to take.
  const auto rest = [this](const Job* job) { return n_left(*job) - job->n_passed; };
  for (size_t i = 1; i < prompts.size(); ++i) {
    for (size_t j = i; j > 0 && rest(prompts[j]) < rest(prompts[j - 1]); --j) std::swap(prompts[j], prompts[j - 1]);
  }
  const auto n_answers = static_cast<int64_t>(parts.size());
  const int64_t room = context.options().n_ubatch - static_cast<int64_t>(batch.size());
  const auto position_of = [this](const Job* job) { return static_cast<double>(tables.n_positions(job->sequence)); };
  const int64_t n_max = std::max<int64_t>(room, 1);
  const int64_t budget =
      std::min(room, cost.prompt_tokens(n_answers, position_of(prompts.front()), options.gap_ms_max, n_max));
  double left = static_cast<double>(budget);
  for (Job* job : prompts) {
    const double weight = n_answers == 0 ? 1.0 : cost.weight(position_of(job));
    // The first has a token whatever it costs, or it would never be read.
    const auto n_fit =
        static_cast<int64_t>(job == prompts.front() && budget > 0 ? std::max(left / weight, 1.0) : left / weight);
    if (n_fit <= 0) {
      job->n_passed += budget;
      continue;
    }
    const int64_t n_before = tables.n_positions(job->sequence);
    const int64_t n = n_to_followers(*job, std::min(n_fit, n_left(*job)));
    const bool is_last = n == n_left(*job);
    if (is_last && n_outputs == context.options().n_outputs_max) continue;
    for (int64_t i = 0; i < n; ++i) {
      batch.push_back({job->tokens[static_cast<size_t>(n_before + i)], job->sequence, is_last && i + 1 == n});
    }
    parts.push_back({job, n_before, n, 0, is_last ? n_outputs++ : -1, false});
    left -= static_cast<double>(n) * weight;
  }
}

// The best logits leave a device instead of all of them, as many as the most demanding of those needs that can do with
// them.
void Scheduler::State::ask_for_ranked() {
  int64_t n = 0;
  for (const engine::BatchPart& part : parts) {
    if (part.i_output >= 0) n = std::max(n, part.job->answer.n_ranked());
  }
  request.n_ranked = n <= context.n_ranked_max() ? n : 0;
  request.follows_best = request.n_ranked == 1 && context.runs_ahead() && best_follows();
}

// Whether the next batch will most likely be the best token of this one. Of one answer alone: each that ends, or comes,
// would cost the others a run that was begun for nothing.
bool Scheduler::State::best_follows() {
  if (parts.size() != 1 || running.size() != 1 || !parked.empty()) return false;
  {
    const std::lock_guard lock(mutex);
    const bool one_comes = queue.size() > 0 && context.options().n_sequences > 1;
    if (one_comes || !cancelled_ids.empty() || has_resumed) return false;
  }
  const engine::BatchPart& part = parts.front();
  const Job& job = *part.job;
  const int64_t n_predict = job.request.generate.n_predict;
  const bool goes_on = n_predict < 0 || job.n_answer() + 1 < n_predict;
  const bool has_room = part.n_before + 1 < context.n_ctx();
  const bool is_best = job.answer.n_ranked() == 1 && !job.answer.has_mask();  // what a mask will leave nobody knows
  return part.is_answer && part.n_guesses == 0 && goes_on && has_room && is_best && !job.is_held;
}

bool Scheduler::State::run_batch() {
  try {
    ask_for_ranked();
    masks.begin(parts);
    context.state().decode_batch(batch, request, masks.any() ? &masks : nullptr);
    return true;
  } catch (const Error& error) {
    fail_batch(error);
  } catch (const std::bad_alloc&) {
    fail_batch(Error(Errc::out_of_memory, "no memory for a batch of tokens"));
  }
  return false;
}

// What the sequences hold now. One whose list of tokens cannot grow fails alone.
void Scheduler::State::after_run() {
  size_t i = 0;
  for (engine::BatchPart& part : parts) {
    Job& job = *part.job;
    const int64_t n = part.n_tokens;
    try {
      for (int64_t t = 0; t < n; ++t) tables.append(job.sequence, batch[i + static_cast<size_t>(t)].token);
      job.n_prompt_run = std::max(job.n_prompt_run, std::min(job.n_prompt, tables.n_positions(job.sequence)));
      if (!part.is_answer && job.request.progress) tell_progress(job);
    } catch (const std::bad_alloc&) {
      tables.forget(job.sequence);
      fail(job, Error(Errc::out_of_memory, "no memory for the tokens of an answer"));
      drop(&job);
      part.job = nullptr;
    }
    i += static_cast<size_t>(n);
  }
}

// What a step takes, by what was in it.
void Scheduler::State::learn(double ms) {
  int64_t n_answers = 0, n_guesses = 0;
  engine::PromptTokens read;
  for (const engine::BatchPart& part : parts) {
    n_answers += part.is_answer ? 1 : 0;
    n_guesses += part.n_guesses;
    if (part.is_answer) continue;
    const auto n = static_cast<double>(part.n_tokens), before = static_cast<double>(read.n);
    const double middle = static_cast<double>(part.n_before) + n / 2;
    read.position = (read.position * before + middle * n) / (before + n);
    read.n += part.n_tokens;
  }
  if (n_guesses == 0) cost.add(n_answers, read, ms, options.gap_ms_max);
  const double plain = cost.answers_ms(n_answers);
  const double relative = read.n == 0 && plain > 0 ? ms / plain : 0;
  for (const engine::BatchPart& part : parts) {
    if (part.job != nullptr && part.is_answer && part.n_guesses > 0) part.job->pace.add_cost(relative);
  }
}

bool Scheduler::State::step() {
  Jobs ended;
  std::set<RequestId> cancelled;
  if (!take_commands(ended, cancelled)) return true;
  for (const auto& job : ended) {
    finish(*job, cancelled.contains(job->id) ? FinishReason::cancelled : FinishReason::late, false);
  }
  end_cancelled_and_late(cancelled);
  bring_resumed_back();
  take_saved();
  admit();
  if (running.empty()) return false;
  const auto start = Clock::now();
  for (const auto& job : running) {
    job->is_stalled = false;
    catch_up(*job);
  }
  set_unready_aside();
  for (const auto& job : running) {
    if (job->reading == 0) tables.give_back_windows(job->sequence);  // who follows one has what it needs of it
  }
  set_held_aside();
  if (running.empty()) return true;  // their places are free
  guess();
  build_batch();
  while (take_pages()) build_batch();
  if (parts.empty()) return await_saved(), true;
  if (!run_batch()) return true;
  after_run();
  learn(ms_between(start, Clock::now()));
  draw_all();
  const std::lock_guard lock(mutex);
  ++figures.n_steps;
  figures.n_running = static_cast<int64_t>(running.size());
  figures.n_positions_used = tables.n_positions_taken();
  figures.n_pages_free = tables.has_pages() ? tables.n_pages_free() : 0;
  figures.cache_bytes_used = tables.used_bytes();
  return true;
}

}  // namespace assay
