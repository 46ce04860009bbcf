// See expert_table.h.
#include "backend/cuda/kernels/expert_table.h"

#include <algorithm>
#include <bit>
#include <climits>

#include "backend/cuda/kernels/limits.h"
#include "backend/cuda/linear/matrix.h"
#include "ops/linear/expert_linear.h"

namespace assay::backend::cuda {
namespace {

using quant::Activation;

constexpr int64_t kGroupedExpertsMax = 4096;
constexpr int kNarrowColumns = 64, kColumns = 128;  // of a tile, a plane of a token each

bool are_grouped(const ExpertProduct& p, int64_t n_pairs, const Card& card) noexcept {
  return card.has_groups() && p.w.is_cut && p.kind != Activation::f32 &&
         n_pairs >= kGroupedPairsOfExpertMin * p.n_experts && p.n_experts <= kGroupedExpertsMax &&
         n_pairs < INT32_MAX / 2 && p.w.rows < INT32_MAX / 2;
}
bool are_grouped_narrow(const ExpertProduct& p, int64_t n_pairs, const Card& card) noexcept {
  return p.kind == Activation::a256 && n_pairs * p.planes <= kNarrowColumns * p.n_experts &&
         are_grouped(p, n_pairs, card);
}
bool are_vectors(const ExpertProduct& p, int64_t n_pairs, const Card&) noexcept {
  return p.w.is_cut && p.kind != Activation::f32 && p.w.rows <= INT32_MAX / 2 && n_pairs <= INT32_MAX / 2;
}
bool are_blocks(const ExpertProduct& p, int64_t, const Card&) noexcept { return p.kind != Activation::f32; }
bool are_floats(const ExpertProduct& p, int64_t, const Card&) noexcept { return p.kind == Activation::f32; }

bool are_short_superblocks(const ExpertTokenProducts& p) noexcept {
  const bool are_cut = p.gate.is_cut && p.up.is_cut && p.down.is_cut;
  if (p.kind != Activation::a256 || p.gate.rows > UINT32_MAX / (p.d_in / 256) ||
      p.down.rows > UINT32_MAX / kShortBlocksMax)
    return false;
  return are_cut && p.gate.dtype == p.up.dtype && std::has_single_bit(static_cast<uint64_t>(p.n_used)) &&
         p.n_used <= kShortRows && p.width <= kShortBlocksMax * 256 && p.n_used * p.width <= kExpertTokenElementsMax;
}

constexpr ExpertRow kRows[] = {
    {"expert group tiles of 64", ExpertKernel::group_tiles, kNarrowColumns, &are_grouped_narrow},
    {"expert group tiles", ExpertKernel::group_tiles, kColumns, &are_grouped},
    {"expert vectors", ExpertKernel::vectors, 0, &are_vectors},
    {"experts of any format", ExpertKernel::any_format, 0, &are_blocks},
    {"experts of floats", ExpertKernel::floats, 0, &are_floats},
};

}  // namespace

std::span<const ExpertRow> expert_table() noexcept { return kRows; }

const ExpertRow* find_expert_row(std::string_view name) noexcept {
  const auto* found = std::ranges::find(kRows, name, &ExpertRow::name);
  return found == std::end(kRows) ? nullptr : found;
}

// The rows tell numbers of pairs apart at the first that are grouped and behind the last that have narrow tiles.
ExpertChoice::ExpertChoice(const ExpertProduct& p, const Card& card) {
  int64_t cuts[] = {1, (kGroupedPairsOfExpertMin * p.n_experts + p.n_used - 1) / p.n_used,
                    kNarrowColumns * p.n_experts / (p.planes * p.n_used) + 1};
  std::ranges::sort(cuts);
  for (const int64_t begin : cuts) {
    const ExpertRow* row =
        std::ranges::find_if(kRows, [&](const ExpertRow& r) { return r.takes(p, begin * p.n_used, card); });
    if (begin >= 1) add({begin, kAnyTokens, row, false, {}});
  }
}

ExpertChoice::ExpertChoice(std::span<const ExpertRange> ranges) {
  for (const ExpertRange& range : ranges) add(range);
}

ExpertProduct expert_product(const ops::Plan& plan, const ops::ExecutorOptions& options,
                             const lower::Lowering& lowering, const lower::FusionGroup& group) {
  const auto& experts = plan.ops[static_cast<size_t>(group.ops.front())].get<ops::ExpertLinear>();
  const tensor::TensorView& w = plan.weights[static_cast<size_t>(experts.w)].view;
  ExpertProduct product;
  product.w = {w.dtype, w.shape.rows(), part_bytes(w.dtype, options.weights_as_f32).n > 1};
  if (group.twin != ops::kNone) product.kind = lowering.twins.list[static_cast<size_t>(group.twin)].kind;
  product.planes = options.planes;
  product.n_experts = product.w.rows / (experts.rows_per_expert == 0 ? experts.d_out : experts.rows_per_expert);
  product.n_used = experts.n_used;
  return product;
}

const ExpertTokenRow* find_expert_token_row(const ExpertTokenProducts& products) noexcept {
  static constexpr ExpertTokenRow kRow{"experts of one token, gated", "experts of one token, summed",
                                       &are_short_superblocks};
  return kRow.takes(products) ? &kRow : nullptr;
}

}  // namespace assay::backend::cuda
