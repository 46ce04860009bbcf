// The architectures that this build serves: one file each in this folder, one line each in list.cpp.
#pragma once

#include <span>
#include <string_view>

#include "model/hparams.h"
#include "model/plan_builder.h"

namespace assay::model {

// vocab_size: rows of the embedding table.
struct ArchInput {
  const KeyReader& keys;
  const Hparams& hparams;
  int64_t vocab_size;
};

struct Architecture {
  std::string_view name;  // general.architecture
  ops::ValueId (*build)(const ArchInput& input, PlanBuilder& plan);  // returns the logits
};

std::span<const Architecture> architectures() noexcept;

namespace arch {
ops::ValueId llama(const ArchInput& input, PlanBuilder& plan);
ops::ValueId gemma3(const ArchInput& input, PlanBuilder& plan);
}  // namespace arch

}  // namespace assay::model
