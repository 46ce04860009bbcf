// Memory for arenas and KV caches: aligned, zero at first, and taken from the system only where it is touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace assay::base {

class AlignedBuffer {
 public:
  static constexpr size_t kAlignment = 64;  // at least; in fact whole pages

  AlignedBuffer() = default;
  // Reserves address space for `bytes`, which may be much and is lazily filled with zero pages. what: named in the
  // Error(out_of_memory), which is thrown where the machine could never hold it.
  AlignedBuffer(uint64_t bytes, std::string_view what);
  ~AlignedBuffer() { release(); }
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  // Pages of 2 MiB where the kernel has them, for what is read end to end; touching a byte then takes as much. To be
  // called before the memory is touched.
  void advise_huge_pages() noexcept;

  std::byte* data() noexcept { return data_; }
  const std::byte* data() const noexcept { return data_; }
  size_t size() const noexcept { return bytes_; }
  std::span<std::byte> bytes() noexcept { return {data_, bytes_}; }
  std::span<const std::byte> bytes() const noexcept { return {data_, bytes_}; }

 private:
  void release() noexcept;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// Memory and swap of the machine, or of the control group where that is less.
uint64_t memory_total_bytes();
// What could be taken now without swapping: the kernel's estimate, or what the control group leaves.
uint64_t memory_available_bytes();

}  // namespace assay::base
