// For tests of the scheduler: a suite's contexts are a GPU's; skipped where there is none.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "assay/context.h"
#include "assay/devices.h"

namespace assay::test {

template <class Base>
class OnGpu : public Base {
 protected:
  void SetUp() override {
    const std::string none = list_devices().no_cuda;
    if (!none.empty()) GTEST_SKIP() << none;
    this->options_.context.backend = Backend::cuda;
  }
};

}  // namespace assay::test
