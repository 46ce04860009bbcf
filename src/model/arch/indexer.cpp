// See indexer.h.
#include "model/arch/indexer.h"

#include <fmt/format.h>

#include "assay/error.h"
#include "ops/attention/choose_keys.h"

namespace assay::model::arch {
namespace {

using ops::ValueId;

constexpr float kKeyNormEps = 1e-6f;  // whatever the file says of other norms
constexpr int64_t kIndexHeadsMax = 4096;

// One flag a layer, with or without the layers that only predict further tokens.
std::vector<bool> flags_of(const Decoder& d) {
  const KeyReader& keys = d.input.keys;
  const gguf::Entry* found = keys.metadata().find(keys.key("attention.indexer.types"));
  const bool without_nextn =
      found != nullptr && found->type == gguf::ValueType::array && found->count == static_cast<uint64_t>(d.n_layers);
  return keys.find_flags("attention.indexer.types", without_nextn ? d.n_layers : d.h.n_layers)
      .value_or(std::vector<bool>());
}

}  // namespace

Indexer::Indexer(const Decoder& decoder, const IndexerRule& rule)
    : d_(decoder), rule_(rule), flags_(flags_of(decoder)),
      n_heads_(decoder.input.keys.count("attention.indexer.head_count", 1, kIndexHeadsMax)),
      head_dim_(decoder.input.keys.count("attention.indexer.key_length", 1, kHeadDimMax)),
      n_chosen_(decoder.input.keys.count("attention.indexer.top_k", 1, ops::kKeysChosenMax)) {
  if (head_dim_ < d_.h.rope_dim) {
    throw Error(Errc::bad_file, fmt::format("{}: needs the {} elements that turn ({}), found {}",
                                            d_.input.keys.key("attention.indexer.key_length"), d_.h.rope_dim,
                                            d_.input.keys.key("rope.dimension_count"), head_dim_));
  }
  d_.p.set_n_ctx_max(ops::kChoicePositionsMax);
}

bool Indexer::has_indexer(int32_t layer) const {
  if (!flags_.empty()) return flags_[static_cast<size_t>(layer)];
  return !rule_.shared || d_.p.has("indexer.attn_q_b.weight") || d_.p.has("indexer.attn_k.weight");
}

ValueId Indexer::choose(ValueId x, ValueId latent) {
  PlanBuilder& p = d_.p;
  if (!has_indexer(p.layer())) {
    if (chosen_ != ops::kNone) return chosen_;
    throw Error(Errc::bad_file, fmt::format("{}: layer {} has no indexer, and no layer before it has one",
                                            d_.input.keys.key("attention.indexer.types"), p.layer()));
  }
  const ValueId q = p.linear("indexer.attn_q_b", latent, n_heads_ * head_dim_, Bias::optional);
  const ValueId k = p.layer_norm("indexer.k_norm", p.linear("indexer.attn_k", x, head_dim_, Bias::optional),
                                 kKeyNormEps, NormWeights::required);
  const ValueId weights = p.linear("indexer.proj", x, n_heads_, Bias::optional);
  const int32_t cache = p.index_store("indexer.store", p.rope("indexer.k_rope", k, rule_.rope, head_dim_));
  return chosen_ = p.choose_keys("indexer.choice", p.rope("indexer.q_rope", q, rule_.rope, head_dim_), weights, cache,
                                 n_chosen_);
}

}  // namespace assay::model::arch
