// See assay/embed.h.
#include "assay/embed.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "assay/error.h"
#include "engine/context_state.h"
#include "engine/model_state.h"
#include "ops/attention/attention.h"
#include "ops/attention/pooling.h"

namespace assay {
namespace {

constexpr std::array<std::pair<Pooling, std::string_view>, 3> kPoolings{
    {{Pooling::mean, "mean"}, {Pooling::cls, "cls"}, {Pooling::last, "last"}}};
constexpr int64_t kCacheBytesMax = int64_t{256} << 20;  // of texts that run at once
constexpr int kTextsAtOnce = 32;                        // that run at once

ops::Pooling own(Pooling pooling) {
  switch (pooling) {
    case Pooling::mean: return ops::Pooling::mean;
    case Pooling::cls: return ops::Pooling::cls;
    case Pooling::last: return ops::Pooling::last;
  }
  throw Error(Errc::bad_request, "pooling: not one of mean, cls, last");
}

std::shared_ptr<const Model> require(std::shared_ptr<const Model> model) {
  if (model == nullptr) throw Error(Errc::bad_request, "embeddings need a model, found none");
  return model;
}

Pooling choose_pooling(const Model& model, std::optional<Pooling> asked) {
  if (asked) return *asked;
  if (const std::optional<Pooling> found = pooling_of(model)) return *found;
  throw Error(
      Errc::bad_request,
      fmt::format(
          "{} does not say how its rows become an embedding ({}.pooling_type): needs --pooling mean, cls or last",
          model.name(), model.architecture()));
}

int64_t cache_bytes(const ops::Plan& plan, const ContextOptions& options) {
  const auto element = [](KvType type) -> int64_t { return type == KvType::f32 ? 4 : 2; };
  int64_t bytes = 0;
  for (const ops::CacheLayer& layer : plan.cache_layers) {
    bytes += layer.n_kv_heads * (layer.head_dim * element(options.cache_k) + layer.v_dim() * element(options.cache_v));
  }
  return std::max<int64_t>(1, bytes);  // of a position
}

// Of a sequence, whatever its length: the present and a checkpoint.
int64_t state_bytes(const ops::Plan& plan) {
  int64_t n_floats = 0;
  for (const ops::StateLayer& state : plan.states) n_floats += state.n_floats();
  return 2 * n_floats * static_cast<int64_t>(sizeof(float));
}

ContextOptions sized(const Model& model, ContextOptions options) {
  options.embeddings = true;
  if (options.n_sequences == 0) {
    const int64_t n_ctx = options.n_ctx > 0 ? options.n_ctx : std::min<int64_t>(model.state().n_ctx_usable(), 4096);
    const int64_t fit = kCacheBytesMax / (cache_bytes(model.state().built.plan, options) * n_ctx +
                                          state_bytes(model.state().built.plan));
    options.n_sequences = static_cast<int>(std::clamp<int64_t>(fit, 1, kTextsAtOnce));
  }
  return options;
}

}  // namespace

std::string_view name(Pooling pooling) noexcept {
  for (const auto& [value, text] : kPoolings) {
    if (value == pooling) return text;
  }
  return "?";
}

Pooling parse_pooling(std::string_view text) {
  for (const auto& [value, known] : kPoolings) {
    if (known == text) return value;
  }
  throw Error(Errc::bad_request, fmt::format("pooling: needs one of mean, cls, last, found \"{}\"", text));
}

std::optional<Pooling> pooling_of(const Model& model) {
  const int64_t type = model.state().built.hparams.pooling_type;
  switch (type) {
    case 0: return std::nullopt;
    case 1: return Pooling::mean;
    case 2: return Pooling::cls;
    case 3: return Pooling::last;
    default: break;
  }
  throw Error(
      Errc::unsupported,
      fmt::format("{}.pooling_type = {}: needs 1 (mean), 2 (cls) or 3 (last); a reranker's scores are not served",
                  model.architecture(), type));
}

// A text at work in one of the context's sequences.
struct Embedder::Work {
  size_t text = 0;
  int64_t n_done = 0, n = 0;
  int sequence = 0;
  ops::Pool pool;
};

Embedder::Embedder(std::shared_ptr<const Model> model, const EmbedOptions& options)
    : pooling_(choose_pooling(*require(model), options.pooling)), normalize_(options.normalize),
      context_(model, sized(*model, options.context)) {}

int64_t Embedder::width() const noexcept {
  const model::BuiltModel& built = context_.model().state().built;
  return built.dense.empty() ? built.plan.d_model : built.dense.back().shape.rows();
}

void Embedder::check(std::span<const std::vector<TokenId>> texts) const {
  const int64_t n_ctx = context_.n_ctx(), n_vocab = context_.model().vocab_size();
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto n = static_cast<int64_t>(texts[i].size());
    if (n == 0) throw Error(Errc::bad_request, fmt::format("text {}: needs at least one token, found none", i + 1));
    if (n > n_ctx) {
      throw Error(
          Errc::bad_request,
          fmt::format(
              "text {}: {} tokens do not fit into the {} positions of the context; a larger n_ctx has more, a model "
              "of {} was trained for {}",
              i + 1, n, n_ctx, context_.model().architecture(), context_.model().n_ctx_train()));
    }
    for (const TokenId id : texts[i]) {
      if (id < 0 || id >= n_vocab)
        throw Error(Errc::bad_request,
                    fmt::format("text {}: needs ids from 0 to {}, found {}", i + 1, n_vocab - 1, id));
    }
  }
}

void Embedder::finish(Work& work, std::vector<double>& out) {
  out = std::move(work.pool).take();
  for (const tensor::TensorView& dense : context_.model().state().built.dense) out = ops::dense_ref(out, dense);
  if (normalize_) ops::normalise_ref(out);
  if (context_.options().numerics != Numerics::oracle) {
    for (double& x : out) x = static_cast<double>(static_cast<float>(x));
  }
  context_.truncate(0, work.sequence);
}

std::vector<std::vector<double>> Embedder::embed(std::span<const std::vector<TokenId>> texts) {
  check(texts);
  const ContextOptions& options = context_.options();
  const bool whole = !context_.model().state().built.plan.causal;
  const ops::Pooling pooling = own(pooling_);
  int64_t n_all = 0, n_done = 0;
  for (const std::vector<TokenId>& text : texts) n_all += static_cast<int64_t>(text.size());
  std::vector<std::vector<double>> vectors(texts.size());
  std::vector<Work> works;
  std::vector<BatchToken> batch;
  std::vector<size_t> rows;  // of the batch's outputs: whose
  std::vector<int> free;
  for (int i = options.n_sequences; i-- > 0;) free.push_back(i);
  context_.clear();  // of a call that an Error ended
  for (size_t next = 0; next < texts.size() || !works.empty();) {
    if (cancelled_ && cancelled_()) return {};
    batch.clear(), rows.clear();
    for (size_t i = 0; static_cast<int64_t>(batch.size()) < options.n_ubatch; ++i) {
      if (i == works.size()) {
        if (next == texts.size() || free.empty()) break;
        works.push_back({next, 0, static_cast<int64_t>(texts[next].size()), free.back(),
                         ops::Pool(pooling, context_.state().output_width())});
        free.pop_back(), ++next;
      }
      Work& work = works[i];
      const int64_t n = std::min(options.n_ubatch - static_cast<int64_t>(batch.size()), work.n - work.n_done);
      if (whole && n < work.n) break;  // it is the first of the next run
      for (const int64_t end = work.n_done + n; work.n_done < end; ++work.n_done) {
        const bool wanted = ops::Pool::wants(pooling, work.n_done, work.n);
        batch.push_back({texts[work.text][static_cast<size_t>(work.n_done)], work.sequence, wanted});
        if (wanted) rows.push_back(i);
      }
    }
    context_.decode_batch(batch);
    for (size_t i = 0; i < rows.size(); ++i)
      works[rows[i]].pool.add(context_.state().read_logits(static_cast<int64_t>(i)));
    for (Work& work : works) {
      if (work.n_done < work.n) continue;
      finish(work, vectors[work.text]);
      free.push_back(work.sequence);
    }
    std::erase_if(works, [](const Work& work) { return work.n_done == work.n; });
    n_done += static_cast<int64_t>(batch.size());
    if (progress_) progress_(n_done, n_all);
  }
  return vectors;
}

}  // namespace assay
