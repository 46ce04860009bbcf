// Shader modules as they were compiled, and what is done to them before a driver sees them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace assay::backend::vulkan {

struct Shader {
  std::string_view name;
  std::span<const uint32_t> plain, with_float64, with_integers;  // num/num.glsl says which kind does what
};
// Error(device) for a name that no file has: a bug.
const Shader& find_shader(std::string_view name);
std::span<const Shader> all_shaders() noexcept;

// The module with NoContraction on the result of every float operation that could be contracted or reassociated: the
// language has a word for it (precise), but a place where it is forgotten would show on some drivers alone.
std::vector<uint32_t> uncontracted(std::span<const uint32_t> module);

}  // namespace assay::backend::vulkan
