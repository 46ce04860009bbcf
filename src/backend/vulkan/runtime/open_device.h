// A device that was probed and not refused.
#pragma once

#include <memory>

#include "backend/vulkan/device/device.h"

namespace assay::backend::vulkan {

std::unique_ptr<Device> open_device(int number);  // Error(device) where it cannot be used

}  // namespace assay::backend::vulkan
