// What the layers of most decoders are made of: the projections of attention, the feed-forward layers, the ends of a
// model. An architecture's file puts them in its own order; what only one family has stands in that family's file.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "model/arch/list.h"
#include "model/rope_scaling.h"

namespace assay::model::arch {

enum class Pairing { pairs, halves };  // of RoPE's elements: (2i, 2i + 1), or (i, i + dim / 2)

struct Heads {
  ops::ValueId q, k, v;  // k: kNone where the layer reads another one's cache; v also where values lie in the keys
};

// What a Granite multiplies: embeddings, what each block gives, logits (the file has a divisor), scores.
struct FileScales {
  double embedding, residual, logits;
  AttentionRule attention;
};

class Decoder {
 public:
  Decoder(const ArchInput& arch_input, PlanBuilder& builder);

  const ArchInput& input;
  const Hparams& h;
  PlanBuilder& p;
  int64_t n_layers;  // without those that only predict further tokens (nextn_predict_layers)

  // Of the layer that was begun: keys may have a value for each.
  int64_t n_heads() const { return h.n_heads_of[at_layer()]; }
  int64_t n_heads(int32_t layer) const { return h.n_heads_of[static_cast<size_t>(layer)]; }
  int64_t n_kv_heads() const { return h.n_kv_heads_of[at_layer()]; }

  // The rotation of rope.freq_base with the file's scaling and factors; plain: another base, neither.
  ops::RopeId rope(Pairing pairing) const;
  ops::RopeId plain_rope(Pairing pairing, double theta) const;
  // The same with LongRoPE's short factors, where the file has such: contexts then end where these do.
  ops::RopeId long_rope(Pairing pairing) const;
  double rope_theta_windowed() const;                // rope.freq_base_swa, else rope.freq_base
  ops::RopeId rope_windowed(Pairing pairing) const;  // rope() over that base
  // Files of models that see pictures too: positions have sections (one and the same in text), and every family turns
  // halves.
  bool has_rope_sections() const;

  // attention.sliding_window, else `otherwise`, where 0 is none; and which layers have it (KeyReader::windowed_layers).
  int64_t window(int64_t otherwise = 0) const;
  std::vector<bool> windowed_layers(int64_t period, bool last_full, int64_t otherwise = 0) const;

  ops::ValueId embed(double scale = 1.0) const;
  void begin_layer(int32_t layer, int64_t window = 0) const {
    begin_layer(layer, {0, h.head_dim, window, h.value_dim});
  }
  void begin_layer(int32_t layer,
                   ops::CacheLayer cache) const;  // with heads of its own widths; their number is the file's

  // RMS norm with the file's epsilon; the same over every head; LayerNorm, with a bias where the file has one.
  ops::ValueId rms(std::string_view name, ops::ValueId x) const;
  ops::ValueId rms_heads(std::string_view name, ops::ValueId x) const;
  ops::ValueId layer_norm(std::string_view name, ops::ValueId x) const;
  float layer_norm_eps() const;

  // attn_q, attn_k, attn_v of x with their biases, or their rows of attn_qkv.
  Heads project(ops::ValueId x) const;
  Heads turn(const Heads& heads, ops::RopeId rope) const;  // q and k
  Heads norm_heads(const Heads& heads) const;              // q and k by attn_q_norm, attn_k_norm, each head on its own
  Heads norm_whole(const Heads& heads) const;              // the same over the whole width
  // Stores k and v and attends; in the last layer keeps of the result and of each residual only the tokens whose logits
  // are wanted.
  ops::ValueId attend_heads(const Heads& heads, const AttentionRule& rule,
                            std::initializer_list<ops::ValueId*> residuals) const;
  // The last part of it: o and each residual as what follows in this layer needs them.
  ops::ValueId attended(ops::ValueId o, std::initializer_list<ops::ValueId*> residuals) const;
  // In the last layer of x only the tokens whose logits are wanted, as <name>_selected; else x.
  ops::ValueId wanted(std::string_view name, ops::ValueId x) const;
  ops::ValueId attn_output(ops::ValueId o) const;
  // Both: stores k and v, attends; then, in the last layer, keeps of the result and of each residual only the tokens
  // whose logits are wanted; attn_output.
  ops::ValueId attend(const Heads& heads, const AttentionRule& rule,
                      std::initializer_list<ops::ValueId*> residuals) const;
  AttentionRule scaled() const;  // 1 / sqrt(head_dim)
  // An encoder's: the same, and tokens see later ones. Error(unsupported) where the file says that they do not.
  AttentionRule both_ways() const;

  ops::ValueId ffn_gated(ops::ValueId x, ops::ActivationFunction activation) const;  // ffn_gate, ffn_up, ffn_down
  ops::ValueId ffn_fused(ops::ValueId x,
                         ops::ActivationFunction activation) const;  // ffn_up holds the rows of gate, then of up
  ops::ValueId ffn_plain(ops::ValueId x, ops::ActivationFunction activation) const;  // ffn_up, ffn_down
  int64_t d_ff() const;  // Error(bad_file) where the file has none
  ops::ValueId swiglu(ops::ValueId x, std::string_view ending,
                      int64_t width) const;  // ffn_gate<ending>, ffn_up.., ffn_down..

  // Mixtures of experts: the file's counts, then the keys expert_gating_func, expert_weights_norm, expert_weights_scale
  // over what the family has.
  RouteRule route_rule(ops::Gating gating, bool normalise) const;
  int64_t n_experts() const;
  int64_t n_experts_used() const;  // by tokens, in the layer that was begun
  int64_t d_expert() const;
  ops::ValueId routes(ops::ValueId x, RouteRule rule) const;  // ffn_gate_inp and the choice
  // The routed experts' SwiGLU of x, weighted; those that all tokens share; is there a router in this layer.
  ops::ValueId experts(ops::ValueId x, const RouteRule& rule) const;
  ops::ValueId experts(ops::ValueId x, ops::ValueId routes, bool weighted,
                       ops::ActivationFunction activation = ops::ActivationFunction::silu) const;
  ops::ValueId shared_experts(ops::ValueId x) const;  // *_shexp
  ops::ValueId mixture(ops::ValueId x,
                       const RouteRule& rule) const;  // routed experts, and shared ones where the layer has them
  bool has_router() const { return p.has("ffn_gate_inp.weight"); }
  int64_t leading_dense() const {
    return input.keys.find_count("leading_dense_block_count", 0, kLayersMax).value_or(0);
  }

  FileScales scales() const;

  // The head: output.weight, else the embedding; and its bias, where there is one.
  ops::ValueId logits(ops::ValueId x) const;
  ops::ValueId capped(ops::ValueId logits) const;  // by final_logit_softcapping, where the file has one
  // An encoder's: x + the row of token_types for the first kind of token, where the file has it; and the matrices
  // dense_2, dense_3, which follow the pooling.
  ops::ValueId add_token_type(ops::ValueId x) const;
  void dense_layers() const;
  // In place of a head: the model ends with x, of which embeddings are made.
  ops::ValueId no_logits(ops::ValueId x) const;

  bool is_last(int32_t layer) const { return layer + 1 == n_layers; }

 private:
  ops::RopeId scaled_rope(Pairing pairing, double theta) const;
  size_t at_layer() const { return static_cast<size_t>(p.layer()); }
};

}  // namespace assay::model::arch
