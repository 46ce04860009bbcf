// What a driver made of the shaders, kept between runs: a file for each device and driver, which either is what this
// device's driver gave, byte by byte, or is not used.
//
//   FOLDER/DEVICE-DRIVER.pipelines:   magic | whose it is | bytes | their hash | ..
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "backend/vulkan/device/instance.h"

namespace assay::backend::vulkan {

// Empty where no folder was named (set_shader_folder in vulkan.h).
std::filesystem::path pipeline_cache_path(const Facts& device);
// Nothing where there is no file, or it is not to be used: why_not says so then.
std::vector<std::byte> read_pipeline_cache(const std::filesystem::path& path, const Facts& device,
                                           std::string& why_not);
// In the place of what is there, whole or not at all. Error(io).
void write_pipeline_cache(const std::filesystem::path& path, const Facts& device, std::span<const std::byte> bytes);

}  // namespace assay::backend::vulkan
