// Prefill of experts: the pairs of a batch (expert_linear.h) in the order of their experts, so that an expert's rows
// are multiplied by all of its pairs at once, on the tensor cores. The order is made on the device; it changes no bit,
// for every output has a chain of its own.
#pragma once

#include <cstdint>
#include <span>

#include "backend/cuda/kernels/expert_table.h"
#include "backend/cuda/runtime/device_memory.h"
#include "backend/cuda/runtime/hopper.h"
#include "backend/cuda/runtime/queue.h"
#include "quant/activations.h"
#include "tensor/dtype.h"

namespace assay::backend::cuda {

struct ExpertTask;

// Neighbours in the order that go to one expert, at most as many as a tile has tokens.
struct ExpertTile {
  int32_t expert, begin, end;
};
struct ExpertTiles {
  const int32_t* pairs = nullptr;  // by place in the order
  const ExpertTile* tiles = nullptr;
  const int32_t* n_tiles = nullptr;  // of tokens; each has n_row_tiles of an expert's rows
  int32_t n_row_tiles = 0, rows_per_expert = 0, first_row = 0, d_out = 0;
};

// A view; none where the kernels that want it do not run.
struct ExpertScratch {
  int32_t *pairs = nullptr, *n_tiles = nullptr;
  ExpertTile* tiles = nullptr;
  std::byte* x = nullptr;  // integers of the activations, in the order
};

// Products of integers by experts, as large as they may become.
struct ExpertNeed {
  int64_t n_experts = 0, n_pairs = 0;
  quant::Activation kind = quant::Activation::a32;
  int64_t d_in = 0;
};

class ExpertMemory {
 public:
  ExpertMemory() = default;
  // Of the current device.
  ExpertMemory(std::span<const ExpertNeed> needs, int planes, const Hopper& hopper);

  const ExpertScratch& view() const noexcept { return view_; }
  size_t bytes() const noexcept { return order_.size() + x_.size(); }

 private:
  DeviceBuffer order_, x_;
  ExpertScratch view_;
};

// What a row `expert group tiles` of the table takes (kernels/expert_table.h), in tiles of its columns, 64 or 128:
// products with as many tokens a tile have the same order.
void expert_linear_groups(const ExpertTask& task, const quant::Activations& x, int columns,
                          const ExpertScratch& scratch, const ExpertsMade& made, const Hopper& hopper,
                          const Queue& queue);

}  // namespace assay::backend::cuda
