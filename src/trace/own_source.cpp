// See own_source.h.
#include "trace/own_source.h"

#include <fmt/format.h>

namespace assay::trace {
namespace {

ops::CacheType cache_type(KvType type) {
  switch (type) {
    case KvType::f16: return ops::CacheType::f16;
    case KvType::q8_0: return ops::CacheType::q8_0;
    case KvType::f32: return ops::CacheType::f32;
  }
  return ops::CacheType::f16;
}

}  // namespace

Declared own_declared(const ContextOptions& options) {
  Declared declared;
  if (options.numerics == Numerics::oracle) {
    declared.unit_roundoff = 0x1p-53;
    declared.cache_k = declared.cache_v =
        ops::CacheType::f32;  // the nearest name: the oracle's cache rounds nothing at all
    return declared;
  }
  declared.own_sums = true;
  declared.cache_k = cache_type(options.cache_k);
  declared.cache_v = cache_type(options.cache_v);
  if (options.numerics == Numerics::fast) {
    declared.own_sums = false;
    declared.unit_roundoff = 0x1p-8;  // of BF16, to which activations may be rounded
  }
  const bool of_integers =
      options.numerics == Numerics::exact || (options.numerics == Numerics::fast && options.activation_bits != 16);
  if (of_integers) declared.activation_bits = options.activation_bits;
  return declared;
}

std::string own_name(const ContextOptions& options, std::string_view kernels) {
  if (options.numerics == Numerics::oracle) return "oracle, float64";
  std::string text = fmt::format(
      "{}{}, {}", kernels.find("cuda") != kernels.npos || kernels.find("vulkan") != kernels.npos ? "" : "cpu ", kernels,
      name(options.numerics));
  if (options.numerics == Numerics::exact || options.numerics == Numerics::fast)
    text += fmt::format(", {} bits", options.activation_bits);
  text += fmt::format(", cache {}", name(options.cache_k));
  if (options.cache_v != options.cache_k) text += fmt::format("/{}", name(options.cache_v));
  return text;
}

}  // namespace assay::trace
