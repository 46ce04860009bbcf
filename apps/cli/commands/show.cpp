// assay show: one model, with digest, origin and what it needs.
#include <fmt/format.h>

#include <boost/json.hpp>
#include <cmath>
#include <filesystem>
#include <system_error>

#include "assay/error.h"
#include "assay/inspect.h"
#include "assay/utf8.h"
#include "commands.h"
#include "commands/stores.h"
#include "flags/flags.h"
#include "io/json_text.h"
#include "io/terminal.h"

namespace assay::cli {
namespace {

namespace json = boost::json;

struct Shown {
  StoredModel model;
  ModelFacts facts;
  ModelOrigin origin;
  std::vector<std::string> digests;  // of each part
  bool digest_is_noted = true;       // by whoever fetched it; else computed here
  std::vector<MemoryPlan> memory;    // none where it cannot be loaded
  std::vector<std::string> problems;
};

// A path is shown as well, as a model that is in no store.
StoredModel model_of(const std::string& text) {
  const ModelStores stores = stores_here();
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(text, unknown)) return stores.find(text);
  for (StoredModel& model : stores.list().models) {
    if (std::filesystem::equivalent(model.path(), text, unknown)) return model;
  }
  StoredModel alone;
  alone.name = std::filesystem::path(text).stem().string();
  alone.parts = {text};
  alone.bytes = static_cast<int64_t>(std::filesystem::file_size(text, unknown));
  return alone;
}

Shown look_at(const std::string& text) {
  Shown shown;
  shown.model = model_of(text);
  shown.facts = read_facts(shown.model);
  shown.origin = find_origin(shown.model).value_or(ModelOrigin{});
  for (size_t i = 0; i < shown.model.parts.size(); ++i) {
    const auto origin = find_origin(shown.model, i);
    const bool is_noted = origin && !origin->sha256.empty();
    shown.digest_is_noted = shown.digest_is_noted && is_noted;
    shown.digests.push_back(is_noted ? origin->sha256 : sha256_of_file(shown.model.parts[i]));
  }
  if (!shown.facts.problem.empty()) {
    shown.problems.push_back(shown.facts.problem);
    return shown;
  }
  Inspection inspection = inspect(shown.model.path());
  shown.memory = std::move(inspection.memory);
  for (const InspectProblem& problem : inspection.problems)
    shown.problems.push_back(fmt::format("{}: {}", problem.part, problem.message));
  return shown;
}

json::object to_json(const Shown& s) {
  json::array digests(s.digests.begin(), s.digests.end());
  json::object result = {{"name", s.model.name},
                         {"path", s.model.path()},
                         {"store", name(s.model.store)},
                         {"parts", json::array(s.model.parts.begin(), s.model.parts.end())},
                         {"bytes", s.model.bytes},
                         {"title", s.facts.title},
                         {"type", s.facts.weights_type},
                         {"architecture", s.facts.architecture},
                         {"parameters", s.facts.n_parameters},
                         {"context", s.facts.n_ctx_train},
                         {"template_bytes", s.facts.template_bytes},
                         {"sha256", digests},
                         {"sha256_is_noted", s.digest_is_noted},
                         {"from", s.origin.url},
                         {"repository", s.origin.repository},
                         {"fetched", s.origin.time}};
  for (const MemoryPlan& plan : s.memory) {
    result["needs"] = {{"context", plan.options.n_ctx},
                       {"bytes", plan.total_bytes()},
                       {"available_bytes", plan.available_bytes},
                       {"fits", plan.fits()}};
  }
  if (!s.problems.empty()) result["problems"] = json::array(s.problems.begin(), s.problems.end());
  return result;
}

std::string to_text(const Shown& s) {
  std::string text;
  const auto row = [&](const char* what, const std::string& value) {
    if (!value.empty()) text += fmt::format("{:<13} {}\n", what, printable(value));
  };
  row("name", s.model.name);
  row("title", s.facts.title);
  row("store", std::string(name(s.model.store)));
  for (const std::string& path : s.model.parts) row("path", path);
  row("size", fmt::format("{} ({} bytes)", bytes_text(s.model.bytes), s.model.bytes));
  row("architecture", s.facts.architecture);
  row("type", s.facts.weights_type);
  if (s.facts.n_parameters > 0)
    row("parameters", fmt::format("{:.1f} million", static_cast<double>(s.facts.n_parameters) / 1e6));
  if (s.facts.n_ctx_train > 0) row("context", fmt::format("{} tokens", s.facts.n_ctx_train));
  if (s.facts.problem.empty())
    row("template", s.facts.template_bytes > 0 ? fmt::format("{} bytes of Jinja", s.facts.template_bytes)
                                               : "none: text is taken raw");
  for (const MemoryPlan& plan : s.memory) {
    row("needs", fmt::format("{} with a context of {}; {} are available{}", bytes_text(plan.total_bytes()),
                             plan.options.n_ctx, bytes_text(plan.available_bytes), plan.fits() ? "" : ": too little"));
  }
  for (const std::string& digest : s.digests) row("sha256", digest);
  row("repository", s.origin.repository);
  row("from", s.origin.url);
  row("fetched", s.origin.time);
  return text;
}

}  // namespace

int show_command(const Arguments& arguments) {
  Flags flags(
      "show",
      "Shows one model: where it is, what it is, its SHA-256, where it came from and when, and the memory it needs.",
      "  assay show smollm2\n"
      "  assay show smollm2 --json | jq -r .path\n");
  std::string model;
  bool as_json = false;
  flags.positional("NAME", model, "A name as `assay list` shows it, its beginning, or a path");
  flags.on("--json", as_json, "One JSON object");
  if (!flags.parse(arguments)) {
    Output().write(flags.help());
    return 0;
  }
  if (model.empty()) throw UsageError("no model given: assay show NAME");
  const Shown shown = look_at(model);
  Output().write(as_json ? json_without_controls(to_text(to_json(shown), true)) + "\n" : to_text(shown));
  for (const std::string& problem : shown.problems) notice(fmt::format("{}: {}", shown.model.name, problem));
  return shown.problems.empty() ? 0 : exit_code_of(Errc::bad_file);
}

}  // namespace assay::cli
