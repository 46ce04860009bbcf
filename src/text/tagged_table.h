// A hash table from texts or pairs to small indices that keeps the indices alone: what belongs to an index is the caller's, who is asked
// whether it is the same. 4 bytes a slot, so that the table of a large vocabulary stays in the second-level cache.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace assay::text {

// Spreads the bits of a key over all of a hash.
inline uint64_t mixed(uint64_t x) noexcept {
  x *= 0x9E3779B97F4A7C15u;
  return x ^ (x >> 29);
}

class TaggedTable {
 public:
  static constexpr size_t kSizeMax = (size_t{1} << 23) - 1;  // of indices

  TaggedTable() = default;
  // For n indices, n <= kSizeMax.
  explicit TaggedTable(size_t n) : slots_(std::bit_ceil(n + n / 2 + 1)), probes_left_(64 * n + 4096) {}  // at most two thirds full

  // The index with this hash of which same(index) is true; -1: none.
  template <class Same>
  int32_t find(uint64_t hash, const Same& same) const noexcept {
    for (size_t i = place(hash); slots_[i] != 0; i = (i + 1) & (slots_.size() - 1)) {
      if (may_be(slots_[i], hash) && same(index_of(slots_[i]))) return index_of(slots_[i]);
    }
    return -1;
  }

  // Adds the index, or returns the one that is the same.
  template <class Same>
  int32_t insert(uint64_t hash, int32_t index, const Same& same) noexcept {
    size_t i = place(hash);
    for (; slots_[i] != 0; i = (i + 1) & (slots_.size() - 1)) {
      if (may_be(slots_[i], hash) && same(index_of(slots_[i]))) return index_of(slots_[i]);
      probes_left_ -= probes_left_ > 0;
    }
    slots_[i] = (static_cast<uint32_t>(hash) & kTag) | (static_cast<uint32_t>(index) + 1);
    return -1;
  }

  // A file made to collide would make the insertions quadratic; an honest one needs less than two probes for each. True: stop.
  bool collides() const noexcept { return probes_left_ == 0; }

  void fetch(uint64_t hash) const noexcept { __builtin_prefetch(&slots_[place(hash)], 1); }
  // The index in the first place that a search looks at; -1: none.
  int32_t first(uint64_t hash) const noexcept { return index_of(slots_[place(hash)]); }

 private:
  // A slot is an index + 1 below bits of the hash that tell most other keys apart; 0: empty.
  static constexpr uint32_t kTag = ~static_cast<uint32_t>(kSizeMax);
  static int32_t index_of(uint32_t slot) noexcept { return static_cast<int32_t>(slot & ~kTag) - 1; }
  static bool may_be(uint32_t slot, uint64_t hash) noexcept { return ((slot ^ static_cast<uint32_t>(hash)) & kTag) == 0; }
  size_t place(uint64_t hash) const noexcept { return static_cast<size_t>(hash >> 32) & (slots_.size() - 1); }

  std::vector<uint32_t> slots_ = std::vector<uint32_t>(1);  // open addressing, a power of two
  size_t probes_left_ = 0;
};

}  // namespace assay::text
