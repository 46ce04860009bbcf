// Runs of the faulty engine that touch everything a cache is used for, and how far their results lie apart. For tests.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "assay/model.h"
#include "engine/model_state.h"
#include "faulty/faulty_executor.h"
#include "faulty/model_file.h"
#include "support/temp_folder.h"

namespace assay::faults {

inline constexpr int64_t kTokens = 40;

inline std::shared_ptr<const Model> load(const ModelSpec& spec) {
  const test::TempFolder folder;
  const std::string path = (folder / "model.gguf").string();
  ModelFile(spec).write(path);
  return Model::load(path);
}

struct Ids {
  std::vector<int32_t> tokens, positions, sequences;
  std::vector<uint8_t> outputs;
  void add(int32_t token, int32_t position, int32_t sequence) {
    tokens.push_back(token);
    positions.push_back(position);
    sequences.push_back(sequence);
    outputs.push_back(1);
  }
};

inline int32_t token_at(int64_t i, int64_t vocab_size, int sequence) {
  return static_cast<int32_t>((i * 97 + 13 + 31 * sequence) % vocab_size);
}

// A prompt in two pieces, single tokens, a second sequence in between, and a tail that is taken back and run again:
// every way in which a cache is used. The logits of all that.
inline std::vector<double> logits_of(ops::Executor& executor, const ops::Plan& plan) {
  std::vector<double> all;
  const auto run = [&](const Ids& ids) {
    executor.run({ids.tokens, ids.positions, ids.sequences, ids.outputs});
    std::vector<double> row(static_cast<size_t>(plan.vocab_size));
    for (size_t i = 0; i < ids.tokens.size(); ++i) {
      executor.read_logits(static_cast<int64_t>(i), row);
      all.insert(all.end(), row.begin(), row.end());
    }
  };
  const auto stretch = [&](int64_t begin, int64_t end) {
    Ids ids;
    for (int64_t i = begin; i < end; ++i) ids.add(token_at(i, plan.vocab_size, 0), static_cast<int32_t>(i), 0);
    return ids;
  };
  run(stretch(0, 17));
  run(stretch(17, 36));
  for (int64_t i = 36; i < kTokens; ++i) run(stretch(i, i + 1));
  Ids both = stretch(kTokens, kTokens + 2);
  for (int32_t i = 0; i < 5; ++i) both.add(token_at(i, plan.vocab_size, 1), i, 1);
  run(both);
  executor.truncate(0, 20);
  run(stretch(20, 24));
  return all;
}

inline double relative_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i])) return std::numeric_limits<double>::infinity();
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(difference / size);
}

inline std::vector<double> faulty_logits(const Model& model, const EngineOptions& options) {
  const ops::Plan& plan = model.state().built.plan;
  const auto executor = make_faulty_executor(plan, options, 64, 2);
  return logits_of(*executor, plan);
}

}  // namespace assay::faults
