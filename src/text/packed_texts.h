// Many texts as a file has them: one after the other, each behind its length (8 bytes, little-endian). A vocabulary of
// 262,144 tokens is taken over in this form, without a view for each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

namespace assay::text {

class PackedTexts {
 public:
  static constexpr size_t kLengthBytes = sizeof(uint64_t);
  static constexpr size_t kAhead = 2048;  // bytes

  PackedTexts() = default;
  // bytes: n whole texts, which must outlive this.
  PackedTexts(std::span<const std::byte> bytes, size_t n) : view_(bytes), size_(n) {}
  PackedTexts(std::initializer_list<std::string_view> texts) {
    for (const std::string_view text : texts) push_back(text);
  }

  void push_back(std::string_view text) {  // takes a copy, of what was viewed before too
    if (own_.empty()) own_.assign(view_.begin(), view_.end());
    const uint64_t length = text.size();
    const auto* at = reinterpret_cast<const std::byte*>(&length);
    own_.insert(own_.end(), at, at + sizeof length);
    at = reinterpret_cast<const std::byte*>(text.data());
    own_.insert(own_.end(), at, at + text.size());
    ++size_;
  }

  size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  std::span<const std::byte> bytes() const noexcept { return own_.empty() ? view_ : std::span<const std::byte>(own_); }

  // Calls visit(index, text) for each.
  template <class Visit>
  void for_each(const Visit& visit) const {
    const std::byte* at = bytes().data();
    for (size_t i = 0; i < size_; ++i) {
      uint64_t length = 0;
      std::memcpy(&length, at, sizeof length);
      __builtin_prefetch(at + kAhead);  // the processor itself stops at the end of a page
      visit(i, std::string_view(reinterpret_cast<const char*>(at + sizeof length), length));
      at += sizeof length + length;
    }
  }

 private:
  std::span<const std::byte> view_;
  std::vector<std::byte> own_;
  size_t size_ = 0;
};

}  // namespace assay::text
