// See mixes.h.
#include "quantize/mixes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "assay/error.h"
#include "base/shown.h"
#include "quant/format.h"

namespace assay::quantizing {
namespace {

using tensor::DType;

constexpr std::array kMixes = {
    Mix{MixId::f32, "F32", 0, DType::F32},
    Mix{MixId::f16, "F16", 1, DType::F16},
    Mix{MixId::bf16, "BF16", 32, DType::BF16},
    Mix{MixId::q4_0, "Q4_0", 2, DType::Q4_0},
    Mix{MixId::q4_1, "Q4_1", 3, DType::Q4_1},
    Mix{MixId::q5_0, "Q5_0", 8, DType::Q5_0},
    Mix{MixId::q5_1, "Q5_1", 9, DType::Q5_1},
    Mix{MixId::q8_0, "Q8_0", 7, DType::Q8_0},
    Mix{MixId::q2_k, "Q2_K", 10, DType::Q2_K},
    Mix{MixId::q2_k_s, "Q2_K_S", 21, DType::Q2_K},
    Mix{MixId::q3_k_s, "Q3_K_S", 11, DType::Q3_K},
    Mix{MixId::q3_k_m, "Q3_K_M", 12, DType::Q3_K},
    Mix{MixId::q3_k_l, "Q3_K_L", 13, DType::Q3_K},
    Mix{MixId::q4_k_s, "Q4_K_S", 14, DType::Q4_K},
    Mix{MixId::q4_k_m, "Q4_K_M", 15, DType::Q4_K},
    Mix{MixId::q5_k_s, "Q5_K_S", 16, DType::Q5_K},
    Mix{MixId::q5_k_m, "Q5_K_M", 17, DType::Q5_K},
    Mix{MixId::q6_k, "Q6_K", 18, DType::Q6_K},
    Mix{MixId::iq1_s, "IQ1_S", 24, DType::IQ1_S},
    Mix{MixId::iq2_xxs, "IQ2_XXS", 19, DType::IQ2_XXS},
    Mix{MixId::iq2_xs, "IQ2_XS", 20, DType::IQ2_XS},
    Mix{MixId::iq2_s, "IQ2_S", 28, DType::IQ2_XS},  // named after the format that its larger tensors do not have
    Mix{MixId::iq2_m, "IQ2_M", 29, DType::IQ2_S},
    Mix{MixId::iq3_xxs, "IQ3_XXS", 23, DType::IQ3_XXS},
    Mix{MixId::iq3_xs, "IQ3_XS", 22, DType::IQ3_S},
    Mix{MixId::iq3_s, "IQ3_S", 26, DType::IQ3_S},
    Mix{MixId::iq3_m, "IQ3_M", 27, DType::IQ3_S},
    Mix{MixId::iq4_nl, "IQ4_NL", 25, DType::IQ4_NL},
    Mix{MixId::iq4_xs, "IQ4_XS", 30, DType::IQ4_XS},
    Mix{MixId::tq1_0, "TQ1_0", 36, DType::TQ1_0},
    Mix{MixId::tq2_0, "TQ2_0", 37, DType::TQ2_0},
    Mix{MixId::mxfp4_moe, "MXFP4_MOE", 38, DType::MXFP4},
    Mix{MixId::copy, "COPY", 0, DType::F32},  // keeps every tensor and the source's file type
};

constexpr std::string_view kUnread[] = {"IQ1_M", "Q1_0", "Q2_0", "NVFP4"};

char lower(char c) noexcept { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool same_name(std::string_view a, std::string_view b) noexcept {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) { return lower(x) == lower(y); });
}

void refuse_unread(std::string_view name) {
  for (const std::string_view unread : kUnread) {
    if (same_name(name, unread))
      throw Error(Errc::bad_request, fmt::format("{} is a format that assay neither reads nor writes", unread));
  }
}

}  // namespace

std::span<const Mix> all_mixes() noexcept { return kMixes; }

const Mix* find_mix(std::string_view name) noexcept {
  for (const auto& [alias, meant] :
       {std::pair{"Q3_K", "Q3_K_M"}, std::pair{"Q4_K", "Q4_K_M"}, std::pair{"Q5_K", "Q5_K_M"}}) {
    if (same_name(name, alias)) name = meant;
  }
  const auto found = std::find_if(kMixes.begin(), kMixes.end(), [&](const Mix& m) { return same_name(name, m.name); });
  return found == kMixes.end() ? nullptr : &*found;
}

const Mix& require_mix(std::string_view name) {
  if (const Mix* mix = find_mix(name)) return *mix;
  refuse_unread(name);
  std::string names;
  for (const Mix& mix : kMixes) names += fmt::format("{}{}", names.empty() ? "" : ", ", mix.name);
  throw Error(Errc::bad_request, fmt::format("there is no type {}: needs one of {}", base::shown(name), names));
}

tensor::DType require_writable_type(std::string_view name) {
  std::string names;
  for (const quant::Format& format : quant::all_formats()) {
    const std::string_view known = tensor::traits(format.dtype).name;
    if (same_name(name, known)) return format.dtype;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", known);
  }
  refuse_unread(name);
  throw Error(Errc::bad_request, fmt::format("there is no tensor type {}: needs one of {}", base::shown(name), names));
}

bool is_quantized(tensor::DType dtype) noexcept {
  const quant::Format* format = quant::find_format(dtype);
  return format != nullptr && format->activation != quant::Activation::f32;
}

std::optional<std::string_view> file_type_name(uint64_t file_type) noexcept {
  for (const Mix& mix : kMixes) {
    if (mix.file_type == file_type && mix.id != MixId::copy) return mix.name;
  }
  return std::nullopt;
}

}  // namespace assay::quantizing
