// See recipe.h.
#include "quantize/recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "assay/error.h"
#include "base/shown.h"
#include "quantize/mix_rules.h"

namespace assay::quantizing {
namespace {

using tensor::DType;

bool has(std::string_view text, std::string_view part) noexcept { return text.find(part) != std::string_view::npos; }

// What stays as it is wherever it stands in a name.
// clang-format off
constexpr std::string_view kKept[] = {
    "_norm.weight", "ffn_gate_inp.weight", "ffn_gate_tid2eid.weight",                  // norms, routers
    "altup", "laurel", "per_layer_model_proj",                                        // small matrices of Gemma 3n
    "ssm_conv1d", "shortconv.conv.weight", "indexer.k_proj.weight", "indexer.q_proj.weight",
    "time_mix_first.weight", "time_mix_w0.weight", "time_mix_w1.weight", "time_mix_w2.weight", "time_mix_v0.weight",
    "time_mix_v1.weight", "time_mix_v2.weight", "time_mix_a0.weight", "time_mix_a1.weight", "time_mix_a2.weight",
    "time_mix_g1.weight", "time_mix_g2.weight", "time_mix_decay_w1.weight", "time_mix_decay_w2.weight", "time_mix_lerp_fused.weight",
    "attn_rel_b.weight",
    ".position_embd", "sam.pos_embd", "sam.neck.", "sam.net_", ".rel_pos", ".patch_embd", ".patch_merger",  // pictures
    "a.rvq.codebook", "mm.a.code_embd",                                                                    // sound
};
// clang-format on
constexpr std::string_view kKeptWhole[] = {"position_embd.weight", "token_types.weight"};
constexpr std::string_view kKeptGlm5Next[] = {
    "hc_",
    "indexer.attn_q_b",
    "indexer.attn_k",
    "indexer.proj",
    "indexer_compressor_gate",
    "indexer_compressor_ape",
    "ssm_f_a.weight",
    "ssm_f_b.weight",
    "ssm_g_a.weight",
    "ssm_g_b.weight",
    "ssm_beta.weight",
    "attn_kv_a_mqa.weight",
    "attn_k_b.weight",
    "attn_v_b.weight",
};

bool is_v(Kind kind) noexcept { return kind == Kind::v || kind == Kind::qkv || kind == Kind::kv_b; }

bool is_70b(const ModelFacts& f) noexcept {
  if (f.n_layers != 80) return false;
  if (f.architecture == "llama") return f.n_kv_heads != f.n_heads;
  return f.architecture == "qwen2" || f.architecture == "deci" || f.architecture == "olmo";
}

class Chooser {
 public:
  Chooser(std::span<const RecipeTensor> tensors, const ModelFacts& facts, const RecipeOptions& options)
      : facts_(facts), options_(options), mix_(*options.mix) {
    for (const RecipeTensor& t : tensors) {
      const Kind kind = kind_of(t.name);
      n_v_ += is_v(kind) ? 1 : 0;
      tied_ = tied_ && kind != Kind::output;
    }
    place_.grouped = facts.n_kv_heads > 0 && facts.n_heads / facts.n_kv_heads >= 4;
    place_.n_experts = facts.n_experts;
    place_.has_matrix = options.has_matrix;
    place_.is_70b = is_70b(facts);
    place_.is_falcon = facts.architecture == "falcon";
  }

  Choice choose(const RecipeTensor& t) {
    if (mix_.id == MixId::copy || !is_quantizable(t, facts_, options_.leave_output_tensor))
      return {t.dtype, {}, false, false};
    const Kind kind = kind_of(t.name);
    Choice choice{type_of(t, kind), {}, true, false};
    fit(t, choice);
    choice.needs_matrix = kind != Kind::output && kind != Kind::embedding && needs_matrix(mix_.id, choice.dtype);
    return choice;
  }

 private:
  DType type_of(const RecipeTensor& t, Kind kind) {
    const std::optional<DType> chosen = options_.chosen ? options_.chosen(t.name) : std::nullopt;
    if (kind == Kind::embedding && options_.token_embedding_type &&
        !(t.name == "per_layer_token_embd.weight" && chosen)) {
      return *options_.token_embedding_type;
    }
    if (kind == Kind::output && options_.output_tensor_type) return *options_.output_tensor_type;
    if (!is_quantized(mix_.default_type)) return mix_.default_type;
    if (chosen) return *chosen;
    return options_.pure ? mix_.default_type : by_mix(t, kind);
  }

  DType by_mix(const RecipeTensor& t, Kind kind) {
    if (kind == Kind::output || (tied_ && kind == Kind::embedding)) {
      return options_.output_tensor_type.value_or(output_type(mix_, t.shape.cols(), place_.is_falcon));
    }
    if (mix_.id == MixId::mxfp4_moe) return has_experts(t) ? DType::MXFP4 : DType::Q8_0;
    if (kind == Kind::embedding) return embedding_type(mix_);
    Place place = place_;
    count(t, kind, place);
    const DType dtype = type_by_rule(mix_, kind, place);
    const bool kept_well = facts_.architecture == "glm5-next" &&
                           (has(t.name, "attn_q_a") || has(t.name, "attn_q_b") || has(t.name, "nextn.eh_proj"));
    return kept_well && is_quantized(dtype) ? DType::Q8_0 : dtype;
  }

  static bool has_experts(const RecipeTensor& t) noexcept {
    return t.shape.rank >= 3 && t.shape.dims[static_cast<size_t>(t.shape.rank - 3)] > 1;
  }

  // Which of its kind a tensor is; counts it.
  void count(const RecipeTensor& t, Kind kind, Place& place) {
    if (is_v(kind)) {
      place.i = i_v_++;
      place.n = n_v_;
      return;
    }
    int64_t* counter = kind == Kind::down   ? &i_down_
                       : kind == Kind::gate ? &i_gate_
                       : kind == Kind::up   ? &i_up_
                                            : nullptr;
    if (counter == nullptr) return;
    place.i = (*counter)++;
    place.n = facts_.n_layers;
    const bool by_count = mix_.id == MixId::iq1_s || mix_.id == MixId::iq2_xxs || mix_.id == MixId::iq2_xs ||
                          mix_.id == MixId::iq2_s || mix_.id == MixId::iq2_m;
    if (facts_.n_experts <= 1 || (by_count && kind == Kind::down)) return;
    const std::optional<int64_t> block = block_of(t.name);
    if (!block || *block >= place.n) {
      throw Error(Errc::bad_file, fmt::format("{}: needs a block number from 0 to {} for the mix {}",
                                              base::shown(t.name), place.n - 1, mix_.name));
    }
    place.i = *block;
  }

  static void fit(const RecipeTensor& t, Choice& choice) {
    const auto fits = [&](DType dtype) { return t.shape.cols() % tensor::traits(dtype).block_elements == 0; };
    if (fits(choice.dtype)) return;
    choice.wanted = choice.dtype;
    const std::optional<DType> other = fallback_type(choice.dtype);
    choice.dtype = other && fits(*other) ? *other : DType::F16;
  }

  const ModelFacts& facts_;
  const RecipeOptions& options_;
  const Mix& mix_;
  Place place_;
  bool tied_ = true;
  int64_t n_v_ = 0, i_v_ = 0, i_down_ = 0, i_gate_ = 0, i_up_ = 0;
};

}  // namespace

Kind kind_of(std::string_view name) noexcept {
  if (name == "output.weight") return Kind::output;
  if (name == "token_embd.weight" || name == "per_layer_token_embd.weight") return Kind::embedding;
  constexpr std::pair<std::string_view, Kind> kParts[] = {
      {"attn_qkv.weight", Kind::qkv}, {"attn_kv_b.weight", Kind::kv_b}, {"attn_v.weight", Kind::v},
      {"attn_k.weight", Kind::k},     {"attn_q.weight", Kind::q},       {"attn_output.weight", Kind::attn_output},
      {"ffn_up", Kind::up},           {"ffn_gate", Kind::gate},         {"ffn_down", Kind::down},
  };
  for (const auto& [part, kind] : kParts) {
    if (has(name, part)) return kind;
  }
  return Kind::other;
}

std::optional<int64_t> block_of(std::string_view name) noexcept {
  const size_t at = name.find("blk.");
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view rest = name.substr(at + 4);
  int64_t block = -1;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), block);
  if (error != std::errc{} || block < 0 || end == rest.data() + rest.size() || *end != '.') return std::nullopt;
  return block;
}

bool goes_before(std::string_view a, std::string_view b) noexcept {
  const int64_t block_a = block_of(a).value_or(-1), block_b = block_of(b).value_or(-1);
  return block_a != block_b ? block_a < block_b : a < b;
}

bool is_quantizable(const RecipeTensor& tensor, const ModelFacts& facts, bool leave_output_tensor) noexcept {
  const std::string_view name = tensor.name;
  if (tensor.shape.rank < 2 || !name.ends_with("weight")) return false;
  if (leave_output_tensor && name == "output.weight") return false;
  const auto inside = [&](std::string_view part) { return has(name, part); };
  if (std::any_of(std::begin(kKept), std::end(kKept), inside)) return false;
  if (std::find(std::begin(kKeptWhole), std::end(kKeptWhole), name) != std::end(kKeptWhole)) return false;
  return facts.architecture != "glm5-next" || std::none_of(std::begin(kKeptGlm5Next), std::end(kKeptGlm5Next), inside);
}

std::vector<Choice> choose_types(std::span<const RecipeTensor> tensors, const ModelFacts& facts,
                                 const RecipeOptions& options) {
  Chooser chooser(tensors, facts, options);
  std::vector<Choice> choices;
  choices.reserve(tensors.size());
  for (const RecipeTensor& t : tensors) choices.push_back(chooser.choose(t));
  return choices;
}

}  // namespace assay::quantizing
