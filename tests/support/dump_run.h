// A dump of a run of our own engine, with values changed on the way where a test wants that.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "ops/plan/executor.h"
#include "ops/plan/op_values.h"
#include "trace/dump.h"

namespace assay::test {

struct DumpRun {
  trace::DumpHeader header;
  std::vector<trace::DumpBatch> batches;
  bool as_f64 = false;  // of an engine whose values are no floats
  // Called with every tensor before it is written; false leaves it out.
  std::function<bool(int64_t i_batch, trace::DumpTensor& tensor)> change = {};
};

// Batches of n_chunk tokens, one sequence, logits wanted of every token.
inline std::vector<trace::DumpBatch> batches_of(std::span<const int32_t> ids, size_t n_chunk) {
  std::vector<trace::DumpBatch> batches;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i % n_chunk == 0) batches.emplace_back();
    batches.back().tokens.push_back(ids[i]);
    batches.back().positions.push_back(static_cast<int32_t>(i));
    batches.back().sequences.push_back(0);
    batches.back().outputs.push_back(1);
  }
  return batches;
}

inline trace::DumpHeader header_of(const ops::Plan& plan, const trace::Declared& declared) {
  trace::DumpHeader header;
  header.engine = "test 1.0";
  header.architecture = "llama";
  header.n_layers = static_cast<int64_t>(plan.cache_layers.size());
  header.d_model = plan.d_model;
  header.vocab_size = plan.vocab_size;
  header.declared = declared;
  return header;
}

inline void dump_run(const std::string& path, const DumpRun& run, ops::Executor& executor) {
  struct Writing final : ops::OpObserver {
    Writing(const std::string& file, const DumpRun& asked) : writer(file, asked.header), run(asked) {}
    bool wants(const ops::Op& op) override {
      return ops::values_of(op).output != ops::kNone && ops::kind_name(op) != std::string("select_outputs");
    }
    void on_op(const ops::Op& op, int64_t n_rows, int64_t width, std::span<const double> values) override {
      trace::DumpTensor tensor{op.name, n_rows, width, run.as_f64, {values.begin(), values.end()}};
      if (run.change && !run.change(i_batch, tensor)) return;
      writer.add(tensor.op, tensor.n_rows, tensor.width, tensor.values, tensor.is_f64);
    }
    trace::DumpWriter writer;
    const DumpRun& run;
    int64_t i_batch = -1;
  };
  Writing writing(path, run);
  for (const trace::DumpBatch& batch : run.batches) {
    ++writing.i_batch;
    const ops::Batch fed{batch.tokens, batch.positions, batch.sequences, batch.outputs, {.observer = &writing}};
    writing.writer.begin_batch(fed);
    executor.run(fed);
  }
  writing.writer.finish();
}

}  // namespace assay::test
