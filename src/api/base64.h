// Bytes as base64 text (RFC 4648, section 4).
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace assay::api {

std::string base64(std::span<const std::byte> bytes);

}  // namespace assay::api
