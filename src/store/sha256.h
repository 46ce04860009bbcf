// SHA-256 while bytes flow.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace assay::store {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void add(std::span<const std::byte> bytes);
  std::string hex();  // once, at the end

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace assay::store
