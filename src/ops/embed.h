// y[t, j] = decode(table[token[t], j]) * scale
//   table: rows in any weight format; y f32 [n_tokens, d_model].
// Bits: the decoded element (quant/format.h) times scale, rounded once to f32 by the plan's reader; one rounding.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/format.h"

namespace assay::ops {

// One token: row is its row of the table, d elements (a multiple of the format's block).
void embed_ref(const quant::Format& format, const std::byte* row, int64_t d, float scale, float* y) noexcept;

}  // namespace assay::ops
