// XXH3-128 over a stream of bytes, as 32 hexadecimal digits: the name of a result's bits.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace assay::engine {

class BitsDigest {
 public:
  BitsDigest();
  ~BitsDigest();
  BitsDigest(BitsDigest&&) noexcept;
  BitsDigest& operator=(BitsDigest&&) noexcept;

  void add(std::span<const std::byte> bytes);
  std::string hex() const;  // of all bytes so far
  void reset();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace assay::engine
