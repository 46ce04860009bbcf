// What the public models of each architecture have in common: values of keys that no engine needs to check and that a
// file with another value most likely has by mistake. For lint alone: nothing refuses a file because of them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace assay::model {

// A number of "<architecture>.<key>" and the values that known models have; of an array every element.
struct UsualValue {
  std::string_view architecture;  // empty: of all that have no row of their own for this key
  std::string_view key;
  std::array<double, 14> values;  // as many as there are; 0 ends them
};
std::span<const UsualValue> usual_values() noexcept;

// The share of a head's elements that is rotated; architectures without a row rotate all.
struct UsualRotation {
  std::string_view architecture;
  std::array<double, 2> shares;  // likewise
};
std::span<const UsualRotation> usual_rotations() noexcept;

// What models with a vocabulary of so many tokens have; n_vocab 0: all of the architecture.
struct UsualForVocabulary {
  std::string_view architecture;
  std::string_view vocabulary;  // "Llama 3's vocabulary"
  int64_t n_vocab = 0;
  double rope_base = 0;        // 0: not said
  int64_t n_ctx_unscaled = 0;  // longer contexts scale their rotations; 0: not said
  enum class Head { any, own, tied } head = Head::any;
};
std::span<const UsualForVocabulary> usual_for_vocabularies() noexcept;

// Architectures whose contexts beyond so many positions have a larger base than 10000, a scaling or a window.
struct UsualContext {
  std::string_view architecture;
  int64_t n_ctx = 0;
};
std::span<const UsualContext> usual_contexts() noexcept;

}  // namespace assay::model
