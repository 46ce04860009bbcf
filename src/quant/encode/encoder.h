// Floats to blocks: for every block format an encoder that looks for the scales and levels with the smallest weighted
// squared error. There is a plain set of encoders and faster ones for some processors, with the same bytes. A row's
// bytes depend on that row, its weights and the effort alone. The format's own header here says what it tries; gain.h
// what is done to blocks of few levels afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "tensor/dtype.h"

namespace assay::quant::encode {

// How many candidates are tried.
enum class Effort { fast, normal, best };

// x: n floats of magnitudes below 2^60, n a multiple of the format's block. w: a weight >= 0 for each, or null (all 1).
// out: the row's bytes.
using EncodeRow = void (*)(const float* x, const float* w, int64_t n, Effort effort, std::byte* out) noexcept;

struct Encoder {
  tensor::DType dtype = tensor::DType::F32;
  EncodeRow encode = nullptr;
};

// The encoders of one instruction set; formats that it lacks have the plain one.
struct EncoderSet {
  std::string_view name;
  bool runs_here = false;
  std::span<const Encoder> encoders;
};

// The plain set first, the best for this processor last; sets that do not run here are listed too.
std::span<const EncoderSet> encoder_sets() noexcept;
// Of the best set that runs here; nullptr: a type that cannot be written.
EncodeRow find_encoder(tensor::DType dtype) noexcept;

}  // namespace assay::quant::encode
