// The doors of a scheduler: see assay/scheduler.h and scheduler_state.h.
#include "assay/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/context_options.h"
#include "engine/context_state.h"
#include "engine/model_identity.h"
#include "engine/model_state.h"
#include "engine/scheduler/scheduler_state.h"
#include "ops/state/state_store.h"

namespace assay {
namespace {

constexpr auto kHeldLook = std::chrono::milliseconds(500);
constexpr int64_t kKeptMax = 512;  // sequences that hold what may be wanted again
constexpr int64_t kKeptStateBytes = int64_t{1}
                                    << 30;  // of states they hold, where that is more than as many as run at once
constexpr int64_t kKeptStatesOnGpu = 64;    // whose kernels look for the tokens of every sequence

void check_prompt(const Request& request, const Context& context) {
  engine::check_tokens(request.prompt, context);
  if (!(request.weight > 0 && request.weight <= 1e6)) {
    throw Error(Errc::bad_request, fmt::format("weight {}: needs a number above 0, at most 1e6", request.weight));
  }
}

// Each sequence that is kept has states of its own, however much of its pages it shares. A GPU's memory for them is
// taken when the context is made.
int64_t n_kept_states_max(const ContextOptions& options, const Model& model) {
  ops::ExecutorOptions of_one;
  of_one.n_ctx = options.n_ctx;
  const ops::StateBook book(model.state().built.plan.states, of_one);
  const bool on_gpu = options.backend == Backend::cuda;
  const auto bytes = static_cast<int64_t>(std::min<size_t>(book.bytes(on_gpu ? 2 : 1, sizeof(float)), kKeptStateBytes));
  if (bytes == 0) return kKeptMax;
  const int64_t n = kKeptStateBytes / bytes;
  return on_gpu ? std::min(n, kKeptStatesOnGpu) : std::max<int64_t>(options.n_sequences, n);
}

// What the requests' context needs beside what was asked for: sequences for what is kept, logits for every guess.
ContextOptions context_options(const SchedulerOptions& asked, const std::shared_ptr<const Model>& model) {
  if (model == nullptr) return asked.context;  // Context says so
  ContextOptions options = engine::resolve(asked.context, *model);
  if (options.n_positions_max > 0 && options.n_positions_max < options.n_ctx) {
    throw Error(
        Errc::bad_request,
        fmt::format("a pool of {} positions (--max-total-tokens): needs {} at least, so that one request with all its "
                    "positions (-c) fits",
                    options.n_positions_max, options.n_ctx));
  }
  options.gives_back_windows = true;
  // A sequence with states takes memory of its own: where one request runs at a time its place is what is kept.
  const bool keeps_place = options.n_sequences == 1 && !model->state().built.plan.states.empty();
  if (engine::has_pages(options, *model) && asked.caches_prompts && !options.embeddings && !keeps_place) {
    const int64_t n_positions =
        options.n_positions_max > 0 ? options.n_positions_max : options.n_sequences * options.n_ctx;
    options.n_kept = static_cast<int>(
        std::clamp<int64_t>(n_positions / 64, 1, std::min(kKeptMax, n_kept_states_max(options, *model))));
  }
  if (asked.drafts.kind != DraftKind::none && asked.context.n_outputs_max == 0) {
    options.n_outputs_max =
        std::clamp<int64_t>(options.n_sequences * (1 + asked.drafts.n_max), options.n_outputs_max, options.n_ubatch);
  }
  return options;
}

std::string_view why_no_pages(const Context& context) {
  const std::string_view why = engine::why_no_pages(context.options(), context.model());
  return why.empty() ? "of a model with states, which images of pages do not hold" : why;
}

int64_t swap_bytes(const SchedulerOptions& options, const Context& context, const engine::SequenceTables& tables) {
  if (!tables.has_images() && options.swap_bytes_max > 0) {
    throw Error(
        Errc::bad_request,
        fmt::format("memory for requests that wait (--swap-space): needs a cache made of pages, which are what is kept "
                    "there; this one is {}",
                    why_no_pages(context)));
  }
  if (!tables.has_images()) return 0;
  return options.swap_bytes_max >= 0 ? options.swap_bytes_max
                                     : tables.n_pages() * static_cast<int64_t>(tables.page_bytes()) / 4;
}

std::unique_ptr<pages::PromptFolder> prompt_folder(const SchedulerOptions& options, const Context& context,
                                                   const engine::SequenceTables& tables) {
  if (options.prompt_folder.empty()) return nullptr;
  if (!tables.has_images()) {
    throw Error(
        Errc::bad_request,
        fmt::format("saved prompts (--prompt-cache-dir): need a cache made of pages, which are what is saved; this one "
                    "is {}",
                    why_no_pages(context)));
  }
  if (!options.caches_prompts)
    throw Error(Errc::bad_request, "saved prompts (--prompt-cache-dir) and --no-cache-prompt exclude each other");
  if (options.prompt_folder_bytes_max < 1)
    throw Error(Errc::bad_request, "saved prompts (--prompt-cache-size): needs more than 0 bytes");
  const ContextOptions& o = context.options();
  pages::PromptFolder::make(options.prompt_folder);
  pages::PromptOwner owner{
      engine::model_identity(context.model(), options.prompt_folder),
      fmt::format("{}/{} K {} V {}{}", name(o.numerics),
                  o.numerics == Numerics::exact || o.numerics == Numerics::fast ? o.activation_bits : 0,
                  name(o.cache_k), name(o.cache_v), o.backend == Backend::cuda ? " in cuda's order" : ""),
      tables.page_bytes(), tables.window_bytes()};
  return std::make_unique<pages::PromptFolder>(options.prompt_folder, std::move(owner),
                                               static_cast<uint64_t>(options.prompt_folder_bytes_max),
                                               options.on_notice);
}

}  // namespace

void engine::check_tokens(std::span<const TokenId> tokens, const Context& context) {
  check_prompt_size(static_cast<int64_t>(tokens.size()), context.n_ctx());
  const int64_t vocab_size = context.model().vocab_size();
  for (size_t i = 0; i < tokens.size(); ++i) check_prompt_token(tokens[i], i, vocab_size);
}

engine::Job::Job(Request r, RequestSink s, const Model& model)
    : request(std::move(r)), sink(std::move(s)), answer(model, request.generate), tokens(std::move(request.prompt)),
      n_prompt(static_cast<int64_t>(tokens.size())) {}

Scheduler::State::State(std::shared_ptr<const Model> model, const SchedulerOptions& asked)
    : options(asked), context(model, context_options(asked, model)), tables(context, asked.caches_prompts),
      swap(swap_bytes(asked, context, tables)), drafter(engine::make_drafter(asked.drafts, context)),
      folder(prompt_folder(asked, context, tables)) {
  options.context.on_load = {};  // what it refers to may be gone
  if (folder != nullptr) folder->on_read([this] { tell_news(); });
  const int64_t n = context.options().n_sequences;
  if (n > context.options().n_ubatch || n > context.options().n_outputs_max) {
    throw Error(Errc::bad_request, fmt::format("{} requests at once need batches of as many tokens: -ub is {}", n,
                                               context.options().n_ubatch));
  }
  if (!(options.gap_ms_max > 0))
    throw Error(Errc::bad_request, fmt::format("a gap of {} ms: needs more than 0", options.gap_ms_max));
  if (options.n_waiting_max < 0) {
    throw Error(Errc::bad_request, fmt::format("a queue of {} requests: needs 0 or more", options.n_waiting_max));
  }
  if (options.n_waiting_max == 0) options.n_waiting_max = std::max<int64_t>(16, 4 * n);
  batch.reserve(static_cast<size_t>(context.options().n_ubatch));
  prompts.reserve(static_cast<size_t>(n));
  running.reserve(static_cast<size_t>(n));
  parked.reserve(static_cast<size_t>(n) + 1);
  running_ids.reserve(2 * static_cast<size_t>(n) + 1);
  parts.reserve(static_cast<size_t>(n));
  first_draws.reserve(static_cast<size_t>(n));
  asks.reserve(static_cast<size_t>(n));
  figures.n_running_max = n;
  figures.n_waiting_max = options.n_waiting_max;
  figures.n_positions = context.options().n_positions_max > 0 ? context.options().n_positions_max : n * context.n_ctx();
  figures.n_pages = tables.n_pages();
  figures.n_pages_free = tables.has_pages() ? tables.n_pages_free() : 0;
  if (drafter != nullptr) figures.n_accepted_at.resize(static_cast<size_t>(options.drafts.n_max));
}

void Scheduler::State::tell_news() {
  const std::lock_guard lock(mutex);
  has_news = true;
  changed.notify_all();
}

void Scheduler::State::notice(std::string_view line) const {
  if (options.on_notice) options.on_notice(line);
}

Scheduler::Scheduler(std::shared_ptr<const Model> model, const SchedulerOptions& options)
    : state_(std::make_unique<State>(std::move(model), options)) {}
Scheduler::~Scheduler() = default;

std::optional<RequestId> Scheduler::submit(Request request, RequestSink sink) {
  State& s = *state_;
  check_prompt(request, s.context);
  auto job = std::make_unique<engine::Job>(std::move(request), std::move(sink), s.context.model());
  job->submitted = engine::Clock::now();
  const std::lock_guard lock(s.mutex);
  const int64_t n_free = s.figures.n_running_max - s.n_with_place();
  if (s.queue.size() >= s.options.n_waiting_max + n_free) {
    ++s.figures.n_refused;
    return std::nullopt;
  }
  const RequestId id = ++s.last_id;
  job->id = id;
  const engine::Job& waits = *s.waiting.emplace(id, std::move(job)).first->second;
  try {
    s.queue.push(id, waits.request.client, waits.request.weight);
  } catch (...) {
    s.waiting.erase(id);
    throw;
  }
  s.has_news = true;
  s.changed.notify_all();
  return id;
}

bool Scheduler::cancel(RequestId id) {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  if (!s.waiting.contains(id) && !s.runs(id)) return false;
  s.cancelled_ids.insert(id);
  s.has_news = true;
  s.changed.notify_all();
  return true;
}

bool Scheduler::hold(RequestId id) {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  if (!s.waiting.contains(id) && !s.runs(id)) return false;
  s.held_ids.insert(id);
  return true;
}

void Scheduler::resume(RequestId id) {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  if (s.held_ids.erase(id) == 0) return;
  s.has_resumed = s.has_news = true;
  s.changed.notify_all();
}

void Scheduler::cancel_all() {
  State& s = *state_;
  const std::lock_guard lock(s.mutex);
  s.cancelled_ids.insert(s.running_ids.begin(), s.running_ids.end());
  for (const auto& [id, job] : s.waiting) s.cancelled_ids.insert(id);
  s.has_news = true;
  s.changed.notify_all();
}

SchedulerFigures Scheduler::figures() const {
  const State& s = *state_;
  const std::lock_guard lock(s.mutex);
  SchedulerFigures figures = s.figures;
  figures.n_running = s.n_with_place();
  figures.n_waiting = s.queue.size();
  if (figures.n_running + figures.n_waiting >= figures.n_running_max) {
    figures.wait_ms =
        s.service_ms * static_cast<double>(figures.n_waiting + 1) / static_cast<double>(figures.n_running_max);
  }
  return figures;
}

bool Scheduler::step() { return state_->step(); }

void Scheduler::run(std::stop_token stop, const std::function<void()>& after_step) {
  while (!stop.stop_requested()) {
    const bool goes_on = step();
    if (after_step) after_step();
    if (goes_on) continue;
    std::unique_lock lock(state_->mutex);
    const auto wakes = [this] {
      return state_->queue.size() > 0 || !state_->cancelled_ids.empty() || state_->has_resumed;
    };
    if (state_->figures.n_held > 0) {  // their time may be over
      state_->changed.wait_for(lock, stop, kHeldLook, wakes);
    } else {
      state_->changed.wait(lock, stop, wakes);
    }
  }
}

const Context& Scheduler::context() const noexcept { return state_->context; }

}  // namespace assay
