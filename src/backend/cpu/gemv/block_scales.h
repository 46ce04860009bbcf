// The float scales of 8 blocks, one in each lane. Included by kernel files only.
#pragma once

#include "backend/cpu/gemv/floats8.h"

namespace assay::backend::cpu {
namespace {

// m only where the format has a minimum.
struct Scales {
  Floats8 d, m;
};

}  // namespace
}  // namespace assay::backend::cpu
