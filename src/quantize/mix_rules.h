// The rules of the mixes as data, and the conditions they are written in.
#pragma once

#include <cstdint>
#include <optional>

#include "quantize/mixes.h"
#include "quantize/recipe.h"

namespace assay::quantizing {

// Where a tensor stands: the i-th of n of its kind, and what of the model decides.
struct Place {
  int64_t i = 0, n = 0;
  bool grouped = false;  // 4 or more query heads a key head
  int64_t n_experts = 0;
  bool has_matrix = false;
  bool is_70b = false;  // 80 blocks with grouped heads
  bool is_falcon = false;
};

// The type that the mix's rules give, its default type where no rule speaks.
tensor::DType type_by_rule(const Mix& mix, Kind kind, const Place& place) noexcept;
// Of the output matrix (or a tied embedding).
tensor::DType output_type(const Mix& mix, int64_t n_cols, bool is_falcon) noexcept;
// Of an embedding that is not also the output matrix.
tensor::DType embedding_type(const Mix& mix) noexcept;
// What stands in where the columns are no multiple of the type's block; nullopt: nothing does.
std::optional<tensor::DType> fallback_type(tensor::DType dtype) noexcept;
// A block format that without a matrix gives nothing of use.
bool needs_matrix(MixId mix, tensor::DType dtype) noexcept;

}  // namespace assay::quantizing
