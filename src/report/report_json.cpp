// A VerifyReport for programs: one object, keys as the fields of assay/verify.h are called. What
// JSON has no number for (NaN, infinities) is a string.
#include <boost/json.hpp>
#include <cmath>
#include <string>

#include "assay/utf8.h"
#include "assay/verify.h"
#include "base/utf8.h"

namespace assay {
namespace {

namespace json = boost::json;

json::value number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

json::string utf8(std::string_view bytes) { return json::string(base::repaired_utf8(bytes)); }

std::string_view json_word(Verdict verdict) {
  switch (verdict) {
    case Verdict::pass: return "pass";
    case Verdict::warn: return "warn";
    case Verdict::fail: return "fail";
    case Verdict::skip: return "skip";
  }
  return "?";
}

json::value to_value(const std::string& value) { return utf8(value); }
json::value to_value(const VerifyStage& s);
json::value to_value(const OpFigures& f);
json::value to_value(const Cause& c);
json::value to_value(const TokenRisk& t);
json::value to_value(const SourceFigures& s);
json::value to_value(const VerifyReport::AttentionMap& m);

template <class T>
json::array list(const std::vector<T>& values) {
  json::array out;
  for (const T& value : values) out.push_back(to_value(value));
  return out;
}

json::value to_value(const VerifyStage& s) {
  return json::object{{"id", s.id},
                      {"title", s.title},
                      {"verdict", json_word(s.verdict)},
                      {"summary", utf8(s.summary)},
                      {"details", list(s.details)},
                      {"seconds", s.seconds}};
}

json::value to_value(const OpFigures& f) {
  return json::object{{"op", f.op},
                      {"kind", f.kind},
                      {"layer", f.layer},
                      {"n_values", f.n_values},
                      {"n_outside", f.n_outside},
                      {"n_non_finite", f.n_non_finite},
                      {"worst_ratio", number(f.worst_ratio)},
                      {"local_error", number(f.local_error)},
                      {"bound", number(f.bound)},
                      {"cumulative_error", f.cumulative_error < 0 ? json::value() : number(f.cumulative_error)},
                      {"rms", number(f.rms)},
                      {"largest", number(f.largest)}};
}

json::value to_value(const Place& p) {
  return json::object{{"op", p.op},
                      {"layer", p.layer},
                      {"row", p.row},
                      {"position", p.position},
                      {"token", p.token},
                      {"head", p.head},
                      {"element", p.element},
                      {"found", number(p.found)},
                      {"expected", number(p.expected)},
                      {"bound", number(p.bound)}};
}
json::value to_value(const std::optional<Place>& p) { return p ? to_value(*p) : json::value(); }

json::value to_value(const Cause& c) {
  return json::object{{"id", c.id},
                      {"text", utf8(c.text)},
                      {"faults", c.faults},
                      {"reproduces", c.reproduces},
                      {"residual", number(c.residual)}};
}

json::value to_value(const TokenRisk& t) {
  return json::object{{"position", t.position},
                      {"token", t.token},
                      {"oracle_top", t.oracle_top},
                      {"found_top", t.found_top},
                      {"gap", number(t.gap)},
                      {"error", number(t.error)},
                      {"kl_divergence", number(t.kl_divergence)},
                      {"turned", t.turned()}};
}

json::value to_value(const SourceFigures& s) {
  return json::object{{"name", utf8(s.name)},
                      {"outlier", s.outlier},
                      {"logits_error", number(s.logits_error)},
                      {"first_failure", to_value(s.first_failure)},
                      {"causes", list(s.causes)},
                      {"ops", list(s.ops)}};
}

json::value to_value(const VerifyReport::AttentionMap& m) {
  json::array shares;
  for (const float share : m.shares) shares.push_back(number(static_cast<double>(share)));
  return json::object{
      {"layer", m.layer}, {"n_heads", m.n_heads}, {"n_positions", m.n_positions}, {"shares", std::move(shares)}};
}

}  // namespace

std::string VerifyReport::to_json() const {
  json::array changes;
  for (const std::string& change : overrides) changes.emplace_back(utf8(change));
  const json::object report = {{"assay_version", assay_version},
                               {"model_path", utf8(model_path)},
                               {"model_name", utf8(model_name)},
                               {"architecture", utf8(architecture)},
                               {"weights_type", weights_type},
                               {"subject", subject},
                               {"overrides", std::move(changes)},
                               {"passed", passed()},
                               {"cancelled", cancelled},
                               {"stages", list(stages)},
                               {"first_failure", to_value(first_failure)},
                               {"causes", list(causes)},
                               {"ops", list(ops)},
                               {"tokens", list(tokens)},
                               {"against", list(against)},
                               {"attention", list(attention)},
                               {"median_slack", number(median_slack)},
                               {"peak_bytes", peak_bytes},
                               {"seconds", seconds}};
  return json_without_controls(json::serialize(report)) + "\n";
}

}  // namespace assay
