// Every fault of the faulty engine changes what it computes: a mutation that does nothing would be found by nobody.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "faulty/catalogue.h"
#include "faulty/probe_run.h"
#include "support/shared_data.h"

namespace assay::faults {
namespace {

TEST(FaultEffects, EveryFaultChangesTheResult) {
  ModelSpec (*of)() = nullptr;  // what `right` belongs to
  std::pair<ops::CacheType, int> at;
  std::vector<double> right;
  for (const Row& row : catalogue()) {
    if (row.fault == Fault::none || row.golden != nullptr) continue;
    const auto model = load(row.model());
    EngineOptions options;
    options.cache = row.cache;
    options.activation_bits = row.activation_bits;
    if (row.model != of || std::pair(options.cache, options.activation_bits) != at)
      right = faulty_logits(*model, options);
    of = row.model;
    at = {options.cache, options.activation_bits};
    options.fault = row.fault;
    const double difference = relative_difference(faulty_logits(*model, options), right);
    EXPECT_GT(difference, 1e-6) << row.id;
    RecordProperty(row.id, std::to_string(difference));
  }
}

TEST(FaultEffects, EveryFaultOfAFamilyChangesTheResult) {
  ASSAY_REQUIRE_FILE(test::shared("goldens/arch/mixtral.gguf"));
  for (const Row& row : family_rows()) {
    const auto model = Model::load(test::shared("goldens/arch/" + std::string(row.golden) + ".gguf").string());
    EngineOptions options;
    options.cache = row.cache;
    const std::vector<double> right = faulty_logits(*model, options);
    options.fault = row.fault;
    options.change_plan = row.change_plan;
    EXPECT_GT(relative_difference(faulty_logits(*model, options), right), 1e-6) << row.id;
  }
}

}  // namespace
}  // namespace assay::faults
