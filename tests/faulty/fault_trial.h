// Puts a row's fault into a subject and asks verify: what is found first, and is its cause named.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "faulty/catalogue.h"
#include "support/temp_folder.h"

namespace assay::faults {

struct Outcome {
  std::string stage;                // the first that failed; empty: none did
  std::string op;                   // the first out of its bound; empty: none, or not asked
  std::string finding;              // what the stage says: its failures, one a line
  std::vector<std::string> causes;  // ids of the dictionary's entries that reproduce the op's values
  double seconds = 0;

  bool detected() const { return !stage.empty(); }
  bool localised(const Row& row) const { return stage == row.stage && op == row.op; }
  std::string name_of_cause(const Row& row) const;  // which of row.named_by was found; empty: none
};

class FaultTrial {
 public:
  // All stages until one fails; where the row asks for an op, the ops whatever failed before.
  Outcome try_row(const Row& row);
  // The same subject without its fault: must pass every stage.
  Outcome try_healthy(ModelSpec (*spec)(), int activation_bits, ops::CacheType cache);

 private:
  Outcome run(const Row& row);
  Outcome run_file(const Row& row);
  Outcome run_golden(const Row& row);
  std::shared_ptr<const Model> model(ModelSpec (*spec)());

  test::TempFolder folder_;
  base::ThreadPool pool_{1};
  std::map<ModelSpec (*)(), std::shared_ptr<const Model>> models_;
  std::map<std::string, std::shared_ptr<const Model>> goldens_;
};

// The matrix as a Markdown table with its totals.
std::string markdown(const std::vector<Outcome>& outcomes, const std::vector<Outcome>& further,
                     const std::vector<Outcome>& families);

}  // namespace assay::faults
