// Guesses by a smaller model. It runs the tokens that it has not seen of every request that asks, all in one batch,
// then one guess of each at a time. A guess is drawn as the answer's token will be: by the same seed, request and
// position, so that where both models think alike they draw alike.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "assay/error.h"
#include "engine/scheduler/drafter.h"

namespace assay::engine {
namespace {

std::string difference(const Model& draft, const Model& target) {
  if (draft.vocab_size() != target.vocab_size())
    return fmt::format("{} tokens, the model has {}", draft.vocab_size(), target.vocab_size());
  const auto &a = draft.tokenizer(), &b = target.tokenizer();
  if ((a == nullptr) != (b == nullptr)) return "only one of them has its tokenizer loaded";
  if (a == nullptr) return {};
  for (TokenId id = 0; id < draft.vocab_size(); ++id) {
    if (a->piece(id) != b->piece(id))
      return fmt::format("token {} is '{}', the model's is '{}'", id, a->piece(id), b->piece(id));
  }
  return {};
}

ContextOptions draft_context(const Context& target) {
  ContextOptions options = target.options();
  options.n_outputs_max = options.n_sequences;
  options.n_positions_max = 0;
  options.n_kept = 0;
  options.gives_back_windows = false;
  options.n_gpu_layers = -1;
  options.devices.clear();
  options.device_shares.clear();
  options.split_mode = SplitMode::layer;
  return options;
}

// What the sampler may do without the tokens before: a guess is not worth looking back.
SamplerOptions without_history(SamplerOptions options) {
  options.repeat_penalty = 1;
  options.frequency_penalty = options.presence_penalty = 0;
  options.dry_multiplier = 0;
  return options;
}

class ModelDrafter final : public Drafter {
 public:
  ModelDrafter(std::shared_ptr<const Model> model, const Context& target)
      : context_(std::move(model), draft_context(target)) {
    for (int i = context_.options().n_sequences; i-- > 0;) free_.push_back(i);
  }

  void guess(std::span<DraftAsk> asks) override {
    open_.clear();
    for (DraftAsk& ask : asks) {
      if (!begin(ask)) continue;
      open_.push_back({&ask, &requests_.at(ask.id)});
    }
    read_rest();
    while (!open_.empty()) {
      batch_.clear();
      for (const auto& [ask, request] : open_) batch_.push_back({next_of(*ask), request->sequence, true});
      run(batch_);
      for (size_t i = 0; i < open_.size(); ++i) draw(open_[i], static_cast<int64_t>(i));
      std::erase_if(open_, [&](const Open& open) {
        return static_cast<int64_t>(open.ask->guesses->size()) == open.ask->n_max ||
               context_.n_past(open.request->sequence) == context_.n_ctx();
      });
    }
  }

  void over(uint64_t id) override {
    const auto found = requests_.find(id);
    if (found == requests_.end()) return;
    context_.truncate(0, found->second.sequence);
    free_.push_back(found->second.sequence);
    requests_.erase(found);
  }

 private:
  struct Known {
    int sequence = 0;
    std::vector<TokenId> tokens;  // whose positions its sequence has
    Sampler sampler;
  };
  struct Open {
    DraftAsk* ask;
    Known* request;
  };

  // Its place, with what it has in common with the tokens so far. False: there is none.
  bool begin(DraftAsk& ask) {
    auto found = requests_.find(ask.id);
    if (found == requests_.end()) {
      if (free_.empty()) return false;
      Known known{free_.back(), {}, Sampler(without_history(ask.options->sampling), context_.model().vocab_size())};
      known.sampler.start(ask.tokens.first(static_cast<size_t>(ask.n_prompt)), ask.options->request);
      found = requests_.emplace(ask.id, std::move(known)).first;
      free_.pop_back();
    }
    Known& known = found->second;
    const auto n = std::mismatch(known.tokens.begin(), known.tokens.end(), ask.tokens.begin(), ask.tokens.end()).first -
                   known.tokens.begin();
    const size_t n_kept = std::min(static_cast<size_t>(n), ask.tokens.size() - 1);
    known.tokens.resize(n_kept);
    context_.truncate(static_cast<int64_t>(n_kept), known.sequence);
    return true;
  }

  // All tokens of the open requests but the last one of each.
  void read_rest() {
    const auto n_max = static_cast<size_t>(context_.options().n_ubatch);
    batch_.clear();
    for (const auto& [ask, request] : open_) {
      while (request->tokens.size() + 1 < ask->tokens.size()) {
        const TokenId token = ask->tokens[request->tokens.size()];
        request->tokens.push_back(token);
        batch_.push_back({token, request->sequence, false});
        if (batch_.size() < n_max) continue;
        context_.decode_batch(batch_);
        batch_.clear();
      }
    }
    if (!batch_.empty()) context_.decode_batch(batch_);
  }

  static TokenId next_of(const DraftAsk& ask) { return ask.guesses->empty() ? ask.tokens.back() : ask.guesses->back(); }

  void run(std::span<const BatchToken> batch) {
    for (const auto& [ask, request] : open_) request->tokens.push_back(next_of(*ask));
    context_.decode_batch(batch);
  }

  void draw(Open& open, int64_t i_output) {
    const auto position = static_cast<int64_t>(open.ask->tokens.size() + open.ask->guesses->size());
    open.ask->guesses->push_back(open.request->sampler.sample(context_.batch_logits(i_output), position));
  }

  Context context_;
  std::vector<int> free_;
  std::map<uint64_t, Known> requests_;
  std::vector<Open> open_;
  std::vector<BatchToken> batch_;
};

}  // namespace

std::unique_ptr<Drafter> make_model_drafter(std::shared_ptr<const Model> model, const Context& target) {
  const std::string other = difference(*model, target.model());
  if (!other.empty()) {
    throw Error(Errc::bad_request, fmt::format("draft model (-md) {}: it has another vocabulary than {}: {}",
                                               model->name(), target.model().name(), other));
  }
  return std::make_unique<ModelDrafter>(std::move(model), target);
}

}  // namespace assay::engine
