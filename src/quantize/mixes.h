// The mixes by name: what TYPE on the command line means. A mix has a default type for its tensors and rules
// (mix_rules.cpp) for those that get another. Source of names and numbers: the file types of the GGUF specification.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tensor/dtype.h"

namespace assay::quantizing {

enum class MixId {
  f32,
  f16,
  bf16,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q2_k,
  q2_k_s,
  q3_k_s,
  q3_k_m,
  q3_k_l,
  q4_k_s,
  q4_k_m,
  q5_k_s,
  q5_k_m,
  q6_k,
  iq1_s,
  iq2_xxs,
  iq2_xs,
  iq2_s,
  iq2_m,
  iq3_xxs,
  iq3_xs,
  iq3_s,
  iq3_m,
  iq4_nl,
  iq4_xs,
  tq1_0,
  tq2_0,
  mxfp4_moe,
  copy,
};

struct Mix {
  MixId id;
  std::string_view name;
  uint32_t file_type;  // general.file_type
  tensor::DType default_type;
};

std::span<const Mix> all_mixes() noexcept;
// By name, in any case; Q3_K, Q4_K and Q5_K mean the _M mixes. nullptr: no such mix.
const Mix* find_mix(std::string_view name) noexcept;
// Error(bad_request) that lists every name, or says of a known type why it is not served.
const Mix& require_mix(std::string_view name);

// A tensor type that can be written, by name in any case. Error(bad_request), with all names, for any other.
tensor::DType require_writable_type(std::string_view name);
bool is_quantized(tensor::DType dtype) noexcept;  // a block format, no float or integer type

// The general.file_type of a file as a name; nullopt for a number that has none here.
std::optional<std::string_view> file_type_name(uint64_t file_type) noexcept;

}  // namespace assay::quantizing
