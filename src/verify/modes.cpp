// See modes.h.
#include "verify/modes.h"

#include <charconv>

namespace assay::verify {
namespace {

constexpr std::string_view kChunks = "chunks/";
constexpr int64_t kChunkMax = int64_t{1} << 20;

std::optional<int64_t> parse_chunk(std::string_view text) {
  int64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size() || n < 1 || n > kChunkMax) return std::nullopt;
  return n;
}

Mode exact(const ContextOptions& base, int bits) {
  Mode mode{base};
  mode.options.numerics = Numerics::exact;
  mode.options.activation_bits = bits;
  return mode;
}

Mode with_numerics(const ContextOptions& base, Numerics numerics) {
  Mode mode{base};
  mode.options.numerics = numerics;
  return mode;
}

Mode with_kernels(const ContextOptions& base, Kernels kernels) {
  Mode mode{base};
  mode.options.kernels = kernels;
  return mode;
}

}  // namespace

std::optional<Mode> parse_mode(std::string_view text, const ContextOptions& base) {
  if (text == "f32") return with_numerics(base, Numerics::f32);
  if (text == "oracle") return with_numerics(base, Numerics::oracle);
  if (text == "exact/8") return exact(base, 8);
  if (text == "exact/15") return exact(base, 15);
  if (text == "reference") return with_kernels(base, Kernels::reference);
  if (text == "avx2") return with_kernels(base, Kernels::avx2);
  if (text == "avx512") return with_kernels(base, Kernels::avx512);
  if (text.starts_with(kChunks)) {
    const std::optional<int64_t> n_chunk = parse_chunk(text.substr(kChunks.size()));
    if (n_chunk) return Mode{base, *n_chunk};
  }
  return std::nullopt;
}

std::string mode_names() { return "f32, oracle, exact/8, exact/15, reference, avx2, avx512, chunks/N"; }

bool promise_same_bits(const ContextOptions& a, const ContextOptions& b) {
  if (a.numerics != b.numerics) return false;
  if (a.numerics == Numerics::oracle) return true;
  if (a.cache_k != b.cache_k || a.cache_v != b.cache_v) return false;
  return a.numerics != Numerics::exact || a.activation_bits == b.activation_bits;
}

}  // namespace assay::verify
