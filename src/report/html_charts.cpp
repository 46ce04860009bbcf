// Charts on a log scale: see html_charts.h.
#include "report/html_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <string_view>

#include "report/html.h"

namespace assay::verify {
namespace {

constexpr double kWidth = 960, kHeight = 300, kLeft = 52, kRight = 12, kTop = 12, kBottom = 34;
constexpr double kDecadesMax = 12;
constexpr size_t kSourcesDrawn = 5;  // as many strokes as the style has

bool is_drawable(double x) { return std::isfinite(x) && x > 0; }

// The decades that hold every drawable value, at most kDecadesMax of them below the largest.
class LogScale {
 public:
  void add(double value) {
    if (!is_drawable(value)) return;
    low_ = std::min(low_, std::log10(value));
    high_ = std::max(high_, std::log10(value));
  }
  void close() {
    if (low_ > high_) low_ = -1, high_ = 0;
    low_ = std::floor(low_);
    high_ = std::ceil(high_);
    if (high_ - low_ < 1) high_ = low_ + 1;
    low_ = std::max(low_, high_ - kDecadesMax);
  }
  // 0 at the bottom, 1 at the top; zero lies at the bottom, what is infinite or no number at the top.
  double share(double value) const {
    if (std::isnan(value) || std::isinf(value)) return 1;
    if (value <= 0) return 0;
    return std::clamp((std::log10(value) - low_) / (high_ - low_), 0.0, 1.0);
  }
  int low() const { return static_cast<int>(low_); }
  int high() const { return static_cast<int>(high_); }

 private:
  double low_ = std::numeric_limits<double>::infinity(), high_ = -std::numeric_limits<double>::infinity();
};

std::string decade(int power) { return fmt::format("10<tspan dy=\"-5\" font-size=\"8\">{}</tspan>", power); }

// Ops from left to right, errors on a log scale from bottom to top.
class OpPlot {
 public:
  OpPlot(const std::vector<OpFigures>& ops, LogScale scale) : ops_(ops), scale_(scale) {}

  double x(size_t i) const {
    return kLeft + (kWidth - kLeft - kRight) * (static_cast<double>(i) + 0.5) /
                       static_cast<double>(std::max<size_t>(ops_.size(), 1));
  }
  double y(double value) const { return kTop + (kHeight - kTop - kBottom) * (1 - scale_.share(value)); }

  std::string begin(std::string_view title) const {
    std::string out = fmt::format("<div class=\"scroll\"><svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">",
                                  kWidth, kHeight, escaped(title));
    const int n_decades = scale_.high() - scale_.low(), step = std::max(1, (n_decades + 7) / 8);
    for (int power = scale_.high(); power >= scale_.low(); power -= step) {
      const double at = y(std::pow(10.0, power));
      out += fmt::format("<line class=\"grid\" x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/>", kLeft,
                         kWidth - kRight, at);
      out += fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>", kLeft - 8, at + 4, decade(power));
    }
    return out + layers();
  }
  std::string end() const { return "</svg></div>"; }

  // A line through the values that are there.
  std::string line(const std::vector<std::pair<size_t, double>>& points, std::string_view css_class) const {
    std::string path;
    bool drawing = false;
    for (const auto& [i, value] : points) {
      if (value < 0 || std::isnan(value)) {
        drawing = false;
        continue;
      }
      fmt::format_to(std::back_inserter(path), "{}{:.1f} {:.1f}", drawing ? "L" : "M", x(i), y(value));
      drawing = true;
    }
    return fmt::format("<path class=\"{}\" d=\"{}\"/>", css_class, path);
  }

  // A short line at each op's bound: bounds of neighbours have nothing to do with one another.
  std::string ticks(const std::vector<OpFigures>& ops) const {
    const double half = std::clamp((x(1) - x(0)) / 2, 1.1, 4.0);
    std::string path;
    for (size_t i = 0; i < ops.size(); ++i) {
      if (!(ops[i].bound >= 0)) continue;
      fmt::format_to(std::back_inserter(path), "M{:.1f} {:.1f}h{:.1f}", x(i) - half, y(ops[i].bound), 2 * half);
    }
    return fmt::format("<path class=\"bound\" d=\"{}\"/>", path);
  }

 private:
  std::string layers() const {
    std::string out;
    int32_t layer = -2;
    double label_end = 0;
    for (size_t i = 0; i < ops_.size(); ++i) {
      if (ops_[i].layer == layer) continue;
      layer = ops_[i].layer;
      const double left = x(i) - (x(1) - x(0)) / 2;
      out += fmt::format("<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\"/>", left, kTop,
                         kHeight - kBottom);
      if (layer < 0 || left < label_end) continue;
      out += fmt::format("<text x=\"{:.1f}\" y=\"{}\">{}</text>", left + 2, kHeight - kBottom + 14, layer);
      label_end = left + 22;
    }
    out += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">layer</text>", (kLeft + kWidth - kRight) / 2,
                       kHeight - 4);
    return out;
  }

  const std::vector<OpFigures>& ops_;
  LogScale scale_;
};

std::string cross(double x, double y, double r) {
  return fmt::format("<path class=\"outside\" d=\"M{:.1f} {:.1f}l{} {}m0 -{}l-{} {}\"", x - r, y - r, 2 * r, 2 * r,
                     2 * r, 2 * r, 2 * r);
}

std::string op_title(const OpFigures& op) {
  std::string text =
      fmt::format("<title>{}: local error {}, bound {}", escaped(op.op, 200), figure(op.local_error), figure(op.bound));
  if (op.cumulative_error >= 0) text += fmt::format(", travelled {}", figure(op.cumulative_error));
  return text + fmt::format("; worst error / bound {}</title>", factor(tightness(op)));
}

std::string legend_item(std::string_view mark, std::string_view text) {
  return fmt::format("<li><svg viewBox=\"0 0 36 12\" aria-hidden=\"true\">{}</svg>{}</li>", mark, text);
}

}  // namespace

bool is_wrong(const OpFigures& op) noexcept { return op.n_outside > 0 || !(tightness(op) <= 1); }

double tightness(const OpFigures& op) noexcept {
  return op.n_non_finite > 0 || std::isnan(op.worst_ratio) ? std::numeric_limits<double>::infinity() : op.worst_ratio;
}

std::string error_chart(const std::vector<OpFigures>& ops) {
  LogScale scale;
  for (const OpFigures& op : ops) {
    scale.add(op.local_error);
    scale.add(op.bound);
    scale.add(op.cumulative_error);
  }
  scale.close();
  const OpPlot plot(ops, scale);
  std::vector<std::pair<size_t, double>> travelled;
  for (size_t i = 0; i < ops.size(); ++i) travelled.emplace_back(i, ops[i].cumulative_error);
  std::string out = "<figure><ul class=\"legend\">";
  out +=
      legend_item("<circle class=\"local\" cx=\"18\" cy=\"6\" r=\"3\"/>", "local error, from the op&#39;s own inputs");
  out += legend_item(cross(18, 6, 4) + "/>", "outside its bound");
  out += legend_item("<path class=\"bound\" d=\"M6 6h6m6 0h6m6 0h6\"/>", "bound of a right op&#39;s rounding");
  out += legend_item("<path class=\"cumulative\" d=\"M0 6H36\"/>",
                     "error that has travelled, against float64 from the tokens on");
  out +=
      "</ul>" + plot.begin("Error of every op on a log scale") + plot.ticks(ops) + plot.line(travelled, "cumulative");
  const double radius = ops.size() > 300 ? 1.8 : 2.6;
  for (size_t i = 0; i < ops.size(); ++i) {
    const double x = plot.x(i),
                 y = plot.y(ops[i].n_non_finite > 0 ? std::numeric_limits<double>::infinity() : ops[i].local_error);
    if (is_wrong(ops[i])) {
      out += cross(x, y, 5) + ">" + op_title(ops[i]) + "</path>";
    } else {
      out += fmt::format("<circle class=\"local\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\">{}</circle>", x, y, radius,
                         op_title(ops[i]));
    }
  }
  return out + plot.end() +
         "<figcaption>Relative to the norm of the op&#39;s float64 output. What is smaller than the scale, or no error "
         "at all, stands on the bottom line.</figcaption></figure>";
}

std::string sources_chart(const std::vector<SourceFigures>& sources) {
  const auto longest = std::max_element(sources.begin(), sources.end(),
                                        [](const auto& a, const auto& b) { return a.ops.size() < b.ops.size(); });
  if (longest == sources.end() || longest->ops.empty()) return {};
  const std::vector<OpFigures>& ops = longest->ops;
  std::map<std::string_view, size_t> place;
  for (size_t i = 0; i < ops.size(); ++i) place.emplace(ops[i].op, i);
  LogScale scale;
  bool any = false;
  for (const SourceFigures& source : sources) {
    for (const OpFigures& op : source.ops) {
      scale.add(op.cumulative_error);
      any = any || op.cumulative_error >= 0;
    }
  }
  if (!any) return {};
  scale.close();
  const OpPlot plot(ops, scale);
  std::string legend = "<figure><ul class=\"legend\">", lines;
  for (size_t i = 0; i < std::min(sources.size(), kSourcesDrawn); ++i) {
    std::vector<std::pair<size_t, double>> points;
    for (const OpFigures& op : sources[i].ops) {
      if (const auto found = place.find(op.op); found != place.end())
        points.emplace_back(found->second, op.cumulative_error);
    }
    std::sort(points.begin(), points.end());
    const std::string css_class = fmt::format("line s{0} d{0}", i);
    legend += legend_item(fmt::format("<path class=\"{}\" d=\"M0 6H36\"/>", css_class), escaped(sources[i].name, 120));
    lines += plot.line(points, css_class);
  }
  legend += "</ul>";
  const std::string rest = sources.size() > kSourcesDrawn
                               ? fmt::format(" The first {} of {} sources are drawn.", kSourcesDrawn, sources.size())
                               : std::string();
  return legend + plot.begin("Travelled error of every source on a log scale") + lines + plot.end() +
         "<figcaption>Error that has travelled to each op, against float64 from the tokens on." + rest +
         "</figcaption></figure>";
}

std::string token_chart(const std::vector<TokenRisk>& tokens) {
  constexpr double kSide = 320, kEdge = 44;
  LogScale scale;  // the same for both axes, so that the border is a diagonal
  for (const TokenRisk& token : tokens) {
    scale.add(token.gap);
    scale.add(token.error);
  }
  scale.close();
  const double low = std::pow(10.0, scale.low()), high = std::pow(10.0, scale.high());
  const auto x = [&](double gap) { return kEdge + (kSide - kEdge - 16) * scale.share(gap); };
  const auto y = [&](double error) { return 8 + (kSide - kEdge - 8) * (1 - scale.share(error)); };
  std::string out = "<figure><div class=\"scroll small\">";
  out += fmt::format(
      "<svg class=\"small\" viewBox=\"0 0 {0} {0}\" role=\"img\" aria-label=\"Gap between the two best tokens against "
      "the error\">",
      kSide);
  out += fmt::format("<path class=\"region\" d=\"M{:.1f} {:.1f}H{:.1f}L{:.1f} {:.1f}V{:.1f}H{:.1f}Z\"/>", x(low),
                     y(low), x(2 * low), x(high), y(high / 2), y(high), x(low));
  const int step = std::max(1, (scale.high() - scale.low() + 4) / 5);
  for (int power = scale.low(); power <= scale.high(); power += step) {
    const double value = std::pow(10.0, power);
    out +=
        fmt::format("<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"8\" y2=\"{1:.1f}\"/>", x(value), y(low));
    out += fmt::format("<line class=\"grid\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>", x(low),
                       x(high), y(value), y(value));
    out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>", x(value), kSide - kEdge + 16,
                       decade(power));
    out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>", kEdge - 6, y(value) + 4,
                       decade(power));
  }
  out += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">gap between the two best tokens</text>",
                     (kSide + kEdge) / 2, kSide - 6);
  out += fmt::format("<text x=\"{0:.1f}\" y=\"{1:.1f}\">error reaches half the gap</text>", x(low) + 6, y(high) + 14);
  for (const TokenRisk& token : tokens) {
    const std::string title = fmt::format("<title>position {}: gap {}, error {}</title>", token.position,
                                          figure(token.gap), figure(token.error));
    if (token.turned()) {
      out += cross(x(token.gap), y(token.error), 4) + ">" + title + "</path>";
    } else {
      out += fmt::format("<circle class=\"local\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.6\">{}</circle>", x(token.gap),
                         y(token.error), title);
    }
  }
  return out +
         "</svg></div><figcaption>One dot a position; a cross where another token was chosen. In the shaded half the "
         "error is large enough "
         "to turn the choice.</figcaption></figure>";
}

}  // namespace assay::verify
