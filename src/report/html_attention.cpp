// Attention maps: a row a position, a column a position it looks at.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/base64.h"
#include "report/html.h"
#include "report/html_charts.h"
#include "report/png.h"

namespace assay::verify {
namespace {

constexpr int64_t kSideMax = 4096;                // of one picture
constexpr int64_t kPixelsMax = int64_t{1} << 25;  // of all of them

// Dark blue over grey to yellow: even steps of brightness, the same order for every colour vision.
Palette make_palette() {
  constexpr std::array<std::array<double, 3>, 6> kAnchors = {
      {{0, 20, 54}, {38, 62, 110}, {94, 98, 112}, {142, 138, 114}, {198, 182, 100}, {255, 236, 90}}};
  Palette palette{};
  for (size_t i = 0; i < palette.size(); ++i) {
    const double at = static_cast<double>(i) / 255 * (kAnchors.size() - 1);
    const size_t below = std::min<size_t>(static_cast<size_t>(at), kAnchors.size() - 2);
    const double part = at - static_cast<double>(below);
    for (size_t c = 0; c < 3; ++c) {
      palette[i][c] =
          static_cast<uint8_t>(std::lround(kAnchors[below][c] * (1 - part) + kAnchors[below + 1][c] * part));
    }
  }
  return palette;
}

uint8_t shade(double share) {  // of the root, which shows small shares too
  return share > 0 ? static_cast<uint8_t>(std::lround(255 * std::sqrt(std::min(share, 1.0)))) : 0;
}

std::string image(std::span<const uint8_t> pixels, uint32_t width, uint32_t height, const Palette& palette,
                  std::string_view attributes) {
  return fmt::format("<img {} src=\"data:image/png;base64,{}\">", attributes,
                     base::base64(std::as_bytes(std::span<const char>(png(pixels, width, height, palette)))));
}

std::string ramp(const Palette& palette) {
  std::vector<uint8_t> pixels(256);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = shade(static_cast<double>(i) / 255);
  return "<figure>" + image(pixels, 256, 1, palette, "class=\"ramp\" alt=\"scale from 0 to 1\"") +
         "<figcaption>share of a position&#39;s attention, from 0 (left) to 1; a row is the position that looks, a "
         "column the one it looks at</figcaption></figure>";
}

}  // namespace

std::string attention_maps(const std::vector<VerifyReport::AttentionMap>& maps) {
  const Palette palette = make_palette();
  std::string out = ramp(palette);
  int64_t n_pixels = 0;
  for (const VerifyReport::AttentionMap& map : maps) {
    const int64_t n = map.n_positions;
    out += fmt::format("<h3>Layer {}</h3>", map.layer);
    if (n < 1 || n > kSideMax || map.n_heads < 1 || static_cast<int64_t>(map.shares.size()) / (n * n) != map.n_heads ||
        static_cast<int64_t>(map.shares.size()) % (n * n) != 0) {
      out += fmt::format("<p>No picture: {} heads of {} positions, {} shares (pictures have sides of 1 to {}).</p>",
                         map.n_heads, n, map.shares.size(), kSideMax);
      continue;
    }
    n_pixels += static_cast<int64_t>(map.shares.size());
    if (n_pixels > kPixelsMax) {
      out += fmt::format("<p>No picture: the report holds at most {} shares.</p>", kPixelsMax);
      continue;
    }
    out += "<div class=\"maps\">";
    std::vector<uint8_t> pixels(static_cast<size_t>(n * n));
    for (int64_t head = 0; head < map.n_heads; ++head) {
      const float* shares = map.shares.data() + head * n * n;
      std::transform(shares, shares + n * n, pixels.begin(), [](float share) { return shade(share); });
      const std::string label = fmt::format("alt=\"layer {}, head {}\"", map.layer, head);
      out += "<figure>" + image(pixels, static_cast<uint32_t>(n), static_cast<uint32_t>(n), palette, label) +
             fmt::format("<figcaption>head {}</figcaption></figure>", head);
    }
    out += "</div>";
  }
  return out;
}

}  // namespace assay::verify
