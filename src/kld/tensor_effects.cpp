// One sweep over a model's parts, first to last: at each, every candidate whose tensor the part reads is run in its
// place, from the rows that the model hands to the part to the end. The rows are then advanced by the part as it is.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "assay/diff.h"
#include "assay/error.h"
#include "base/index.h"
#include "engine/model_state.h"
#include "kld/base_rows.h"
#include "kld/parts.h"
#include "ops/plan/plan_split.h"
#include "quant/format.h"

namespace assay::kld {
namespace {

constexpr int64_t kLogitsBytesMax = 64 << 20;  // made at a time
constexpr int64_t kTokensMin = 8;

struct Cancelled {};

struct Tried {
  const TensorCandidate* candidate = nullptr;
  Replacement replacement;
  size_t first = 0, last = 0;  // the parts that read it
  bool outside = false;        // of the layers
  bool in_all = false;         // the first candidate of its name
};

const tensor::DTypeTraits* find_type(std::string_view name) noexcept {
  for (uint32_t number = 0; number < 256; ++number) {
    const tensor::DTypeTraits* found = tensor::find_traits(number);
    if (found != nullptr && found->name == name) return found;
  }
  return nullptr;
}

tensor::TensorView view_of(const TensorCandidate& candidate, const tensor::TensorView& own) {
  const tensor::DTypeTraits* type = find_type(candidate.type);
  if (type == nullptr)
    throw Error(Errc::bad_request, fmt::format("{}: there is no type \"{}\"", candidate.name, candidate.type));
  tensor::TensorView view{type->dtype, own.shape, candidate.data};
  const int64_t n_bytes = own.shape.cols() % type->block_elements == 0 ? own.shape.rows() * view.row_bytes() : -1;
  if (n_bytes != static_cast<int64_t>(candidate.data.size())) {
    throw Error(Errc::bad_request,
                fmt::format("{}: {} rows of {} columns of type {} are needed, found {} bytes", candidate.name,
                            own.shape.rows(), own.shape.cols(), candidate.type, candidate.data.size()));
  }
  return view;
}

std::vector<Chunk> chunks_of(const Model& model, std::span<const TokenId> ids, const TensorEffectOptions& options) {
  if (options.n_chunk < kTokensMin || options.n_chunks_max < 0) {
    throw Error(Errc::bad_request, fmt::format("{} chunks of {} tokens: chunks of {} tokens are needed at least",
                                               options.n_chunks_max, options.n_chunk, kTokensMin));
  }
  int64_t n_chunk = std::min({options.n_chunk, static_cast<int64_t>(ids.size()), model.n_ctx_train()});
  if (const int64_t n = model.state().built.plan.n_ctx_max; n > 0) n_chunk = std::min(n_chunk, n);
  if (n_chunk < kTokensMin) {
    throw Error(Errc::bad_request, fmt::format("a text of {} tokens is too short to measure anything: {} are needed",
                                               ids.size(), kTokensMin));
  }
  const auto& tokenizer = model.tokenizer();
  const std::optional<TokenId> bos = tokenizer && tokenizer->adds_bos() ? tokenizer->bos() : std::nullopt;
  int64_t n_chunks = static_cast<int64_t>(ids.size()) / n_chunk;
  if (options.n_chunks_max > 0) n_chunks = std::min(n_chunks, options.n_chunks_max);
  std::vector<Chunk> chunks(at(n_chunks));
  for (int64_t i = 0; i < n_chunks; ++i) {
    const auto own = ids.subspan(at(i * n_chunk), at(n_chunk - 1));  // the last token predicts nothing that is scored
    for (const TokenId id : own) {
      if (id < 0 || id >= model.vocab_size())
        throw Error(Errc::bad_request, fmt::format("token {}: the model has {} of them", id, model.vocab_size()));
    }
    chunks[at(i)] = {{own.begin(), own.end()}, n_chunk / 2};
    if (bos) chunks[at(i)].tokens.front() = *bos;
  }
  return chunks;
}

class Sweep {
 public:
  Sweep(const Model& model, std::span<const TokenId> ids, std::span<const TensorCandidate> candidates,
        const TensorEffectOptions& options)
      : plan_(model.state().built.plan), options_(options), pool_(base::pool_threads(options.n_threads)),
        chunks_(chunks_of(model, ids, options)), borders_(borders_of(plan_)), parts_(ops::split_plan(plan_, borders_)),
        n_rows_(std::clamp<int64_t>(kLogitsBytesMax / (plan_.vocab_size * static_cast<int64_t>(sizeof(float))), 1,
                                    n_scored_of(chunks_.front()))),
        base_(n_scored_of(chunks_.front()) * static_cast<int64_t>(chunks_.size()), plan_.vocab_size),
        scores_(at(base_.n_rows())) {
    result_.effects.resize(candidates.size());
    result_.n_scored = base_.n_rows();
    result_.n_tokens_run = static_cast<int64_t>(chunks_.size() * chunks_.front().tokens.size());
    enter(model.state().file, candidates);
    total_ = static_cast<int64_t>(candidates.size());
  }

  TensorEffects run() {
    try {
      set_base();
      rows_.resize(chunks_.size());
      size_t n_left = tried_.size();
      for (size_t part = 0; part < parts_.size() && n_left > 0; ++part) n_left -= run_part(part);
      measure_all();
    } catch (const Cancelled&) {
      result_.cancelled = true;
    }
    return std::move(result_);
  }

 private:
  using AllRows = std::vector<Rows>;  // of each chunk

  static int64_t n_scored_of(const Chunk& chunk) {
    return static_cast<int64_t>(chunk.tokens.size()) - chunk.n_unscored;
  }
  bool is_last(size_t part) const { return part + 1 == parts_.size(); }
  void poll() const {
    if (options_.cancelled && options_.cancelled()) throw Cancelled{};
  }
  TensorEffect& effect_of(const Tried& tried, std::span<const TensorCandidate> all) {
    return result_.effects[at(tried.candidate - all.data())];
  }

  void enter(const gguf::File& file, std::span<const TensorCandidate> candidates) {
    candidates_ = candidates;
    std::set<std::string_view> names;
    for (const TensorCandidate& candidate : candidates) {
      const gguf::Tensor* own = file.find(candidate.name);
      if (own == nullptr)
        throw Error(Errc::bad_request, fmt::format("{}: the model has no tensor of this name", candidate.name));
      Tried tried{&candidate, {own->view, view_of(candidate, own->view)}, parts_.size(), 0, false, false};
      for (size_t part = 0; part < parts_.size(); ++part) {
        if (!reads(parts_[part].plan, own->view)) continue;
        tried.first = std::min(tried.first, part);
        tried.last = part;
      }
      TensorEffect& effect = effect_of(tried, candidates);
      if (tried.first == parts_.size()) {
        effect.why_none = "no operation of the model reads it; it is read while the model is loaded, or never";
      } else if (quant::find_format(tried.replacement.with.dtype) == nullptr) {
        effect.why_none = fmt::format("a tensor of type {} cannot be run", candidate.type);
      } else {
        tried.outside = reads_outside_layers(plan_, own->view);
        tried.in_all = names.insert(candidate.name).second;
        tried_.push_back(tried);
      }
    }
  }

  // The part run over all chunks; the rows that it hands on, or through the logits the divergence.
  AllRows hand_on(const ops::Plan& part, const AllRows& input) {
    AllRows handed(chunks_.size());
    const PartRunner runner(part, chunks_.front(), n_rows_, pool_);
    for (size_t i = 0; i < chunks_.size(); ++i) {
      poll();
      handed[i] = runner.run(chunks_[i], input[i], {});
    }
    return handed;
  }

  template <class Score>
  void run_to_end(const PartRunner& runner, const AllRows& input, const Score& score) {
    for (size_t i = 0; i < chunks_.size(); ++i) {
      poll();
      const int64_t first_row = static_cast<int64_t>(i) * n_scored_of(chunks_.front());
      runner.run(chunks_[i], input[i], [&](int64_t first, int64_t n, const ops::Executor& executor) {
        pool_.run(n, [&](int64_t j, int) { score(first_row + first + j, executor.logits(j)); });
      });
    }
  }

  double divergence(const PartRunner& runner, const AllRows& input) {
    run_to_end(runner, input,
               [&](int64_t row, std::span<const float> logits) { scores_[at(row)] = base_.divergence(row, logits); });
    double sum = 0;
    for (const double score : scores_) sum += score;
    return sum / static_cast<double>(scores_.size());
  }

  void set_base() {
    const PartRunner runner(plan_, chunks_.front(), n_rows_, pool_);
    run_to_end(runner, AllRows(chunks_.size()),
               [&](int64_t row, std::span<const float> logits) { scores_[at(row)] = base_.set(row, logits) ? 0 : 1; });
    if (std::ranges::any_of(scores_, [](double bad) { return bad != 0; }))
      throw Error(Errc::bad_file, "the model's logits are no finite numbers: nothing can be measured from them");
  }

  // From the part with its candidates in place to the end of the plan, in one run.
  double divergence_from(size_t part, std::span<const Replacement> replacements) {
    const ops::Plan plan = with_replaced(
        part == 0 ? plan_ : ops::split_plan(plan_, std::span(&borders_[part - 1], 1))[1].plan, replacements);
    return divergence(PartRunner(plan, chunks_.front(), n_rows_, pool_), rows_);
  }

  // The squared change of the rows that a part hands on, relative to the square of each token's row.
  double change_of(const AllRows& handed, const AllRows& own) const {
    double change = 0;
    for (size_t i = 0; i < own.size(); ++i) {
      const size_t n_tokens = chunks_[i].tokens.size(), width = own[i].size() / n_tokens;
      for (size_t t = 0; t < n_tokens; ++t) {
        double squares = 0, changes = 0;
        for (size_t j = t * width; j < (t + 1) * width; ++j) {
          const double x = own[i][j], d = static_cast<double>(handed[i][j]) - x;
          squares += x * x;
          changes += d * d;
        }
        if (changes != 0) change += squares == 0 ? 1 : changes / squares;
      }
    }
    return change;
  }

  template <class Measure>
  void note(const Tried& tried, bool estimated, const Measure& measure) {
    TensorEffect& effect = effect_of(tried, candidates_);
    try {
      effect.kl_divergence = measure();
      effect.estimated = estimated;
    } catch (const Error& error) {
      if (error.code != Errc::unsupported) throw;
      effect.why_none = error.what();
    }
    if (options_.progress) options_.progress(++n_done_, total_, tried.candidate->name);
  }

  // How many candidates begin here, all of which are done then.
  size_t run_part(size_t part) {
    std::vector<const Tried*> measured, estimated;  // that nothing behind the part reads
    size_t n = 0;
    for (const Tried& tried : tried_) {
      if (tried.first != part) continue;
      ++n;
      if (tried.last == part && !is_last(part)) {
        (options_.estimate && !tried.outside ? estimated : measured).push_back(&tried);
      } else {
        note(tried, false, [&] { return divergence_from(part, std::span(&tried.replacement, 1)); });
      }
    }
    if (is_last(part)) return n;
    AllRows next = hand_on(parts_[part].plan, rows_);
    if (!measured.empty() || !estimated.empty()) {
      const ops::Plan rest = ops::split_plan(plan_, std::span(&borders_[part], 1))[1].plan;
      const PartRunner tail(rest, chunks_.front(), n_rows_, pool_);
      measure(part, measured, tail);
      estimate(part, estimated, next, tail);
    }
    rows_ = std::move(next);
    return n;
  }

  void measure(size_t part, const std::vector<const Tried*>& inner, const PartRunner& tail) {
    for (const Tried* tried : inner) {
      note(*tried, false, [&] {
        return divergence(tail, hand_on(with_replaced(parts_[part].plan, std::span(&tried->replacement, 1)), rows_));
      });
    }
  }

  void estimate(size_t part, const std::vector<const Tried*>& inner, const AllRows& own, const PartRunner& tail) {
    std::vector<Replacement> together;
    std::vector<double> changes(inner.size(), std::numeric_limits<double>::quiet_NaN());
    for (size_t i = 0; i < inner.size(); ++i) {
      note(*inner[i], true, [&] {
        changes[i] =
            change_of(hand_on(with_replaced(parts_[part].plan, std::span(&inner[i]->replacement, 1)), rows_), own);
        if (inner[i]->in_all) together.push_back(inner[i]->replacement);
        return changes[i];
      });
    }
    if (together.empty()) return;  // there is none, or none can be run
    const AllRows handed = hand_on(with_replaced(parts_[part].plan, together), rows_);
    const double change = change_of(handed, own), all = divergence(tail, handed);
    for (size_t i = 0; i < inner.size(); ++i) {
      auto& found = effect_of(*inner[i], candidates_).kl_divergence;
      if (found) *found = changes[i] == 0 ? 0 : changes[i] / change * all;
    }
  }

  void measure_all() {
    std::vector<Replacement> together;
    for (const Tried& tried : tried_) {
      if (tried.in_all && effect_of(tried, candidates_).kl_divergence) together.push_back(tried.replacement);
    }
    rows_.assign(chunks_.size(), {});
    result_.all.kl_divergence = together.empty() ? 0 : divergence_from(0, together);
  }

  const ops::Plan& plan_;
  const TensorEffectOptions& options_;
  base::ThreadPool pool_;
  const std::vector<Chunk> chunks_;  // all of one length
  const std::vector<int32_t> borders_;
  const std::vector<ops::PlanPart> parts_;
  const int64_t n_rows_;
  BaseRows base_;
  std::vector<double> scores_;  // of the run at work, a scored token each
  std::span<const TensorCandidate> candidates_;
  std::vector<Tried> tried_;
  AllRows rows_;  // that the part at work is given
  TensorEffects result_;
  int64_t n_done_ = 0, total_ = 0;
};

}  // namespace
}  // namespace assay::kld

namespace assay {

TensorEffects tensor_effects(const std::shared_ptr<const Model>& model, std::span<const TokenId> ids,
                             std::span<const TensorCandidate> candidates, const TensorEffectOptions& options) {
  if (model == nullptr) throw Error(Errc::bad_request, "effects of tensors need a model, found none");
  if (!model->has_logits() || !model->state().built.plan.causal)
    throw Error(Errc::unsupported, fmt::format("{} is an encoder ({}): it has no logits that could be compared",
                                               model->name(), model->architecture()));
  model->state().file.check_sizes();
  return kld::Sweep(*model, ids, candidates, options).run();
}

}  // namespace assay
