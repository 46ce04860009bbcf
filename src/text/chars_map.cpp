// See chars_map.h. A place in the array is a base: the unit of the next byte stands at base XOR byte if its label is
// that byte, and names the base behind it.
#include "text/chars_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "assay/error.h"
#include "base/utf8.h"

namespace assay::text {
namespace {

constexpr uint32_t kNowhere = 0xFFFFFFFF;
constexpr uint32_t kLabelBits = 0x800000FF;  // the highest one marks an end, which is no byte's label

uint32_t offset_of(uint32_t unit) noexcept { return (unit >> 10) << ((unit & 0x200) >> 6); }
bool ends_run(uint32_t unit) noexcept { return (unit & 0x100) != 0; }

[[noreturn]] void fail(const std::string& problem) {
  throw Error(Errc::bad_file, fmt::format("tokenizer.ggml.precompiled_charsmap: {}", problem));
}

// The units that a byte leads to, by the base it leads from. A zero is in no run.
class UnitsByBase {
 public:
  explicit UnitsByBase(std::span<const uint32_t> units) : first_(units.size() + 257), at_(units.size()) {
    for_each(units, [&](uint32_t base, uint32_t) { ++first_[base + 1]; });
    std::partial_sum(first_.begin(), first_.end(), first_.begin());
    std::vector<uint32_t> next = first_;
    for_each(units, [&](uint32_t base, uint32_t unit) { at_[next[base]++] = unit; });
  }
  size_t n_bases() const noexcept { return first_.size() - 1; }
  uint32_t first(uint32_t base) const noexcept { return base < first_.size() ? first_[base] : first_.back(); }
  uint32_t at(uint32_t i) const noexcept { return at_[i]; }

 private:
  template <class Visit>
  static void for_each(std::span<const uint32_t> units, const Visit& visit) {
    for (uint32_t unit = 0; unit < units.size(); ++unit) {
      const uint32_t label = units[unit] & kLabelBits;
      if (label >= 1 && label <= 0xFF) visit(unit ^ label, unit);
    }
  }
  std::vector<uint32_t> first_;  // in at_, of each base
  std::vector<uint32_t> at_;
};

}  // namespace

CharsMap::CharsMap(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  if (bytes.size() > kBytesMax) fail(fmt::format("{} bytes, the limit is {}", bytes.size(), kBytesMax));
  uint32_t n_bytes = 0;
  if (bytes.size() < sizeof n_bytes) fail(fmt::format("{} bytes, needs at least {}", bytes.size(), sizeof n_bytes));
  std::memcpy(&n_bytes, bytes.data(), sizeof n_bytes);
  const std::span<const std::byte> rest = bytes.subspan(sizeof n_bytes);
  if (n_bytes == 0 || n_bytes % sizeof(uint32_t) != 0 || n_bytes > rest.size()) {
    fail(fmt::format("an array of {} bytes in {}; needs whole units of 4", n_bytes, rest.size()));
  }
  const size_t n_units = n_bytes / sizeof(uint32_t);
  if (n_units > kUnitsMax) fail(fmt::format("an array of {} units, the limit is {}", n_units, kUnitsMax));
  units_.resize(n_units);
  std::memcpy(units_.data(), rest.data(), n_bytes);
  const std::span<const std::byte> texts = rest.subspan(n_bytes);
  texts_.assign(reinterpret_cast<const char*>(texts.data()), texts.size());
  if (!texts_.empty() && texts_.back() != '\0') fail("the last text has no end");
  if (!base::is_utf8(texts_)) fail("a text is not UTF-8");
  check();
}

// Where a byte leads from a base; kNowhere: it goes on with no run.
uint32_t CharsMap::child(uint32_t base, uint8_t byte) const noexcept {
  const uint32_t at = base ^ byte;
  return at < units_.size() && (units_[at] & kLabelBits) == byte ? at : kNowhere;
}

std::string_view CharsMap::text_of(uint32_t base) const noexcept {
  const std::string_view rest = std::string_view(texts_).substr(units_[base] & 0x7FFFFFFF);
  return rest.substr(0, rest.find('\0'));
}

CharsMap::Match CharsMap::longest(std::string_view text) const noexcept {
  Match match;
  if (units_.empty()) return match;
  uint32_t base = offset_of(units_[0]);
  for (size_t i = 0; i < text.size() && text[i] != '\0'; ++i) {
    const uint32_t unit = child(base, static_cast<uint8_t>(text[i]));
    if (unit == kNowhere) break;
    base = unit ^ offset_of(units_[unit]);
    if (ends_run(units_[unit])) match = {i + 1, text_of(base)};
  }
  return match;
}

void CharsMap::check_end(uint32_t unit, uint32_t base) const {
  if (!ends_run(units_[unit])) return;
  if (base >= units_.size()) fail(fmt::format("unit {} ends at {}, the array has {}", unit, base, units_.size()));
  const uint32_t at = units_[base] & 0x7FFFFFFF;
  const bool is_begin = at < texts_.size() && (static_cast<uint8_t>(texts_[at]) & 0xC0) != 0x80;
  if (!is_begin) {
    fail(fmt::format("unit {} names the text at {} of {} bytes, where none begins", unit, at, texts_.size()));
  }
}

// Every base that a run can lead to, once: what lies below it does not depend on the way there. A path in a circle
// never ends, so it becomes longer than any run may be.
void CharsMap::check() const {
  constexpr uint16_t kUnknown = 0xFFFF;
  struct Visited {
    uint32_t base;
    uint32_t next;         // of its units
    uint16_t longest = 0;  // bytes of what was seen below
  };
  const UnitsByBase units(units_);
  std::vector<uint16_t> known(units.n_bases(), kUnknown);
  const uint32_t root = offset_of(units_[0]);
  std::vector<Visited> path(1, Visited{root, units.first(root)});
  while (!path.empty()) {
    Visited& last = path.back();
    if (last.next == units.first(last.base + 1)) {
      if (last.base < known.size()) known[last.base] = last.longest;
      const auto whole = static_cast<uint16_t>(last.longest + 1);
      path.pop_back();
      if (!path.empty()) path.back().longest = std::max(path.back().longest, whole);
      continue;
    }
    const uint32_t unit = units.at(last.next++);
    const uint32_t base = unit ^ offset_of(units_[unit]);
    check_end(unit, base);
    const uint16_t below = base < known.size() ? known[base] : uint16_t{0};
    if (path.size() + (below == kUnknown ? 0 : below) > kRunBytesMax) {
      fail(fmt::format("a run of more than {} bytes, or one in a circle", kRunBytesMax));
    }
    if (below == kUnknown) {
      path.push_back(Visited{base, units.first(base)});
    } else {
      last.longest = std::max<uint16_t>(last.longest, below + 1);
    }
  }
}

}  // namespace assay::text
