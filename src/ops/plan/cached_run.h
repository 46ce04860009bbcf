// What an op of Role::cached sees of the KV cache: one layer of one sequence, as read back (ops/attention/attention.h).
#pragma once

#include <cstdint>

namespace assay::ops {

template <class T>
struct CachedRun {
  int64_t n_positions = 0;  // that the sequence has, those of the batch among them
  // Position p begins at keys + p * k_stride, values + p * v_stride: the KV heads side by side.
  const T* keys = nullptr;
  int64_t k_stride = 0;
  const T* values = nullptr;
  int64_t v_stride = 0;
  // The caller's memory to work in, n_positions elements each.
  T* scratch = nullptr;
  int32_t* order = nullptr;
};

}  // namespace assay::ops
