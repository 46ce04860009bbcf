// A dump as a source of values: does it fit the model, and its records in the order in which a run
// would have announced them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ops/plan/plan.h"
#include "trace/dump.h"

namespace assay::verify {

struct DumpSource {
  std::string path;
  trace::DumpHeader header;
  std::vector<trace::DumpBatch> batches;       // their sequences numbered 0, 1, ... as they appear
  std::vector<std::vector<bool>> ops_present;  // by batch and op of the plan
  int64_t n_ctx = 0;                           // positions of the longest sequence
  int64_t n_batch_max = 0;
  int n_sequences = 0;
  std::vector<std::string> lacking;  // ops of the plan that it does not have
};

// Reads the whole file once. Error(io, bad_file) as DumpReader; Error(bad_request), which names
// what differs, where it has other shapes than the plan, ops that the plan does not have, one of
// them twice in a batch, or no batch at all. Other numbers are no error.
DumpSource examine_dump(const std::string& path, const ops::Plan& plan);

// Reads it again, batch by batch, in the plan's order whatever the file's. What comes early is held
// in memory until its turn.
struct DumpSink {
  std::function<void(const ops::Batch& batch)> begin;
  std::function<void(const ops::Op& op, const trace::DumpTensor& tensor)> tensor;  // with the plan's rows
  std::function<void()> end;
  std::function<void(double share)> progress = {};
};
void replay_dump(const DumpSource& source, const ops::Plan& plan, const DumpSink& sink);

}  // namespace assay::verify
