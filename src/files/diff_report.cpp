// A DiffResult as text and as JSON.
#include <fmt/format.h>

#include <cmath>

#include "assay/diff.h"
#include "engine/metadata_json.h"
#include "files/printable.h"

namespace assay {
namespace {

std::string shape_text(const std::vector<int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::string kld_text(const TensorDifference& t) {
  return t.kld ? fmt::format("{}{:.3g}", t.kld_estimated ? "~" : "", *t.kld) : "-";
}

std::string describe(const TensorDifference& t, bool has_kld) {
  switch (t.kind) {
    case TensorDifference::Kind::only_a: return fmt::format("only in A: {} {}", t.type_a, shape_text(t.shape_a));
    case TensorDifference::Kind::only_b: return fmt::format("only in B: {} {}", t.type_b, shape_text(t.shape_b));
    case TensorDifference::Kind::shape:
      return fmt::format("another shape: {} {} in A, {} {} in B", t.type_a, shape_text(t.shape_a), t.type_b,
                         shape_text(t.shape_b));
    case TensorDifference::Kind::values: break;
  }
  std::string text = has_kld ? fmt::format("{:>10} ", kld_text(t)) : "";
  text += fmt::format("{:>9.3g} {:>9.3g} {:>9.3g} {:>20} {:>10.7f} {:>8.2f} %  {}", t.relative_rmse, t.rmse, t.largest,
                      shape_text(t.place), t.cosine, 100 * t.changed,
                      t.type_a == t.type_b ? t.type_a : t.type_a + " -> " + t.type_b);
  if (!t.kld_missing.empty()) text += fmt::format(", no KLD: {}", files::printable(t.kld_missing));
  if (t.n_not_finite != 0) text += fmt::format(", {} not finite", t.n_not_finite);
  return text;
}

std::string json_number(double x) { return std::isfinite(x) ? fmt::format("{}", x) : fmt::format("\"{}\"", x); }

std::string json_numbers(const std::vector<int64_t>& xs) { return fmt::format("[{}]", fmt::join(xs, ",")); }

std::string_view kind_name(TensorDifference::Kind kind) {
  switch (kind) {
    case TensorDifference::Kind::only_a: return "only_a";
    case TensorDifference::Kind::only_b: return "only_b";
    case TensorDifference::Kind::shape: return "shape";
    case TensorDifference::Kind::values: break;
  }
  return "values";
}

std::string json_texts(const std::vector<std::string>& texts) {
  std::string out;
  for (const std::string& text : texts) out += fmt::format("{}{}", out.empty() ? "" : ",", engine::json_string(text));
  return fmt::format("[{}]", out);
}

std::string json_of(const TensorDifference& t) {
  using engine::json_string;
  std::string out = fmt::format(R"({{"name":{},"kind":"{}","type_a":{},"type_b":{},"shape_a":{},"shape_b":{})",
                                json_string(t.name), kind_name(t.kind), json_string(t.type_a), json_string(t.type_b),
                                json_numbers(t.shape_a), json_numbers(t.shape_b));
  if (t.kind == TensorDifference::Kind::values) {
    out +=
        fmt::format(R"(,"rmse":{},"relative_rmse":{},"largest":{},"place":{},"cosine":{},"changed":{},"not_finite":{})",
                    json_number(t.rmse), json_number(t.relative_rmse), json_number(t.largest), json_numbers(t.place),
                    json_number(t.cosine), json_number(t.changed), t.n_not_finite);
    if (t.kld) out += fmt::format(R"(,"kld":{},"kld_estimated":{})", json_number(*t.kld), t.kld_estimated);
    if (!t.kld_missing.empty()) out += fmt::format(R"(,"kld":null,"kld_missing":{})", json_string(t.kld_missing));
  }
  return out + "}";
}

}  // namespace

std::string DiffResult::to_text() const {
  if (!differs())
    return fmt::format("no difference: the same metadata, and {} tensors with the same values\n", n_tensors_same);
  std::string text = fmt::format("A {}\nB {}\n", a, b);
  if (!metadata.empty()) text += fmt::format("\nMetadata: {} keys differ\n", metadata.size());
  for (const MetadataDifference& m : metadata) {
    text += fmt::format("  {}\n", files::printable(m.key));
    text += fmt::format("    A {}\n    B {}\n", m.before.empty() ? "(not there)" : m.before,
                        m.after.empty() ? "(not there)" : m.after);
    for (const std::string& line : m.lines) text += fmt::format("      {}\n", files::printable(line));
  }
  text += fmt::format("\nTensors: {} differ, {} are the same\n", tensors.size(), n_tensors_same);
  size_t width = 0;
  for (const TensorDifference& t : tensors) width = std::max(width, t.name.size());
  if (has_kld) {
    text += fmt::format("KLD: divergence of A with the one tensor of B from A, the mean over {} tokens (~: estimated)",
                        n_scored);
    if (kld_all) text += fmt::format("; with all of them {:.3g}", *kld_all);
    text += "\n";
  }
  if (!tensors.empty()) {
    text += fmt::format("  {:<{}}  {}{:>9} {:>9} {:>9} {:>20} {:>10} {:>10}  type\n", "name", width,
                        has_kld ? "       KLD " : "", "rel. RMSE", "RMSE", "largest", "at", "cosine", "changed");
  }
  for (const TensorDifference& t : tensors)
    text += fmt::format("  {:<{}}  {}\n", files::printable(t.name), width, describe(t, has_kld));
  return text;
}

std::string DiffResult::to_json() const {
  using engine::json_string;
  std::string out = fmt::format(R"({{"a":{},"b":{},"metadata":[)", json_string(a), json_string(b));
  for (const MetadataDifference& m : metadata) {
    out += fmt::format(R"({}{{"key":{},"before":{},"after":{},"lines":{}}})", &m == &metadata.front() ? "" : ",",
                       json_string(m.key), json_string(m.before), json_string(m.after), json_texts(m.lines));
  }
  out += R"(],"tensors":[)";
  for (const TensorDifference& t : tensors) out += fmt::format("{}{}", &t == &tensors.front() ? "" : ",", json_of(t));
  out += fmt::format("],\"tensors_same\":{}", n_tensors_same);
  if (has_kld) {
    out += fmt::format(R"(,"kld_all":{},"tokens_scored":{},"tokens_run":{})", kld_all ? json_number(*kld_all) : "null",
                       n_scored, n_tokens_run);
  }
  return out + "}\n";
}

}  // namespace assay
