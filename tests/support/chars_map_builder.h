// Rules of normalisation in SentencePiece's form, for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace assay::test {

// Each base has 256 units of its own, which wastes room and is easy to follow.
class CharsMapBuilder {
 public:
  CharsMapBuilder() : units_(512) { units_[0] = 256 << 10; }  // the root's base is 256

  CharsMapBuilder& add(std::string_view run, std::string_view text) {
    uint32_t base = 256;
    for (const char c : run) {
      const auto byte = static_cast<uint8_t>(c);
      const uint32_t at = base ^ byte;
      if (units_[at] == 0) {
        const auto next = static_cast<uint32_t>(units_.size());
        units_.resize(units_.size() + 256);
        lead(at, byte, next);
      }
      base = base_behind(at);
      last_ = at;
    }
    units_[last_] |= 0x100;
    units_[base] = 0x80000000u | static_cast<uint32_t>(texts_.size());
    texts_.append(text).push_back('\0');
    return *this;
  }
  // The unit of the last byte that was added leads to this base instead.
  CharsMapBuilder& lead_last_to(uint32_t base) {
    lead(last_, static_cast<uint8_t>(units_[last_] & 0xFF), base);
    return *this;
  }
  uint32_t last() const noexcept { return last_; }
  std::vector<uint32_t>& units() noexcept { return units_; }
  std::string& texts() noexcept { return texts_; }

  std::vector<std::byte> bytes() const {
    const auto n = static_cast<uint32_t>(units_.size() * sizeof(uint32_t));
    std::vector<std::byte> all(sizeof n + n + texts_.size());
    std::memcpy(all.data(), &n, sizeof n);
    std::memcpy(all.data() + sizeof n, units_.data(), n);
    std::memcpy(all.data() + sizeof n + n, texts_.data(), texts_.size());
    return all;
  }

 private:
  // A unit names what XOR its own place gives the base.
  void lead(uint32_t at, uint8_t byte, uint32_t base) { units_[at] = (units_[at] & 0x100) | (at ^ base) << 10 | byte; }
  uint32_t base_behind(uint32_t at) const { return at ^ (units_[at] >> 10); }

  std::vector<uint32_t> units_;
  std::string texts_;
  uint32_t last_ = 0;
};

}  // namespace assay::test
