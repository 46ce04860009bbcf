// The table of the mixes. A rule reads: in these mixes, tensors of this kind, where this holds, get that type; the
// first that holds counts.
#include "quantize/mix_rules.h"

#include <algorithm>
#include <initializer_list>

namespace assay::quantizing {
namespace {

using tensor::DType;
using M = MixId;

enum class When {
  always,
  grouped,             // 4 or more query heads a key head
  grouped_or_experts,  // that, or 4 or more experts
  first_2,             // i < 2
  first_4,             // i < 4
  first_16th,          // i < n / 16
  first_8th,           // i < n / 8
  more,                // the first and last eighth, and every third between
  more_not_falcon,
  middle,               // n / 8 <= i < 7 n / 8
  first_8th_or_8_more,  // i < n / 8, or with 8 experts: more
  first_8th_matrix,     // i < n / 8 and there is a matrix
  first_8th_no_matrix,
  matrix,
  no_matrix,
  experts_8,
  falcon,
  falcon_first_16th,
  falcon_more,
  first_8th_not_falcon,
};

bool more(int64_t i, int64_t n) noexcept { return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2; }

bool holds(When when, const Place& p) noexcept {
  switch (when) {
    case When::always: return true;
    case When::grouped: return p.grouped;
    case When::grouped_or_experts: return p.grouped || p.n_experts >= 4;
    case When::first_2: return p.i < 2;
    case When::first_4: return p.i < 4;
    case When::first_16th: return p.i < p.n / 16;
    case When::first_8th: return p.i < p.n / 8;
    case When::more: return more(p.i, p.n);
    case When::more_not_falcon: return !p.is_falcon && more(p.i, p.n);
    case When::middle: return p.i >= p.n / 8 && p.i < 7 * p.n / 8;
    case When::first_8th_or_8_more: return p.i < p.n / 8 || (p.n_experts == 8 && more(p.i, p.n));
    case When::first_8th_matrix: return p.has_matrix && p.i < p.n / 8;
    case When::first_8th_no_matrix: return !p.has_matrix && p.i < p.n / 8;
    case When::matrix: return p.has_matrix;
    case When::no_matrix: return !p.has_matrix;
    case When::experts_8: return p.n_experts == 8;
    case When::falcon: return p.is_falcon;
    case When::falcon_first_16th: return p.is_falcon && p.i < p.n / 16;
    case When::falcon_more: return p.is_falcon && more(p.i, p.n);
    case When::first_8th_not_falcon: return !p.is_falcon && p.i < p.n / 8;
  }
  return false;
}

struct Rule {
  M mixes[4];
  int n_mixes;
  Kind kind;
  When when;
  DType dtype;
};

constexpr Rule rule(std::initializer_list<M> mixes, Kind kind, When when, DType dtype) noexcept {
  Rule r{{}, static_cast<int>(mixes.size()), kind, when, dtype};
  int i = 0;
  for (const M m : mixes) r.mixes[i++] = m;
  return r;
}

// Kind::v stands for v, qkv and kv_b; Kind::k and Kind::gate have rows of their own beside q and up.
constexpr Rule kRules[] = {
    rule({M::q2_k}, Kind::v, When::grouped, DType::Q4_K),
    rule({M::q2_k}, Kind::v, When::always, DType::Q3_K),
    rule({M::q2_k}, Kind::down, When::always, DType::Q3_K),
    rule({M::q2_k}, Kind::attn_output, When::always, DType::Q3_K),
    rule({M::q2_k_s}, Kind::v, When::grouped, DType::Q4_K),
    rule({M::q2_k_s}, Kind::down, When::first_8th, DType::Q4_K),
    rule({M::q3_k_m}, Kind::v, When::first_2, DType::Q5_K),
    rule({M::q3_k_m}, Kind::v, When::always, DType::Q4_K),
    rule({M::q3_k_m}, Kind::down, When::first_16th, DType::Q5_K),
    rule({M::q3_k_m}, Kind::down, When::falcon_more, DType::Q4_K),
    rule({M::q3_k_m}, Kind::down, When::falcon, DType::Q3_K),
    rule({M::q3_k_m}, Kind::down, When::always, DType::Q4_K),
    rule({M::q3_k_m}, Kind::attn_output, When::always, DType::Q4_K),
    rule({M::q3_k_l}, Kind::v, When::always, DType::Q5_K),
    rule({M::q3_k_l}, Kind::down, When::falcon, DType::Q4_K),
    rule({M::q3_k_l}, Kind::down, When::always, DType::Q5_K),
    rule({M::q3_k_l}, Kind::attn_output, When::falcon, DType::Q4_K),
    rule({M::q3_k_l}, Kind::attn_output, When::always, DType::Q5_K),
    rule({M::q4_0}, Kind::down, When::first_8th_matrix, DType::Q4_1),
    rule({M::q5_0}, Kind::down, When::first_8th_matrix, DType::Q5_1),
    rule({M::q4_k_s}, Kind::v, When::first_4, DType::Q5_K),
    rule({M::q4_k_s}, Kind::down, When::first_8th_not_falcon, DType::Q5_K),
    rule({M::q4_k_m, M::q5_k_m}, Kind::v, When::more, DType::Q6_K),
    rule({M::q4_k_m}, Kind::down, When::more_not_falcon, DType::Q6_K),
    rule({M::q4_k_m}, Kind::down, When::falcon_first_16th, DType::Q6_K),
    rule({M::q4_k_m}, Kind::down, When::falcon_more, DType::Q5_K),
    rule({M::q5_k_m}, Kind::down, When::more, DType::Q6_K),
    rule({M::iq1_s, M::iq2_xxs, M::iq2_xs}, Kind::v, When::grouped_or_experts, DType::Q4_K),
    rule({M::iq1_s, M::iq2_xxs, M::iq2_xs}, Kind::v, When::always, DType::Q2_K),
    rule({M::iq2_s, M::iq2_m}, Kind::v, When::grouped_or_experts, DType::Q4_K),
    rule({M::iq2_s, M::iq2_m}, Kind::v, When::always, DType::IQ3_S),
    rule({M::iq1_s, M::iq2_xxs, M::iq2_xs}, Kind::k, When::experts_8, DType::Q4_K),
    rule({M::iq2_s, M::iq2_m}, Kind::k, When::experts_8, DType::Q4_K),
    rule({M::iq1_s, M::iq2_xxs, M::iq2_xs}, Kind::down, When::first_8th, DType::Q2_K),
    rule({M::iq2_s, M::iq2_m}, Kind::down, When::first_8th, DType::IQ3_S),
    rule({M::iq1_s, M::iq2_xxs, M::iq2_xs}, Kind::attn_output, When::experts_8, DType::Q5_K),
    rule({M::iq2_s, M::iq2_m}, Kind::attn_output, When::experts_8, DType::Q5_K),
    rule({M::iq1_s}, Kind::attn_output, When::always, DType::IQ2_XXS),
    rule({M::iq2_s, M::iq2_m}, Kind::attn_output, When::always, DType::IQ3_S),
    rule({M::iq3_xxs}, Kind::v, When::grouped, DType::Q4_K),
    rule({M::iq3_xxs}, Kind::v, When::matrix, DType::IQ3_XXS),
    rule({M::iq3_xxs}, Kind::v, When::no_matrix, DType::IQ3_S),
    rule({M::iq3_xxs}, Kind::k, When::always, DType::IQ2_S),
    rule({M::iq3_xxs}, Kind::q, When::always, DType::IQ2_S),
    rule({M::iq3_xxs}, Kind::down, When::first_8th_no_matrix, DType::Q4_K),
    rule({M::iq3_xxs}, Kind::down, When::no_matrix, DType::Q3_K),
    rule({M::iq3_xxs}, Kind::attn_output, When::always, DType::IQ3_S),
    rule({M::iq3_xs, M::iq3_s}, Kind::v, When::grouped, DType::Q4_K),
    rule({M::iq3_xs}, Kind::k, When::always, DType::IQ3_XXS),
    rule({M::iq3_xs}, Kind::q, When::always, DType::IQ3_XXS),
    rule({M::iq3_xs}, Kind::gate, When::middle, DType::IQ3_XXS),
    rule({M::iq3_xs}, Kind::up, When::middle, DType::IQ3_XXS),
    rule({M::iq3_m}, Kind::v, When::always, DType::Q4_K),
    rule({M::iq3_m}, Kind::down, When::first_8th_or_8_more, DType::Q4_K),
    rule({M::iq3_m}, Kind::attn_output, When::always, DType::Q4_K),
    rule({M::iq4_nl, M::iq4_xs}, Kind::v, When::grouped, DType::Q5_K),
    rule({M::iq4_nl, M::iq4_xs}, Kind::down, When::first_8th_no_matrix, DType::Q5_K),
};

bool is_any_of(M mix, std::initializer_list<M> mixes) noexcept {
  return std::find(mixes.begin(), mixes.end(), mix) != mixes.end();
}

std::optional<DType> by_table(M mix, Kind kind, const Place& place) noexcept {
  for (const Rule& r : kRules) {
    if (r.kind == kind && std::find(r.mixes, r.mixes + r.n_mixes, mix) != r.mixes + r.n_mixes && holds(r.when, place))
      return r.dtype;
  }
  return std::nullopt;
}

// With 8 experts the small attention matrices are cheap, and so are kept well, in all mixes but those of one and two
// bits.
std::optional<DType> with_8_experts(M mix, Kind kind) noexcept {
  if (kind == Kind::v || kind == Kind::k) return DType::Q8_0;
  if (kind == Kind::attn_output && is_any_of(mix, {M::q2_k, M::q3_k_s, M::q3_k_m, M::q4_k_s, M::q4_k_m, M::iq3_xxs,
                                                   M::iq3_xs, M::iq3_s, M::iq3_m, M::iq4_nl, M::iq4_xs})) {
    return DType::Q5_K;
  }
  return std::nullopt;
}

}  // namespace

tensor::DType type_by_rule(const Mix& of, Kind kind, const Place& place) noexcept {
  const M mix = of.id;
  if (kind == Kind::qkv || kind == Kind::kv_b) kind = Kind::v;
  const bool tiny = is_any_of(mix, {M::iq1_s, M::iq2_xxs, M::iq2_xs, M::iq2_s, M::iq2_m});
  if (place.is_falcon && kind == Kind::attn_output && mix != M::q3_k_l && !tiny) return of.default_type;
  if (place.n_experts == 8 && !tiny && !(place.is_falcon && kind == Kind::attn_output) &&
      (kind == Kind::v || kind == Kind::k || kind == Kind::attn_output)) {
    return with_8_experts(mix, kind).value_or(of.default_type);
  }
  const DType found = by_table(mix, kind, place).value_or(of.default_type);
  return place.is_70b && !tiny && kind == Kind::v && (found == DType::Q3_K || found == DType::Q4_K) ? DType::Q5_K
                                                                                                    : found;
}

tensor::DType output_type(const Mix& mix, int64_t n_cols, bool is_falcon) noexcept {
  if (mix.id == M::mxfp4_moe || is_falcon || n_cols % tensor::traits(mix.default_type).block_elements != 0)
    return DType::Q8_0;
  if (is_any_of(mix.id, {M::iq1_s, M::iq2_xxs, M::iq2_xs, M::iq2_s, M::iq2_m, M::iq3_xxs})) return DType::Q5_K;
  return mix.default_type == DType::Q8_0 ? DType::Q8_0 : DType::Q6_K;
}

tensor::DType embedding_type(const Mix& mix) noexcept {
  if (is_any_of(mix.id, {M::iq1_s, M::iq2_xxs, M::iq2_xs})) return DType::Q2_K;
  if (is_any_of(mix.id, {M::iq2_s, M::iq2_m, M::iq3_xxs})) return DType::IQ3_S;
  if (is_any_of(mix.id, {M::tq1_0, M::tq2_0})) return DType::Q4_K;
  return mix.default_type;
}

std::optional<tensor::DType> fallback_type(tensor::DType dtype) noexcept {
  switch (dtype) {
    case DType::IQ1_S:
    case DType::IQ2_XXS:
    case DType::IQ2_XS:
    case DType::IQ2_S:
    case DType::IQ3_XXS:
    case DType::IQ3_S:
    case DType::IQ4_XS: return DType::IQ4_NL;
    case DType::Q2_K:
    case DType::Q3_K:
    case DType::TQ1_0:
    case DType::TQ2_0: return DType::Q4_0;
    case DType::Q4_K: return DType::Q5_0;
    case DType::Q5_K: return DType::Q5_1;
    case DType::Q6_K: return DType::Q8_0;
    default: return std::nullopt;
  }
}

bool needs_matrix(MixId mix, tensor::DType dtype) noexcept {
  switch (dtype) {
    case DType::IQ1_S:
    case DType::IQ2_XXS:
    case DType::IQ2_XS:
    case DType::IQ2_S:
    case DType::IQ3_XXS: return true;
    case DType::Q2_K: return mix == M::q2_k_s;
    default: return false;
  }
}

}  // namespace assay::quantizing
