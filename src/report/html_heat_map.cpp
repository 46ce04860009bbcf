// Layers from left to right, ops from top to bottom, each cell as dark as its worst value is near its bound.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <string_view>

#include "report/html.h"
#include "report/html_charts.h"

namespace assay::verify {
namespace {

// Upper ends of the classes h0, h1, ... of error / bound; what is above the last is h9.
constexpr std::array<double, 9> kSteps = {0, 0.01, 0.03, 0.1, 0.25, 0.5, 1, 10, 1000};
constexpr std::array<std::string_view, 10> kNames = {"0",      "to 0.01", "to 0.03", "to 0.1",  "to 0.25",
                                                     "to 0.5", "to 1",    "to 10",   "to 1000", "above"};
constexpr size_t kOutside = 7;  // from here on the values are wrong

size_t class_of(const OpFigures& op) {
  const double ratio = tightness(op);
  const size_t i = static_cast<size_t>(
      std::find_if(kSteps.begin(), kSteps.end(), [&](double step) { return ratio <= step; }) - kSteps.begin());
  return is_wrong(op) ? std::max(i, kOutside) : i;
}

std::string row_name(const OpFigures& op) {  // "attn_q" of "blk.3.attn_q"
  const std::string prefix = fmt::format("blk.{}.", op.layer);
  return op.op.starts_with(prefix) ? op.op.substr(prefix.size()) : op.op;
}

std::string title_of(const OpFigures& op) {
  return fmt::format("{}: worst error / bound {}, {} of {} values outside", escaped(op.op, 200), factor(tightness(op)),
                     op.n_outside, op.n_values);
}

std::string cell(const OpFigures& op, const std::string& first) {
  const size_t i = class_of(op);
  return fmt::format("<td class=\"h{}{}\" title=\"{}\">{}</td>", i, op.op == first ? " first" : "", title_of(op),
                     i >= kOutside ? "×" : "");
}

std::string legend() {
  std::string out = "<ul class=\"legend\"><li class=\"dim\">worst error / bound</li>";
  for (size_t i = 0; i < kNames.size(); ++i) {
    out += fmt::format("<li><span class=\"swatch h{}\" aria-hidden=\"true\">{}</span>{}</li>", i,
                       i >= kOutside ? "×" : "", kNames[i]);
  }
  return out + "</ul>";
}

}  // namespace

std::string heat_map(const std::vector<OpFigures>& ops, const std::string& first) {
  std::vector<std::string> rows;
  std::map<std::string, std::map<int32_t, const OpFigures*>> cells;
  std::vector<int32_t> layers;
  std::string outside_layers;
  for (const OpFigures& op : ops) {
    if (op.layer < 0) {
      outside_layers +=
          fmt::format("<tr><th class=\"op\" scope=\"row\">{}</th>{}</tr>", escaped(op.op, 60), cell(op, first));
      continue;
    }
    const std::string name = row_name(op);
    if (!cells.contains(name)) rows.push_back(name);
    cells[name][op.layer] = &op;
    layers.push_back(op.layer);
  }
  std::sort(layers.begin(), layers.end());
  layers.erase(std::unique(layers.begin(), layers.end()), layers.end());
  std::string out = "<figure>" + legend() +
                    "<div class=\"scroll\"><table class=\"heat\"><thead><tr><th class=\"op\" scope=\"col\">layer</th>";
  for (size_t i = 0; i < layers.size(); ++i)
    out +=
        fmt::format("<th scope=\"col\">{}</th>", i % 2 == 0 || layers.size() < 20 ? fmt::format("{}", layers[i]) : "");
  out += "</tr></thead><tbody>";
  for (const std::string& name : rows) {
    out += fmt::format("<tr><th class=\"op\" scope=\"row\">{}</th>", escaped(name, 60));
    for (const int32_t layer : layers) {
      const auto found = cells[name].find(layer);
      out += found == cells[name].end() ? "<td></td>" : cell(*found->second, first);
    }
    out += "</tr>";
  }
  return out + outside_layers + "</tbody></table></div></figure>";
}

}  // namespace assay::verify
