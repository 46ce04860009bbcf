// See reasoning_flags.h.
#include "flags/reasoning_flags.h"

#include <fmt/format.h>

#include <boost/json.hpp>

#include "io/terminal.h"

namespace assay::cli {

void ReasoningFlags::add(Flags& flags) {
  flags.value("--reasoning-format", format, "FORMAT",
              "auto or deepseek: what the model thinks between its marks (<think> and others) is apart from its "
              "answer; none: one text");
  flags.value("--reasoning-budget", n_max, "N",
              "Tokens of it at most, then its closing mark; 0: none, and enable_thinking is false for the template; "
              "-1: no limit");
  flags.value("--chat-template-kwargs", variables_json, "JSON",
              "Further variables of the chat template, e.g. {\"enable_thinking\": false}");
}

std::string ReasoningFlags::variables() const {
  boost::json::object variables;
  if (variables_json) {
    boost::json::error_code failure;
    const boost::json::value v = boost::json::parse(*variables_json, failure);
    if (failure || !v.is_object()) {
      throw UsageError(fmt::format(
          "--chat-template-kwargs {}: needs a JSON object, e.g. {{\"enable_thinking\": false}}", *variables_json));
    }
    variables = v.get_object();
  }
  if (n_max == 0 && !variables.contains("enable_thinking")) variables["enable_thinking"] = false;
  return variables.empty() ? "" : boost::json::serialize(variables);
}

ReasoningOptions ReasoningFlags::options(const Model& model, std::string_view template_text, bool raw) const {
  if (format != "auto" && format != "deepseek" && format != "none") {
    throw UsageError(fmt::format("--reasoning-format {}: needs auto, deepseek or none", format));
  }
  if (n_max < -1) throw UsageError(fmt::format("--reasoning-budget {}: needs a count, or -1 for no limit", n_max));
  if (format == "none") {
    if (n_max > 0) throw UsageError("--reasoning-budget needs --reasoning-format auto or deepseek");
    return {};
  }
  if (raw && format == "auto" && n_max < 0) return {};
  ReasoningOptions options;
  options.marks = find_reasoning_marks(model, template_text.empty() ? model.chat_template_source() : template_text);
  options.n_max = n_max;
  if (n_max > 0 && !options.marks)
    notice("--reasoning-budget has no effect: neither the template nor the vocabulary has marks of reasoning");
  return options;
}

}  // namespace assay::cli
