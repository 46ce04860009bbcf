// Layers that choose the keys they attend to ("DeepSeek sparse attention"): beside latent attention (latent.h) a layer
// has an indexer, whose own short heads score every key of the past (ops/attention/choose_keys.h). Some files have
// indexers in some layers only; a layer without one attends to what the last one with one has chosen.
// Source: DeepSeek-V3.2, arXiv:2512.02556; Hugging Face transformers, modeling_deepseek_v32, modeling_glm_moe_dsa.
#pragma once

#include "model/arch/decoder.h"

namespace assay::model::arch {

struct IndexerRule {
  ops::RopeId rope;  // of the first elements of index queries and keys
  // Where the file does not say which layers have an indexer: those that have its tensors; else all of them.
  bool shared = false;
};

class Indexer {
 public:
  Indexer(const Decoder& decoder, const IndexerRule& rule);

  // The keys that the begun layer's tokens attend to, by x, which attention reads, and the latent that its queries are
  // made of.
  ops::ValueId choose(ops::ValueId x, ops::ValueId latent);

 private:
  bool has_indexer(int32_t layer) const;

  const Decoder& d_;
  const IndexerRule rule_;
  std::vector<bool> flags_;  // attention.indexer.types: of each layer; empty: the file does not say
  int64_t n_heads_, head_dim_, n_chosen_;
  ops::ValueId chosen_ = ops::kNone;
};

}  // namespace assay::model::arch
