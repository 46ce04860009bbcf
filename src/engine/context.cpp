// See assay/context.h.
#include "assay/context.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "assay/error.h"
#include "engine/context_options.h"
#include "engine/context_state.h"
#include "engine/model_state.h"
#include "ops/plan/op_values.h"
#include "ops/plan/plan_head.h"

namespace assay {
namespace {

std::shared_ptr<const Model> require_model(std::shared_ptr<const Model> model) {
  if (model == nullptr) throw Error(Errc::bad_request, "a context needs a model, found none");
  return model;
}

void check_n_ranked(const RunRequest& request) {
  if (request.n_ranked < 0)
    throw Error(Errc::bad_request, fmt::format("{} best logits: needs 0 or more", request.n_ranked));
}

}  // namespace

Context::State::State(std::shared_ptr<const Model> loaded, const ContextOptions& asked)
    : model(require_model(std::move(loaded))), options(engine::resolve(asked, *model)),
      pool(options.n_threads, options.pin_threads) {
  const ops::Plan& plan = model->state().built.plan;
  if (options.embeddings && plan.logits != ops::kNone)
    headless = std::make_unique<const ops::Plan>(ops::without_head(plan));
  if (!options.embeddings && plan.logits == ops::kNone) {
    throw Error(
        Errc::unsupported,
        fmt::format("{} is an encoder ({}): it has no logits and writes no text; assay embed gives its embeddings",
                    model->name(), model->architecture()));
  }
  engine::ChosenExecutor chosen = engine::make_executor(*model, options, pool, headless.get());
  options.on_load = {};  // what it refers to may be gone by the time that somebody makes a context like this one
  executor = std::move(chosen.executor);
  kernels = std::move(chosen.kernels);
  positions.reserve(static_cast<size_t>(options.n_ubatch));
  sequences.reserve(static_cast<size_t>(options.n_ubatch));
  outputs.reserve(static_cast<size_t>(options.n_ubatch));
  batch_tokens.reserve(static_cast<size_t>(options.n_ubatch));
  next_position.resize(static_cast<size_t>(n_sequences()));
  logits_double.resize(static_cast<size_t>((headless ? *headless : plan).output_width()));
  ranked.reserve(static_cast<size_t>(executor->supports().n_ranked_max));
}

void Context::State::check_sequence(int sequence) const {
  if (sequence < 0 || sequence >= n_sequences()) {
    throw Error(Errc::bad_request, fmt::format("sequence: needs 0 to {}, found {}", n_sequences() - 1, sequence));
  }
}

const ops::Plan& Context::State::plan() const noexcept {
  return headless != nullptr ? *headless : model->state().built.plan;
}

void Context::State::check_request(std::span<const TokenId> tokens, int sequence) const {
  check_sequence(sequence);
  model->state()
      .file.check_sizes();  // a file cut since it was loaded is an Error here and a dead process where its map is read
  if (tokens.empty()) throw Error(Errc::bad_request, "decode: needs at least one token, found none");
  for (size_t i = 0; i < tokens.size(); ++i) check_token(tokens[i], i);
  check_room(static_cast<int64_t>(tokens.size()), sequence);
}

void engine::check_prompt_size(int64_t n_tokens, int64_t n_ctx) {
  if (n_tokens == 0) throw Error(Errc::bad_request, "the prompt is empty");
  if (n_tokens > n_ctx) {
    throw Error(
        Errc::bad_request,
        fmt::format(
            "the prompt has {} tokens, the context holds {}: an n_ctx of {} has room for both prompt and answer",
            n_tokens, n_ctx, n_tokens + 256));
  }
}

void engine::check_prompt_token(TokenId token, size_t i, int64_t vocab_size) {
  if (token < 0 || token >= vocab_size) {
    throw Error(Errc::bad_request,
                fmt::format("token {} of the prompt: needs an id from 0 to {}, found {}", i, vocab_size - 1, token));
  }
}

void Context::State::check_token(TokenId token, size_t i) const {
  engine::check_prompt_token(token, i, model->vocab_size());
}

void Context::State::check_room(int64_t n_tokens, int sequence) const {
  const int64_t n_past = executor->n_positions(sequence);
  if (n_tokens > options.n_ctx - n_past) {
    throw Error(Errc::bad_request,
                fmt::format("the context is full: {} tokens after {} do not fit into the {} positions of the context; "
                            "a larger n_ctx has more",
                            n_tokens, n_past, options.n_ctx));
  }
}

ops::RunRequest Context::State::of_executor(const RunRequest& request) const noexcept {
  return {request.n_ranked, nullptr, request.follows_best, observer, timer};
}

void Context::State::decode_batch(std::span<const BatchToken> batch, const RunRequest& request,
                                  ops::OutputMasks* masks) {
  check_n_ranked(request);
  model->state().file.check_sizes();
  const auto n_wanted = std::count_if(batch.begin(), batch.end(), [](const BatchToken& t) { return t.wants_logits; });
  if (batch.empty() || static_cast<int64_t>(batch.size()) > options.n_ubatch || n_wanted > options.n_outputs_max) {
    throw Error(Errc::bad_request,
                fmt::format("a batch of {} tokens, {} of which want logits: needs 1 to {} tokens (-ub) and at most {} "
                            "logits rows",
                            batch.size(), n_wanted, options.n_ubatch, options.n_outputs_max));
  }
  for (int sequence = 0; sequence < n_sequences(); ++sequence) {
    next_position[static_cast<size_t>(sequence)] = executor->n_positions(sequence);
  }
  batch_tokens.clear();
  positions.clear();
  sequences.clear();
  outputs.clear();
  for (size_t i = 0; i < batch.size(); ++i) {
    check_sequence(batch[i].sequence);
    check_token(batch[i].token, i);
    int64_t& position = next_position[static_cast<size_t>(batch[i].sequence)];
    batch_tokens.push_back(batch[i].token);
    positions.push_back(static_cast<int32_t>(position++));
    sequences.push_back(batch[i].sequence);
    outputs.push_back(batch[i].wants_logits ? 1 : 0);
  }
  for (int sequence = 0; sequence < n_sequences(); ++sequence) {
    check_room(next_position[static_cast<size_t>(sequence)] - executor->n_positions(sequence), sequence);
  }
  i_logits = -1;
  n_batch_outputs = 0;
  ops::RunRequest asked = of_executor(request);
  asked.masks = masks;
  executor->run({batch_tokens, positions, sequences, outputs, asked});
  n_batch_outputs = n_wanted;
  i_logits = n_wanted - 1;
}

int64_t Context::State::decode(std::span<const TokenId> tokens, int sequence, const RunRequest& request,
                               ops::OutputMasks* masks) {
  check_request(tokens, sequence);
  return run(tokens, sequence, options.n_ubatch, false, request, masks, [](int64_t, int64_t) {});
}

int64_t Context::State::run(std::span<const TokenId> tokens, int sequence, int64_t n_chunk_max, bool all_outputs,
                            const RunRequest& request, ops::OutputMasks* masks,
                            const std::function<void(int64_t, int64_t)>& done) {
  check_n_ranked(request);
  ops::RunRequest asked = of_executor(request);
  const int64_t n_tokens = static_cast<int64_t>(tokens.size());
  int64_t n_done = 0;
  i_logits = -1;
  n_batch_outputs = 0;
  while (n_done < n_tokens) {
    if (request.cancelled && request.cancelled()) break;
    const int64_t n = std::min(n_chunk_max, n_tokens - n_done);
    const bool is_last = n_done + n == n_tokens;
    const int64_t n_past = executor->n_positions(sequence);
    positions.clear();
    for (int64_t i = 0; i < n; ++i) positions.push_back(static_cast<int32_t>(n_past + i));
    sequences.assign(static_cast<size_t>(n), sequence);
    outputs.assign(static_cast<size_t>(n), all_outputs ? 1 : 0);
    if (is_last) outputs.back() = 1, asked.masks = masks;
    executor->run(
        {tokens.subspan(static_cast<size_t>(n_done), static_cast<size_t>(n)), positions, sequences, outputs, asked});
    i_logits = all_outputs ? n - 1 : (is_last ? 0 : -1);
    done(n_done, n);
    n_done += n;
    if (request.progress) request.progress(n_done, n_tokens);
  }
  return n_done;
}

std::span<const RankedLogit> Context::State::read_ranked(int64_t i_output) {
  ranked.clear();
  for (const ops::RankedLogit& x : executor->ranked(i_output)) ranked.push_back({x.token, x.logit});
  return ranked;
}

std::span<const double> Context::State::read_logits(int64_t i_output) {
  executor->read_logits(i_output, logits_double);
  return logits_double;
}

void Context::State::add_to_digest(int64_t i_output, int64_t position, int sequence) {
  if (sequence != 0 || position != n_digested) return;  // a gap: logits_digest() will say so
  if (options.numerics == Numerics::oracle) {
    logits_digest.add(std::as_bytes(std::span(logits_double)));
  } else {
    logits_digest.add(std::as_bytes(executor->logits(i_output)));
  }
  ++n_digested;
}

Context::Context(std::shared_ptr<const Model> model, const ContextOptions& options)
    : state_(std::make_unique<State>(std::move(model), options)) {}
Context::~Context() = default;
Context::Context(Context&&) noexcept = default;
Context& Context::operator=(Context&&) noexcept = default;

const Model& Context::model() const noexcept { return *state_->model; }
const ContextOptions& Context::options() const noexcept { return state_->options; }
std::string_view Context::kernels() const noexcept { return state_->kernels; }

std::vector<std::string> Context::borrowed() const {
  const ops::Plan& plan = state_->plan();
  std::vector<std::string> kinds;
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const std::string kind = ops::kind_name(plan.ops[i]);
    if (std::ranges::find(kinds, kind) != kinds.end()) continue;
    const auto uses = state_->executor->kernels_of(static_cast<int32_t>(i));
    if (std::ranges::any_of(uses, &ops::KernelUse::borrowed)) kinds.push_back(kind);
  }
  return kinds;
}

int64_t Context::decode(std::span<const TokenId> tokens, int sequence, const RunRequest& request) {
  return state_->decode(tokens, sequence, request);
}

int64_t Context::decode_all(std::span<const TokenId> tokens, const LogitsSink& sink, int sequence,
                            const RunRequest& request) {
  State& s = *state_;
  s.check_request(tokens, sequence);
  const int64_t n_past = s.executor->n_positions(sequence);
  return s.run(tokens, sequence, s.options.n_outputs_max, true, request, {}, [&](int64_t i_first, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      const std::span<const double> logits = s.read_logits(i);
      s.add_to_digest(i, n_past + i_first + i, sequence);
      if (sink) sink(n_past + i_first + i, logits);
    }
  });
}

void Context::decode_batch(std::span<const BatchToken> tokens, const RunRequest& request) {
  state_->decode_batch(tokens, request);
}

std::span<const float> Context::batch_logits(int64_t i_output) const {
  if (i_output < 0 || i_output >= state_->n_batch_outputs) {
    throw Error(Errc::bad_request, fmt::format("batch logits: needs an output from 0 to {} of the last batch, found {}",
                                               state_->n_batch_outputs - 1, i_output));
  }
  return state_->executor->logits(i_output);
}

int64_t Context::n_ranked_max() const noexcept { return state_->executor->supports().n_ranked_max; }

bool Context::runs_ahead() const noexcept { return state_->executor->supports().follows_best; }

std::span<const RankedLogit> Context::ranked() const {
  if (state_->i_logits < 0) throw Error(Errc::bad_request, "best logits: no token was run, or its call was cancelled");
  return state_->read_ranked(state_->i_logits);
}

std::span<const RankedLogit> Context::batch_ranked(int64_t i_output) const {
  if (i_output < 0 || i_output >= state_->n_batch_outputs) {
    throw Error(Errc::bad_request, fmt::format("best logits: needs an output from 0 to {} of the last batch, found {}",
                                               state_->n_batch_outputs - 1, i_output));
  }
  return state_->read_ranked(i_output);
}

std::span<const float> Context::logits() const {
  if (state_->i_logits < 0) throw Error(Errc::bad_request, "logits: no token was run, or its call was cancelled");
  return state_->executor->logits(state_->i_logits);
}

std::span<const double> Context::logits_double() const {
  if (state_->i_logits < 0) throw Error(Errc::bad_request, "logits: no token was run, or its call was cancelled");
  return state_->read_logits(state_->i_logits);
}

int64_t Context::n_ctx() const noexcept { return state_->options.n_ctx; }

int64_t Context::n_past(int sequence) const {
  state_->check_sequence(sequence);
  return state_->executor->n_positions(sequence);
}

void Context::truncate(int64_t n_positions, int sequence) {
  state_->check_sequence(sequence);
  if (n_positions < 0)
    throw Error(Errc::bad_request, fmt::format("truncate: needs 0 positions or more, found {}", n_positions));
  state_->executor->truncate(sequence, n_positions);
  if (sequence == 0 && n_positions == 0) {
    state_->logits_digest.reset();
    state_->n_digested = 0;
  } else if (sequence == 0 && n_positions < state_->n_digested) {
    state_->n_digested = -1;  // bits of positions that are gone cannot be taken out again
  }
}

void Context::clear() {
  for (int sequence = 0; sequence < state_->n_sequences(); ++sequence) truncate(0, sequence);
}

std::string Context::kv_digest(int sequence) const {
  state_->check_sequence(sequence);
  engine::BitsDigest digest;
  state_->executor->visit_cache(sequence, [&](std::span<const std::byte> bytes) { digest.add(bytes); });
  return digest.hex();
}

std::string Context::logits_digest() const {
  const int64_t n_past = state_->executor->n_positions(0);
  if (n_past == 0 || state_->n_digested != n_past) {
    throw Error(Errc::bad_request,
                fmt::format("logits digest: needs the logits of all {} positions, which decode_all computes from "
                            "position 0 on",
                            n_past));
  }
  return state_->logits_digest.hex();
}

MemoryFigures Context::memory() const noexcept {
  return {state_->model->weights_bytes(), static_cast<int64_t>(state_->executor->cache_bytes()),
          static_cast<int64_t>(state_->executor->arena_bytes())};
}

}  // namespace assay
