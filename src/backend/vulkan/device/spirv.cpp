// See spirv.h. What is used of SPIR-V's layout (Khronos, SPIR-V 1.5, sections 2.3, 3.20 and 3.32): a header of 5 words,
// then instructions whose first word has their length above and their opcode below; decorations stand behind names and
// before types.
#include "backend/vulkan/device/spirv.h"

#include <set>

namespace assay::backend::vulkan {
namespace {

constexpr size_t kHeaderWords = 5;
constexpr uint32_t kDecorate = 71, kMemberDecorate = 72, kNoContraction = 42, kTypeFirst = 19, kTypeLast = 39;

// FNegate, FAdd, FSub, FMul, FDiv, FRem, FMod, VectorTimesScalar .. Dot.
bool is_float_operation(uint32_t opcode) {
  return opcode == 127 || opcode == 129 || opcode == 131 || opcode == 133 || opcode == 136 || opcode == 140 ||
         opcode == 141 || (opcode >= 142 && opcode <= 148);
}

template <class Visit>
void for_instructions(std::span<const uint32_t> module, const Visit& visit) {
  for (size_t i = kHeaderWords; i < module.size();) {
    const size_t n = module[i] >> 16;
    if (n == 0 || n > module.size() - i) return;  // not of a compiler
    visit(i, module[i] & 0xFFFFu, module.subspan(i, n));
    i += n;
  }
}

}  // namespace

std::vector<uint32_t> uncontracted(std::span<const uint32_t> module) {
  std::set<uint32_t> wanted;
  size_t place = 0;  // of the first decoration, or type
  for_instructions(module, [&](size_t at, uint32_t opcode, std::span<const uint32_t> words) {
    if (place == 0 &&
        (opcode == kDecorate || opcode == kMemberDecorate || (opcode >= kTypeFirst && opcode <= kTypeLast)))
      place = at;
    if (is_float_operation(opcode)) wanted.insert(words[2]);
  });
  for_instructions(module, [&](size_t, uint32_t opcode, std::span<const uint32_t> words) {
    if (opcode == kDecorate && words.size() == 3 && words[2] == kNoContraction) wanted.erase(words[1]);
  });
  std::vector<uint32_t> out(module.begin(), module.begin() + static_cast<ptrdiff_t>(place));
  for (const uint32_t id : wanted) out.insert(out.end(), {(3u << 16) | kDecorate, id, kNoContraction});
  out.insert(out.end(), module.begin() + static_cast<ptrdiff_t>(place), module.end());
  return out;
}

}  // namespace assay::backend::vulkan
