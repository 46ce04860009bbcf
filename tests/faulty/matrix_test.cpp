// The mutation test of verify: every row of the catalogue is put into a subject, and verify must find it, at its place,
// by its name. The matrix is written to the build folder and must be what docs/verify.md shows (target `docs-verify`
// puts it there).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "faulty/fault_trial.h"
#include "support/shared_data.h"

namespace assay::faults {
namespace {

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// What stands between the markers of the document.
std::string matrix_of_document() {
  const std::string text = read_text(ASSAY_VERIFY_DOCUMENT);
  const std::string begin = "<!-- matrix -->\n", end = "<!-- end of matrix -->";
  const size_t from = text.find(begin), to = text.find(end);
  if (from == std::string::npos || to == std::string::npos) return "";
  return text.substr(from + begin.size(), to - from - begin.size());
}

// Tries every row and says what is not as expected.
std::vector<Outcome> try_all(FaultTrial& trial, const std::vector<Row>& rows) {
  std::vector<Outcome> outcomes;
  for (const Row& row : rows) {
    SCOPED_TRACE(fmt::format("{}: {}", row.id, row.what));
    const Outcome outcome = trial.try_row(row);
    outcomes.push_back(outcome);
    if (row.why_not != nullptr) continue;
    EXPECT_TRUE(outcome.detected()) << "no stage failed";
    EXPECT_TRUE(outcome.localised(row)) << fmt::format("found {} {}, expected {} {}\n{}", outcome.stage, outcome.op,
                                                       row.stage, row.op, outcome.finding);
    std::string causes;
    for (const std::string& cause : outcome.causes) causes += " " + cause;
    EXPECT_EQ(outcome.name_of_cause(row).empty(), row.named_by.empty()) << "causes:" << causes << "\n"
                                                                        << outcome.finding;
    if (std::getenv("ASSAY_SHOW") != nullptr) {
      fmt::print("{} {:.2f} s: {}, {},{} | {}\n", row.id, outcome.seconds, outcome.stage, outcome.op, causes,
                 outcome.finding.substr(0, 400));
    }
  }
  return outcomes;
}

TEST(Matrix, EveryFaultIsFound) {
  FaultTrial trial;
  ASSAY_REQUIRE_FILE(test::shared("goldens/arch/mixtral.gguf"));
  const std::vector<Outcome> outcomes = try_all(trial, catalogue()), further = try_all(trial, further_rows()),
                             families = try_all(trial, family_rows());
  const std::string found = markdown(outcomes, further, families);
  std::ofstream(ASSAY_MATRIX) << found;
  EXPECT_EQ(found, matrix_of_document()) << "docs/verify.md shows another matrix: run the target docs-verify";
}

TEST(Matrix, NoFindingWithoutAFault) {
  struct Healthy {
    ModelSpec (*model)();
    int activation_bits;
    ops::CacheType cache;
  };
  using enum ops::CacheType;
  constexpr Healthy kAll[] = {
      {k_quants, 0, f32}, {k_quants, 8, q8_0}, {blocks_32, 0, f16},    {blocks_32, 8, f32},
      {gemma, 0, f32},    {gemma, 0, q8_0},    {large_scores, 0, f32}, {large_activations, 8, f16}};
  FaultTrial trial;
  for (const Healthy& healthy : kAll) {
    const Outcome outcome = trial.try_healthy(healthy.model, healthy.activation_bits, healthy.cache);
    EXPECT_EQ(outcome.stage, "") << "seed " << healthy.model().seed << ", " << healthy.activation_bits << " bits\n"
                                 << outcome.finding;
    EXPECT_EQ(outcome.op, "");
  }
}

}  // namespace
}  // namespace assay::faults
