// A hash table from texts or pairs to small indices that keeps the indices alone: what belongs to an index is the
// caller's, who is asked whether it is the same. 4 bytes a slot, so that the table of a large vocabulary stays in the
// second-level cache.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/aligned_buffer.h"

namespace assay::text {

// Spreads the bits of a key over all of a hash.
inline uint64_t mixed(uint64_t x) noexcept {
  x *= 0x9E3779B97F4A7C15u;
  return x ^ (x >> 29);
}
inline uint32_t hash_of_key(uint64_t key) noexcept { return static_cast<uint32_t>(mixed(mixed(key)) >> 32); }

class alignas(64) TaggedTable {  // a line of its own: its counts change while another thread fills its neighbour
 public:
  static constexpr size_t kSizeMax = (size_t{1} << 23) - 1;  // of indices, and of the greatest index

  TaggedTable() = default;
  // For n indices, n <= kSizeMax. slots: n_slots(n) zeros, which must outlive the table.
  TaggedTable(std::span<uint32_t> slots, size_t n) : slots_(slots), room_(n), probes_left_(64 * n + 4096) {}
  static size_t n_slots(size_t n) noexcept { return std::bit_ceil(n + n / 2 + 1); }  // at most two thirds full

  // The index with this hash of which same(index) is true; -1: none.
  template <class Same>
  int32_t find(uint32_t hash, const Same& same) const noexcept {
    for (size_t i = place(hash); slots_[i] != 0; i = (i + 1) & (slots_.size() - 1)) {
      if (may_be(slots_[i], hash) && same(index_of(slots_[i]))) return index_of(slots_[i]);
    }
    return -1;
  }

  // Adds the index, or returns the one that is the same. More indices than there is room for count as a collision and
  // are not added.
  template <class Same>
  int32_t insert(uint32_t hash, int32_t index, const Same& same) noexcept {
    size_t i = place(hash);
    for (; slots_[i] != 0; i = (i + 1) & (slots_.size() - 1)) {
      if (may_be(slots_[i], hash) && same(index_of(slots_[i]))) return index_of(slots_[i]);
      probes_left_ -= probes_left_ > 0;
    }
    if (room_ == 0) {
      probes_left_ = 0;
      return -1;
    }
    --room_;
    slots_[i] = (hash & kTag) | (static_cast<uint32_t>(index) + 1);
    return -1;
  }

  // A file made to collide would make the insertions quadratic; an honest one needs less than two probes for each.
  // True: stop.
  bool collides() const noexcept { return probes_left_ == 0; }

  void fetch(uint32_t hash) const noexcept { __builtin_prefetch(&slots_[place(hash)], 1); }
  // The index in the first place that a search looks at; -1: none.
  int32_t first(uint32_t hash) const noexcept { return index_of(slots_[place(hash)]); }

 private:
  // A slot is an index + 1 below bits of the hash that tell most other keys apart; 0: empty.
  static constexpr uint32_t kTag = ~static_cast<uint32_t>(kSizeMax);
  static int32_t index_of(uint32_t slot) noexcept { return static_cast<int32_t>(slot & ~kTag) - 1; }
  static bool may_be(uint32_t slot, uint32_t hash) noexcept { return ((slot ^ hash) & kTag) == 0; }
  size_t place(uint32_t hash) const noexcept { return hash & (slots_.size() - 1); }

  std::span<uint32_t> slots_;  // open addressing, a power of two
  size_t room_ = 0;            // indices that may still be added
  size_t probes_left_ = 0;
};

// Tables that threads fill side by side, each those indices whose hash belongs to it. Few indices have one table: they
// are there before a thread is.
class SplitTable {
 public:
  static constexpr int kParts = 2;  // at most
  static constexpr size_t kSplitFrom = 65536;

  SplitTable() = default;
  // For n indices, of which a hash that spreads gives every part its share; an eighth of all more is for chance.
  explicit SplitTable(size_t n) : n_parts_(n < kSplitFrom ? 1 : kParts) {
    const size_t room = n_parts_ == 1 ? n : n / kParts + n / 8, n_slots = TaggedTable::n_slots(room);
    memory_ =
        base::AlignedBuffer(static_cast<size_t>(n_parts_) * n_slots * sizeof(uint32_t), "a tokenizer's hash table");
    memory_.advise_huge_pages();
    for (size_t i = 0; i < static_cast<size_t>(n_parts_); ++i) {
      parts_[i] = TaggedTable(std::span(reinterpret_cast<uint32_t*>(memory_.data()) + i * n_slots, n_slots), room);
    }
  }

  int n_parts() const noexcept { return n_parts_; }
  int part_of(uint32_t hash) const noexcept { return static_cast<int>(hash >> 31) & (n_parts_ - 1); }
  TaggedTable& part(int i) noexcept { return parts_[static_cast<size_t>(i)]; }
  const TaggedTable& of(uint32_t hash) const noexcept { return parts_[static_cast<size_t>(part_of(hash))]; }

 private:
  int n_parts_ = 1;
  base::AlignedBuffer memory_;
  std::array<TaggedTable, kParts> parts_;  // views of it
};

}  // namespace assay::text
