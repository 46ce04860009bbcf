// A count or place of the engine (int64_t, as plans and files have them) as an index of a standard container.
#pragma once

#include <cstddef>
#include <cstdint>

namespace assay {

constexpr size_t at(int64_t i) noexcept { return static_cast<size_t>(i); }

}  // namespace assay
