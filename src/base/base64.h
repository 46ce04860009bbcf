// Base64 as RFC 4648 has it: bytes in JSON and in data: addresses.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace assay::base {

// With padding, without line breaks.
std::string base64(std::span<const std::byte> bytes);

}  // namespace assay::base
