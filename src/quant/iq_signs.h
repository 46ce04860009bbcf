// What the IQ2 and IQ3 formats share: grid rows with signs.
#pragma once

#include <cstring>

#include "quant/block.h"
#include "quant/codebooks.h"

namespace assay::quant {

// Of 8 sign bits seven are stored; the eighth makes their number even. Four sets lie in the lower 28 bits and come out
// as bytes.
ASSAY_FN uint32_t even_signs_of_four(uint32_t bits) noexcept {
  const uint32_t bytes = (bits & 0x7Fu) | (bits & 0x3F80u) << 1 | (bits & 0x1FC000u) << 2 | (bits & 0xFE00000u) << 3;
  uint32_t parity = bytes ^ (bytes >> 4);
  parity ^= parity >> 2;
  parity ^= parity >> 1;
  return bytes | (parity & 0x01010101u) << 7;
}

// A grid row of 8 bytes (the first lowest, all positive), negated where the sign bit is set. All at once: the kernels of
// a processor unpack these formats by this code.
ASSAY_FN void put_signed(uint64_t row, uint32_t signs, int8_t* w) noexcept {
  const uint64_t ones = 0x0101010101010101u;
  const uint64_t bits = (signs & 255) * ones & 0x8040201008040201u;  // byte j: bit j alone
  const uint64_t minus = ((bits + 0x7F * ones) >> 7) & ones;         // byte j: 1 where that is set
  const uint64_t negated = (row ^ ((minus << 8) - minus)) + minus;   // no byte carries: ~level + 1 of a level above 0
  std::memcpy(w, &negated, 8);
}

// 32 weights: rows of a grid, 8 bytes each, and a sign bit for each weight.
struct SignedRows {
  uint64_t rows[4];
  uint32_t signs;
};

// The weights of a superblock whose runs of 32 signed_rows(block, run) takes.
template <class Block>
ASSAY_FN void put_runs(const Block& b, Integers256& n) noexcept {
  for (int run = 0; run < 8; ++run) {
    const SignedRows r = signed_rows(b, run);
    for (int part = 0; part < 4; ++part) put_signed(r.rows[part], r.signs >> (8 * part), n.w + 32 * run + 8 * part);
  }
}

}  // namespace assay::quant
