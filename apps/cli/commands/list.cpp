// assay list, rm: the models of all stores by name, and those of ours removed.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <iostream>

#include "assay/utf8.h"
#include "commands.h"
#include "commands/stores.h"
#include "flags/flags.h"
#include "io/json_text.h"
#include "io/terminal.h"

namespace assay::cli {
namespace {

namespace json = boost::json;

json::object to_json(const StoredModel& model, const ModelFacts& facts) {
  json::array parts(model.parts.begin(), model.parts.end());
  json::array others(model.other_names.begin(), model.other_names.end());
  json::object result = {{"name", model.name},   {"path", model.path()},       {"store", name(model.store)},
                         {"bytes", model.bytes}, {"type", facts.weights_type}, {"architecture", facts.architecture},
                         {"parts", parts},       {"other_names", others}};
  if (!facts.problem.empty()) result["problem"] = facts.problem;
  return result;
}

// Columns as wide as their widest cell; the last one as it is.
std::string table(const std::vector<std::array<std::string, 6>>& rows) {
  std::array<size_t, 6> width{};
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (size_t i = 0; i + 1 < row.size(); ++i) text += fmt::format("{:<{}}  ", row[i], width[i]);
    text += row.back() + "\n";
  }
  return text;
}

std::string to_text(const StoreListing& listing) {
  std::vector<std::array<std::string, 6>> rows = {{"NAME", "SIZE", "TYPE", "ARCHITECTURE", "STORE", "PATH"}};
  for (const StoredModel& model : listing.models) {
    const ModelFacts facts = read_facts(model);
    const auto or_dash = [](const std::string& text) { return text.empty() ? std::string("-") : printable(text); };
    rows.push_back({printable(model.name), bytes_text(model.bytes), or_dash(facts.weights_type),
                    or_dash(facts.architecture), std::string(name(model.store)), printable(model.path())});
    if (!facts.problem.empty()) notice(fmt::format("{}: cannot be used: {}", model.name, facts.problem));
  }
  return table(rows);
}

bool confirmed(const std::string& question) {
  to_stderr(question + " [y/N] ");
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

}  // namespace

int list_command(const Arguments& arguments) {
  Flags flags("list",
              "Lists the models that can be named in place of a path: those that `assay pull` fetched, and those in "
              "the stores of Hugging "
              "Face, Ollama and LM Studio, which are read in place.",
              "  assay list\n"
              "  assay list --json | jq -r '.models[].name'\n");
  bool as_json = false;
  flags.on("--json", as_json, "One JSON object");
  if (!flags.parse(arguments)) {
    Output().write(flags.help());
    return 0;
  }
  const ModelStores stores = stores_here();
  const StoreListing listing = stores.list();
  for (const std::string& problem : listing.problems) notice(problem);
  if (as_json) {
    json::array models, folders;
    for (const StoredModel& model : listing.models) models.push_back(to_json(model, read_facts(model)));
    for (const StoreFolder& folder : stores.folders())
      folders.push_back({{"store", name(folder.kind)}, {"path", folder.path}});
    Output().write(json_without_controls(to_text(json::object{{"models", models}, {"stores", folders}}, true)) + "\n");
    return 0;
  }
  if (listing.models.empty()) {
    notice("there are no models yet: `assay pull smollm2` fetches a small one");
    return 0;
  }
  Output().write(to_text(listing));
  return 0;
}

int rm_command(const Arguments& arguments) {
  Flags flags("rm",
              "Removes models from our own store, and what an interrupted pull left of them. Names are to be given "
              "whole. Asks first on a "
              "terminal; elsewhere it needs -y.",
              "  assay rm smollm2-135m-instruct-Q4_1\n"
              "  assay rm -y old-model older-model\n",
              Flags::Environment::ignored);
  std::vector<std::string> names;
  bool yes = false;
  flags.positionals("NAME...", names, "Models as `assay list` shows them");
  flags.on("-y,--yes", yes, "Does not ask");
  if (!flags.parse(arguments)) {
    Output().write(flags.help());
    return 0;
  }
  if (names.empty()) throw UsageError("no model given: assay rm NAME");
  const ModelStores stores = stores_here();
  std::vector<std::string> paths;  // all are looked up before the first is removed
  for (const std::string& model : names) {
    for (std::string& path : stores.removable(model)) paths.push_back(std::move(path));
  }
  if (!yes) {
    if (!stdin_is_terminal() || !stderr_is_terminal())
      throw UsageError("standard input is no terminal to ask on: -y removes without asking");
    std::string list;
    for (const std::string& path : paths) list += "\n  " + printable(path);
    if (!confirmed(fmt::format("Remove{}\n?", list))) return 1;
  }
  for (const std::string& model : names) stores.remove(model);
  return 0;
}

}  // namespace assay::cli
