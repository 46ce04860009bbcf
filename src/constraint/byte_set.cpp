// See byte_set.h.
#include "constraint/byte_set.h"

#include <string_view>

namespace assay::constraint {
namespace {

// Letters stand alone; what classes have or leave out together, together.
constexpr int group_by_kind(uint8_t b) noexcept {
  const char c = static_cast<char>(b);
  if (b >= 0xE0) return b == 0xE2 ? 61 : 60;  // 0xE2: `.` of a pattern has not all of it
  if (b >= 0x80) return 59;
  if (c >= 'a' && c <= 'z') return c - 'a';
  if (c >= 'A' && c <= 'Z') return 26 + (c - 'A');
  if (c >= '0' && c <= '9') return 52;
  if (c == ' ') return 53;
  if (c < ' ' || b == 0x7F) return 54;
  if (c == '"' || c == '\\') return 55;
  if (std::string_view("_-.").find(c) != std::string_view::npos) return 56;
  return std::string_view(",;:!?'").find(c) != std::string_view::npos ? 57 : 58;
}

struct Groups {
  std::array<int, 256> of{};
  std::array<ByteSet, kGroups> bytes{};
  Groups() noexcept {
    for (const Leads& leads : kLeads) {
      for (int b = leads.first; b <= leads.last; ++b) {
        const int group = group_by_kind(static_cast<uint8_t>(b));
        of[static_cast<size_t>(b)] = group;
        bytes[static_cast<size_t>(group)].add(b, b);
      }
    }
  }
};

const Groups& groups() noexcept {
  static const Groups kAll;
  return kAll;
}

}  // namespace

int group_of(uint8_t lead) noexcept { return groups().of[lead]; }

uint64_t groups_within(const ByteSet& set) noexcept {
  uint64_t within = 0;
  for (size_t g = 0; g < static_cast<size_t>(kGroups); ++g) {
    if (groups().bytes[g].within(set)) within |= uint64_t{1} << g;
  }
  return within;
}

}  // namespace assay::constraint
