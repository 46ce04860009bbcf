// A model to measure quantisation on, made of a quantised one: its weights as BF16, each moved at random by up to half
// a step of the format it came
// in. Without that the weights lie on a grid, and a format whose grid is the same looks better than it is.   usage: step_noise IN OUT [DRAW]
// DRAW, 0 unless given, is the number of the noise: how far a file's divergence depends on which weights were rounded
// up is seen with others.
#include <charconv>
#include <cstdio>
#include <cstring>
#include <exception>
#include <vector>

#include "gguf/writer.h"
#include "num/f16.h"
#include "quant/format.h"

namespace {

using namespace assay;

uint64_t next(uint64_t& state) {  // splitmix64
  uint64_t z = state += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// The distance of neighbouring levels at element j of a block; of uneven levels that at the middle is taken.
float step_at(const quant::Format& format, const std::byte* block, const quant::Integers256& n, int64_t j) {
  const float d = format.scales(block).d;
  return format.integers == nullptr ? d : d * static_cast<float>(n.scale[j / 16]);
}

std::vector<uint16_t> moved(const tensor::TensorView& view, uint64_t seed) {
  const quant::Format& format = *quant::find_format(view.dtype);
  const tensor::DTypeTraits& t = tensor::traits(view.dtype);
  std::vector<uint16_t> out;
  out.reserve(static_cast<size_t>(view.shape.elements()));
  std::vector<float> x(static_cast<size_t>(t.block_elements));
  quant::Integers256 n;
  for (size_t at = 0; at < view.data.size(); at += static_cast<size_t>(t.block_bytes)) {
    const std::byte* block = view.data.data() + at;
    format.decode(block, x.data());
    if (format.integers != nullptr) format.integers(block, n);
    for (int64_t j = 0; j < t.block_elements; ++j) {
      const float u = static_cast<float>(next(seed) >> 40) * 0x1p-24f - 0.5f;
      out.push_back(num::float_to_bf16(x[static_cast<size_t>(j)] + u * step_at(format, block, n, j)));
    }
  }
  return out;
}

bool is_moved(const gguf::Tensor& t) {
  const quant::Format* format = quant::find_format(t.view.dtype);
  return format != nullptr && format->activation != quant::Activation::f32;
}

void run(const char* in, const char* out, uint64_t draw) {
  const gguf::File file = gguf::File::open(in);
  gguf::Head head(file);
  head.clear_tensors();
  head.set("general.file_type", gguf::Value::of(uint32_t{32}));
  for (const gguf::Tensor& t : file.tensors())
    head.declare(t.name, is_moved(t) ? tensor::DType::BF16 : t.view.dtype, t.view.shape);
  gguf::Writer writer(out, std::move(head));
  uint64_t seed = 1 + 1000 * draw;  // of no model so many tensors that two draws meet
  for (const gguf::Tensor& t : file.tensors()) {
    if (is_moved(t)) {
      writer.write(std::as_bytes(std::span<const uint16_t>(moved(t.view, ++seed << 32))));
    } else {
      writer.write(t.view.data);
    }
  }
  writer.finish();
}

}  // namespace

int main(int argc, char** argv) {
  uint64_t draw = 0;
  const char* text = argc == 4 ? argv[3] : "0";
  const char* end = text + std::strlen(text);
  const auto [at, error] = std::from_chars(text, end, draw);
  if (argc < 3 || argc > 4 || error != std::errc() || at != end || draw > 1000000) {
    return std::fprintf(stderr, "usage: step_noise IN OUT [DRAW]\n"), 2;
  }
  try {
    run(argv[1], argv[2], draw);
  } catch (const std::exception& e) {
    return std::fprintf(stderr, "step_noise: %s\n", e.what()), 1;
  }
}
