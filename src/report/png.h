// A picture of at most 256 colours as PNG, without compression: small pictures inside a page need no library.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

namespace assay::verify {

using Palette = std::array<std::array<uint8_t, 3>, 256>;

// pixels: width * height indices into the palette, row by row; both sides at least 1.
std::string png(std::span<const uint8_t> pixels, uint32_t width, uint32_t height, const Palette& palette);

}  // namespace assay::verify
