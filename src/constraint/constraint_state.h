// What a Constraint holds.
#pragma once

#include <memory>

#include "assay/constraint.h"
#include "constraint/network.h"

namespace assay {

struct Constraint::State {
  std::shared_ptr<const constraint::Network> network;
};

}  // namespace assay
