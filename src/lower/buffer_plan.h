// Places buffers with known lifetimes in one arena, so that buffers which never live together share memory and the peak
// is known before anything runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace assay::lower {

struct BufferNeed {
  size_t bytes = 0;
  int32_t first_step = 0;    // the step that writes it
  int32_t last_step = 0;     // the last step that reads it, at least first_step
  int32_t in_place_of = -1;  // index of an earlier need of at least as many bytes whose memory it takes over, or -1
};

struct BufferPlan {
  std::vector<size_t> offsets;  // one per need, multiples of the alignment
  size_t bytes = 0;             // of the arena
};

// Needs must be ordered by first_step. Two needs whose steps overlap never overlap in memory, but for an in-place pair.
BufferPlan place_buffers(std::span<const BufferNeed> needs, size_t alignment = 64);

}  // namespace assay::lower
