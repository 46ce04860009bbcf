// Encoders: vectors in place of text.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "assay/error.h"
#include "convert/families/families.h"
#include "convert/families/family_rules.h"

namespace assay::converting {
namespace {

constexpr std::array kBert = {
    Rule{"model.embeddings.word_embeddings.weight", "token_embd.weight"},
    Rule{"model.embeddings.token_type_embeddings.weight", "token_types.weight"},
    Rule{"model.embeddings.position_embeddings.weight", "position_embd.weight"},
    Rule{"model.embeddings.LayerNorm.weight", "token_embd_norm.weight"},
    Rule{"model.embeddings.LayerNorm.bias", "token_embd_norm.bias"},
    Rule{"model.encoder.layer.{}.attention.self.query.weight", "blk.{}.attn_q.weight"},
    Rule{"model.encoder.layer.{}.attention.self.query.bias", "blk.{}.attn_q.bias"},
    Rule{"model.encoder.layer.{}.attention.self.key.weight", "blk.{}.attn_k.weight"},
    Rule{"model.encoder.layer.{}.attention.self.key.bias", "blk.{}.attn_k.bias"},
    Rule{"model.encoder.layer.{}.attention.self.value.weight", "blk.{}.attn_v.weight"},
    Rule{"model.encoder.layer.{}.attention.self.value.bias", "blk.{}.attn_v.bias"},
    Rule{"model.encoder.layer.{}.attention.output.dense.weight", "blk.{}.attn_output.weight"},
    Rule{"model.encoder.layer.{}.attention.output.dense.bias", "blk.{}.attn_output.bias"},
    Rule{"model.encoder.layer.{}.attention.output.LayerNorm.weight", "blk.{}.attn_output_norm.weight"},
    Rule{"model.encoder.layer.{}.attention.output.LayerNorm.bias", "blk.{}.attn_output_norm.bias"},
    Rule{"model.encoder.layer.{}.intermediate.dense.weight", "blk.{}.ffn_up.weight"},
    Rule{"model.encoder.layer.{}.intermediate.dense.bias", "blk.{}.ffn_up.bias"},
    Rule{"model.encoder.layer.{}.output.dense.weight", "blk.{}.ffn_down.weight"},
    Rule{"model.encoder.layer.{}.output.dense.bias", "blk.{}.ffn_down.bias"},
    Rule{"model.encoder.layer.{}.output.LayerNorm.weight", "blk.{}.layer_output_norm.weight"},
    Rule{"model.encoder.layer.{}.output.LayerNorm.bias", "blk.{}.layer_output_norm.bias"},
};

// What stands beside the encoder: heads that guess words, and a pooler that embeddings do not use.
void leave_heads(Draft& d) {
  for (const char* none : {"*.embeddings.position_ids", "model.pooler.*", "model.cls.*", "model.classifier.*",
                           "model.lm_head.*", "model.head.*", "model.decoder.*"})
    d.leave(none);
}

void bert(Draft& d) {
  Config& c = d.config;
  c.mark_read("num_key_value_heads");
  parts::sizes(d, {.has_kv_heads = false});
  d.flag("attention.causal", false);
  c.expect("hidden_act", {"gelu"});
  c.expect("position_embedding_type", {"absolute"});
  c.expect_flag("add_cross_attention", false);
  c.mark_read("type_vocab_size");
  parts::pooling(d);
  leave_heads(d);
  d.take(kBert);
}

// BERT whose positions are counted from behind the padding token's id: the rows before are never read.
void xlm_roberta(Draft& d) {
  Config& c = d.config;
  if (c.has("lora_adaptations"))
    throw Error(Errc::unsupported, "config.json: lora_adaptations is there; assay runs no jina-bert-v3");
  const int64_t n_unread = c.count("pad_token_id") + 1, n_rows = c.count("max_position_embeddings");
  if (n_rows <= n_unread)
    throw Error(Errc::bad_file,
                fmt::format("config.json: max_position_embeddings is {}, needs more than pad_token_id + 1, which is {}",
                            n_rows, n_unread));
  bert(d);
  d.count("context_length", n_rows - n_unread);
  d.drop_first_rows("position_embd.weight", n_unread);
}

constexpr std::array kNomic = {
    Rule{"model.embeddings.word_embeddings.weight", "token_embd.weight"},
    Rule{"model.embeddings.token_type_embeddings.weight", "token_types.weight"},
    Rule{"model.emb_ln.weight", "token_embd_norm.weight"},
    Rule{"model.emb_ln.bias", "token_embd_norm.bias"},
    Rule{"model.encoder.layers.{}.attn.Wqkv.weight", "blk.{}.attn_qkv.weight"},
    Rule{"model.encoder.layers.{}.attn.out_proj.weight", "blk.{}.attn_output.weight"},
    Rule{"model.encoder.layers.{}.norm1.weight", "blk.{}.attn_output_norm.weight"},
    Rule{"model.encoder.layers.{}.norm1.bias", "blk.{}.attn_output_norm.bias"},
    Rule{"model.encoder.layers.{}.norm2.weight", "blk.{}.layer_output_norm.weight"},
    Rule{"model.encoder.layers.{}.norm2.bias", "blk.{}.layer_output_norm.bias"},
};
constexpr std::array kNomicGated = {
    Rule{"model.encoder.layers.{}.mlp.fc11.weight", "blk.{}.ffn_up.weight"},
    Rule{"model.encoder.layers.{}.mlp.fc12.weight", "blk.{}.ffn_gate.weight"},
    Rule{"model.encoder.layers.{}.mlp.fc2.weight", "blk.{}.ffn_down.weight"},
};
// Of the one with experts, which has biases.
constexpr std::array kNomicBiases = {
    Rule{"model.encoder.layers.{}.attn.Wqkv.bias", "blk.{}.attn_qkv.bias"},
    Rule{"model.encoder.layers.{}.attn.out_proj.bias", "blk.{}.attn_output.bias"},
};
constexpr std::array kNomicPlain = {
    Rule{"model.encoder.layers.{}.mlp.fc1.weight", "blk.{}.ffn_up.weight"},
    Rule{"model.encoder.layers.{}.mlp.fc1.bias", "blk.{}.ffn_up.bias"},
    Rule{"model.encoder.layers.{}.mlp.fc2.weight", "blk.{}.ffn_down.weight"},
    Rule{"model.encoder.layers.{}.mlp.fc2.bias", "blk.{}.ffn_down.bias"},
};
constexpr std::array kNomicRouter = {
    Rule{"model.encoder.layers.{}.mlp.router.layer.weight", "blk.{}.ffn_gate_inp.weight"},
};

// The experts of a layer lie one after the other; the second matrix of each is turned. What is added to their sum has
// no place in the file, as in that of llama.cpp's converter.
void nomic_experts(Draft& d, int64_t layer, int64_t width) {
  const std::string from = fmt::format("model.encoder.layers.{}.mlp.experts.", layer),
                    to = fmt::format("blk.{}.", layer);
  const StoredTensor &up = d.need(from + "mlp.w1"), &down = d.need(from + "mlp.w2");
  for (const StoredTensor* t : {&up, &down}) {
    if (t->shape.size() != 2 || t->rows() != d.n_experts * width)
      throw Error(Errc::bad_file,
                  fmt::format("{}mlp: needs {} experts of {} rows, one after the other", from, d.n_experts, width));
  }
  d.add(to + "ffn_up_exps.weight", {d.n_experts, width, up.cols()}, {{.tensor = &up, .n_rows = up.rows()}});
  std::vector<Slice> turned;
  for (int64_t x = 0; x < d.n_experts; ++x)
    turned.push_back({.tensor = &down, .n_rows = down.cols(), .from_columns = true, .block_row = x * width});
  d.add(to + "ffn_down_exps.weight", {d.n_experts, down.cols(), width}, std::move(turned));
  float largest = 0;
  for (const float x : d.values_of(from + "bias")) largest = std::max(largest, std::abs(x));
  if (largest > 0)
    d.notes.push_back(
        fmt::format("{}bias is left out: files have no tensor for it; its largest value is {}", from, largest));
}

void nomic_mixture(Draft& d, int64_t period, int64_t width) {
  Config& c = d.config;
  if (period == 0) return d.take(kNomicGated);
  d.count("moe_every_n_layers", period);
  parts::n_experts(d, "num_experts");
  d.count("expert_used_count", c.count("moe_top_k"));
  if (c.find_count("num_shared_experts").value_or(0) != 0)
    throw Error(Errc::unsupported, "config.json: num_shared_experts; nomic-bert-moe files have no shared experts");
  for (const char* off : {"moe_normalize_expert_weights", "expert_choice_router"}) c.expect_flag(off, false);
  for (const char* key : {"ffn_div", "moe_impl", "moe_resid_pdrop", "router_aux_loss_coef", "add_pooling_layer"})
    c.mark_read(key);
  std::vector<bool> is_sparse(static_cast<size_t>(d.n_layers)), is_dense(static_cast<size_t>(d.n_layers));
  for (int64_t layer = 0; layer < d.n_layers; ++layer) {
    is_sparse[static_cast<size_t>(layer)] = layer % period == 1;
    is_dense[static_cast<size_t>(layer)] = layer % period != 1;
    if (layer % period == 1) nomic_experts(d, layer, width);
  }
  d.take(kNomicBiases);
  d.take(kNomicPlain, is_dense);
  d.take(kNomicRouter, is_sparse);
}

// Its configuration is that of the model's own code.
void nomic_bert(Draft& d) {
  Config& c = d.config;
  const int64_t period = c.find_count("moe_every_n_layers").value_or(0), width = c.count("n_inner");
  const bool has_experts = period > 0;
  if (has_experts) d.set_architecture("nomic-bert-moe");
  parts::layers_and_heads(d, "n_layer", "n_head");
  const int64_t context = c.count("n_positions"), trained = c.find_count("max_trained_positions").value_or(2048);
  if (trained != 2048 || (context != 8192 && context != 2048)) {
    throw Error(
        Errc::unsupported,
        fmt::format("config.json: n_positions is {}, max_trained_positions {}; known are 8192 or 2048, and 2048",
                    context, trained));
  }
  d.count("block_count", d.n_layers);
  d.count("context_length", context == 8192 ? 2048 : 512);  // what it was trained for
  d.count("embedding_length", c.count("n_embd"));
  d.count("feed_forward_length", width);
  d.count("attention.head_count", d.n_heads);
  d.number("rope.freq_base", c.number("rotary_emb_base"));
  d.number("attention.layer_norm_epsilon", c.number("layer_norm_epsilon"));
  d.flag("attention.causal", false);
  c.expect("activation_function", {has_experts ? "gelu" : "swiglu"});
  for (const char* bias : {"qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias"}) c.expect_flag(bias, has_experts);
  for (const char* off : {"causal", "prenorm", "rotary_emb_interleaved", "use_rms_norm"}) c.expect_flag(off, false);
  if (c.find_number("rotary_emb_fraction").value_or(1.0) != 1.0 || c.has("rotary_emb_scale_base")) {
    throw Error(Errc::unsupported,
                "config.json: rotary_emb_fraction or rotary_emb_scale_base; nomic-bert files have no key for them");
  }
  for (const char* key :
       {"type_vocab_size", "fused_bias_fc", "fused_dropout_add_ln", "use_flash_attn", "use_xentropy",
        "pad_vocab_size_multiple", "parallel_block", "parallel_block_tied_norm", "rotary_scaling_factor",
        "dense_seq_output", "last_layer_subset", "mlp_checkpoint_lvl", "scale_attn_weights",
        "scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn", "max_trained_positions"}) {
    c.mark_read(key);
  }
  parts::pooling(d);
  leave_heads(d);
  d.take(kNomic);
  nomic_mixture(d, period, width);
}

constexpr std::array kModern = {
    Rule{"model.embeddings.tok_embeddings.weight", "token_embd.weight"},
    Rule{"model.embeddings.norm.weight", "token_embd_norm.weight"},
    Rule{"model.final_norm.weight", "output_norm.weight"},
    Rule{"model.layers.{}.attn.Wqkv.weight", "blk.{}.attn_qkv.weight"},
    Rule{"model.layers.{}.attn.Wo.weight", "blk.{}.attn_output.weight"},
    Rule{"model.layers.{}.mlp_norm.weight", "blk.{}.ffn_norm.weight"},
    Rule{"model.layers.{}.mlp.Wi.weight", "blk.{}.ffn_up.weight"},
    Rule{"model.layers.{}.mlp.Wo.weight", "blk.{}.ffn_down.weight"},
};
constexpr std::array kModernNorm = {
    Rule{"model.layers.{}.attn_norm.weight", "blk.{}.attn_norm.weight"}};  // the first layer has the embedding's

void modern_bert(Draft& d) {
  Config& c = d.config;
  parts::sizes(d, {.has_kv_heads = c.has("num_key_value_heads")});
  d.config.mark_read("norm_eps");
  const Json* params = c.find("rope_parameters");
  const Json* full = params == nullptr ? nullptr : params->find("full_attention");
  const Json* window = params == nullptr ? nullptr : params->find("sliding_attention");
  const auto base = [&](const Json* own, std::string_view key) {
    const Json* theta = own == nullptr ? nullptr : own->find("rope_theta");
    return theta == nullptr ? c.number(key) : number_of(*theta, key);
  };
  d.number("rope.freq_base", base(full, "global_rope_theta"));
  d.number("rope.freq_base_swa", base(window, "local_rope_theta"));
  d.number("attention.layer_norm_rms_epsilon", c.number("norm_eps"));
  d.number("attention.layer_norm_epsilon", c.number("norm_eps"));  // what readers want; published folders say it twice
  d.flag("attention.causal", false);
  parts::pooling(d);
  if (!c.has("classifier_pooling")) c.mark_read("classifier_pooling");
  d.count("attention.sliding_window", c.count("local_attention"));
  if (const auto period = c.find_count("global_attn_every_n_layers"))
    d.count("attention.sliding_window_pattern", *period);
  d.text("rope.scaling.type", "none");
  d.count("vocab_size", c.count("vocab_size"));
  if (const std::string activation = c.text("hidden_activation"); !activation.empty())
    d.text("hidden_activation", activation);
  for (const char* off : {"attention_bias", "mlp_bias", "norm_bias"}) c.expect_flag(off, false);
  for (const char* key :
       {"layer_types", "classifier_activation", "classifier_bias", "decoder_bias", "deterministic_flash_attn",
        "reference_compile", "sparse_pred_ignore_index", "sparse_prediction", "repad_logits_with_grad",
        "tie_word_embeddings", "initializer_cutoff_factor", "cls_token_id", "position_embedding_type",
        "embedding_dropout", "global_rope_theta", "local_rope_theta", "layer_norm_eps"}) {
    c.mark_read(key);
  }
  leave_heads(d);
  d.take(kModern);
  d.take(kModernNorm, 1, d.n_layers);
}

constexpr std::array kEuroEnds = {
    Rule{"model.embed_tokens.weight", "token_embd.weight"},
    Rule{"model.norm.weight", "output_norm.weight"},
};

void eurobert(Draft& d) {
  Config& c = d.config;
  parts::sizes(d);
  parts::derive_head_dim(d);
  parts::rope(d, {.scaling = false});
  d.flag("attention.causal", false);
  d.text("rope.scaling.type", "none");
  parts::pooling(d);
  c.expect("hidden_act", {"silu"});
  c.expect_flag("attention_bias", false);
  c.expect_flag("mlp_bias", false);
  for (const char* key : {"clf_pooling", "mask_token_id", "pretraining_tp", "is_causal"}) c.mark_read(key);
  leave_heads(d);
  d.take(kEuroEnds);
  d.take(rules::kNormsBefore);
  d.take(rules::kAttention);
  d.take(rules::kGatedFfn);
}

}  // namespace

std::vector<Family> encoder_families() {
  using enum VocabularyKind;
  return {
      {"bert",
       {"BertModel", "BertForMaskedLM"},
       R"({"layer_norm_eps":1e-12,"type_vocab_size":2,"hidden_act":"gelu"})",
       word_pieces,
       bert,
       {.prefix = "bert.", .bare = true}},
      {"bert",
       {"XLMRobertaModel"},
       R"({"layer_norm_eps":1e-12,"type_vocab_size":2,"hidden_act":"gelu","pad_token_id":1})",
       word_pieces,
       xlm_roberta,
       {.prefix = "roberta.", .bare = true}},
      {"nomic-bert",
       {"NomicBertModel"},
       R"({"layer_norm_epsilon":1e-12,"rotary_emb_base":1000})",
       word_pieces,
       nomic_bert,
       {.bare = true}},
      {"modern-bert",
       {"ModernBertModel", "ModernBertForMaskedLM"},
       R"({"norm_eps":1e-5,"global_rope_theta":160000.0,"local_rope_theta":10000.0})",
       bpe,
       modern_bert,
       {.bare = true, .habit = TokenHabit::surrounded}},
      {"eurobert",
       {"EuroBertModel", "EuroBertForMaskedLM"},
       {},
       bpe,
       eurobert,
       {.bare = true, .habit = TokenHabit::no_bos}},
  };
}

}  // namespace assay::converting
