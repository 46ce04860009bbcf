// The bytes of a dump (docs/dump-format.md), for tests that change them and want the hashes to fit what they changed.
#pragma once

#include <xxhash.h>

#include <cstdint>
#include <cstring>
#include <string>

namespace assay::test {

template <class T>
T number_at(const std::string& bytes, size_t at) {
  T value{};
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

template <class T>
void put_number(std::string& bytes, size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

// Every hash computed anew, as far as lengths lead to hashes that lie within the bytes.
inline std::string with_hashes(std::string bytes) {
  const auto seal = [&](size_t begin, uint64_t length,
                        size_t fixed) -> size_t {  // the end of the record, or 0 where it has none
    if (length > bytes.size() || begin + fixed + length + 8 > bytes.size()) return 0;
    const size_t end = begin + fixed + length;
    put_number(bytes, end, uint64_t{XXH3_64bits(bytes.data() + begin, end - begin)});
    return end + 8;
  };
  if (bytes.size() < 16) return bytes;
  size_t at = seal(0, number_at<uint32_t>(bytes, 12), 16);
  while (at != 0 && at + 12 <= bytes.size()) {
    if (number_at<uint32_t>(bytes, at) == 0) {
      if (at + 28 > bytes.size()) return bytes;
      const XXH128_hash_t whole = XXH3_128bits(bytes.data(), at + 12);
      put_number(bytes, at + 12, uint64_t{whole.low64});
      put_number(bytes, at + 20, uint64_t{whole.high64});
      return bytes;
    }
    at = seal(at, number_at<uint64_t>(bytes, at + 4), 12);
  }
  return bytes;
}

}  // namespace assay::test
