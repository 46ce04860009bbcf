// The tokens made of one class of characters, as they may follow one another (automaton.h, Run): found once, and then
// only the few others are tried at each place.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "constraint/automaton.h"
#include "constraint/tree.h"

namespace assay::constraint {

struct ClassTokens {
  ByteSet on, never;
  bool is_worth_it = true;     // false: most tokens are others, and nothing of them is kept
  std::vector<uint64_t> bits;  // tokens of these characters alone
  Tree other;                  // what may come besides, whatever stands behind the characters but what is never there
};

// Of a tree that look_below has seen.
ClassTokens make_class_tokens(const Tree& tree, int64_t n_words, const ByteSet& on, const ByteSet& never);

// What was asked for last.
class ClassTokensCache {  // any number of threads at a time
 public:
  // nullptr: there are none that serve a run, and it is too short to look for them, or they are not worth it.
  std::shared_ptr<const ClassTokens> find(const Tree& tree, int64_t n_words, const Run& run);

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<const ClassTokens>> kept_;  // the latest first
};

}  // namespace assay::constraint
