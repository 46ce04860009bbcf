// See fault_trial.h.
#include "faulty/fault_trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "assay/error.h"
#include "assay/verify.h"
#include "faulty/faulty_subject.h"
#include "support/shared_data.h"
#include "verify/stages/stages.h"

namespace assay::faults {
namespace {

using verify::StageRun;
using verify::Subject;

std::string lines(const VerifyStage& stage) {
  std::string text = stage.summary;
  for (const std::string& line : stage.details) text += "\n" + line;
  return text;
}

// Notes a stage's failure, unless an earlier one failed.
void note(const VerifyStage& stage, Outcome& outcome) {
  if (stage.verdict != Verdict::fail || outcome.detected()) return;
  outcome.stage = stage.id;
  outcome.finding = lines(stage);
}

void note(const std::optional<Place>& place, const std::vector<Cause>& causes, Outcome& outcome) {
  if (place) outcome.op = place->op;
  for (const Cause& cause : causes) {
    if (cause.reproduces) outcome.causes.push_back(cause.id);
  }
}

void run_until_failure(const Subject& subject, const StageRun& run, bool ops_in_any_case, Outcome& outcome) {
  using Check = VerifyStage (*)(const Subject&, const StageRun&);
  constexpr Check kBeforeOps[] = {verify::check_file, verify::check_metadata, verify::check_tokenizer,
                                  verify::check_template, verify::check_dequantisation};
  for (const Check check : kBeforeOps) {
    if (!outcome.detected()) note(check(subject, run), outcome);
  }
  if (outcome.detected() && !ops_in_any_case) return;
  const verify::OpsFindings ops = verify::check_ops(subject, run);
  note(ops.stage, outcome);
  note(ops.first_failure, ops.causes, outcome);
  for (const Check check :
       {verify::check_kv_cache, verify::check_logits, verify::check_sampler, verify::check_detokenizer}) {
    if (!outcome.detected()) note(check(subject, run), outcome);
  }
}

constexpr const char* kTableHead =
    "| id | fault | source | put into | found: stage, or first op | as expected | cause named "
    "|\n|---|---|---|---|---|---|---|\n";

const char* mark(bool yes) { return yes ? "yes" : "**no**"; }

std::string table_row(const Row& row, const Outcome& outcome) {
  if (row.why_not != nullptr)
    return fmt::format("| {} | {} | {} | not expressed: {} | | | |\n", row.id, row.what, row.source, row.why_not);
  const std::string name = outcome.name_of_cause(row);
  const std::string where = outcome.op.empty()       ? outcome.stage
                            : outcome.stage == "ops" ? outcome.op
                                                     : outcome.stage + ", " + outcome.op;
  const std::string into = row.golden == nullptr ? row.injected : fmt::format("{} of {}", row.injected, row.golden);
  return fmt::format("| {} | {} | {} | {} | {} | {} | {} |\n", row.id, row.what, row.source, into,
                     outcome.detected() ? where : "**nothing**", mark(outcome.localised(row)),
                     name.empty() ? "" : fmt::format("`{}`", name));
}

}  // namespace

std::string Outcome::name_of_cause(const Row& row) const {
  for (const char* name : row.named_by) {
    if (std::find(causes.begin(), causes.end(), name) != causes.end()) return name;
    if (causes.empty() && finding.find(name) != std::string::npos) return name;
  }
  return {};
}

std::shared_ptr<const Model> FaultTrial::model(ModelSpec (*spec)()) {
  std::shared_ptr<const Model>& loaded = models_[spec];
  if (!loaded) {
    const std::string path = (folder_ / fmt::format("{}.gguf", models_.size())).string();
    ModelFile(spec()).write(path);
    loaded = Model::load(path);
  }
  return loaded;
}

Outcome FaultTrial::run_file(const Row& row) {
  const std::string path = (folder_ / fmt::format("{}.gguf", row.id)).string();
  ModelFile file(row.model());
  row.change_file(file);
  file.write(path);
  Outcome outcome;
  try {
    VerifyOptions options;
    options.quick = true;
    options.context.n_threads = 1;
    for (const VerifyStage& stage : verify_model(path, options).stages) note(stage, outcome);
  } catch (const Error& error) {  // refused when it is opened: nothing else can be asked of it
    outcome.stage = "file";
    outcome.finding = error.what();
  }
  return outcome;
}

// A golden is a model's file, not a text's: operations and cache are asked alone.
Outcome FaultTrial::run_golden(const Row& row) {
  std::shared_ptr<const Model>& loaded = goldens_[row.golden];
  if (!loaded) loaded = Model::load(test::shared(fmt::format("goldens/arch/{}.gguf", row.golden)).string());
  Outcome outcome;
  StageRun run{pool_};
  run.quick = true;
  const Subject subject = faulty_subject(row, loaded);
  const verify::OpsFindings ops = verify::check_ops(subject, run);
  note(ops.stage, outcome);
  note(ops.first_failure, ops.causes, outcome);
  if (!outcome.detected()) note(verify::check_kv_cache(subject, run), outcome);
  return outcome;
}

Outcome FaultTrial::run(const Row& row) {
  if (row.change_file != nullptr) return run_file(row);
  if (row.golden != nullptr) return run_golden(row);
  Outcome outcome;
  StageRun run{pool_};
  run.prompt = "Once upon a time, 3333 people and 77 cats met; naïve café 👍.\n";  // about 60 tokens: several chunks,
                                                                                  // single tokens
  run_until_failure(faulty_subject(row, model(row.model)), run, row.op[0] != '\0', outcome);
  return outcome;
}

Outcome FaultTrial::try_row(const Row& row) {
  if (row.why_not != nullptr) return {};
  const auto start = std::chrono::steady_clock::now();
  Outcome outcome = run(row);
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return outcome;
}

Outcome FaultTrial::try_healthy(ModelSpec (*spec)(), int activation_bits, ops::CacheType cache) {
  Row row{.id = "healthy", .source = "", .what = "", .injected = ""};
  row.model = spec;
  row.activation_bits = activation_bits;
  row.cache = cache;
  row.op = "any";
  return try_row(row);
}

std::string markdown(const std::vector<Outcome>& outcomes, const std::vector<Outcome>& further,
                     const std::vector<Outcome>& families) {
  const std::vector<Row>& rows = catalogue();
  std::string text = kTableHead;
  int n_detected = 0, n_localised = 0, n_named = 0, n_expressed = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    text += table_row(rows[i], outcomes[i]);
    if (rows[i].why_not != nullptr) continue;
    ++n_expressed;
    n_detected += outcomes[i].detected();
    n_localised += outcomes[i].localised(rows[i]);
    n_named += !outcomes[i].name_of_cause(rows[i]).empty();
  }
  text += fmt::format("\nOf {} faults {} can be expressed: {} detected, {} localised, {} named.\n", rows.size(),
                      n_expressed, n_detected, n_localised, n_named);
  text += std::string("\nBeside the catalogue:\n\n") + kTableHead;
  for (size_t i = 0; i < further.size(); ++i) text += table_row(further_rows()[i], further[i]);
  text += std::string("\nIn families, each on a small random model of one:\n\n") + kTableHead;
  for (size_t i = 0; i < families.size(); ++i) text += table_row(family_rows()[i], families[i]);
  return text;
}

}  // namespace assay::faults
