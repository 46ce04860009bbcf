// Whether guessing pays for a request: what a run with guesses takes against what it yields. Only times depend on it,
// never a result.
#pragma once

#include <cstdint>

namespace assay::engine {

class DraftPace {
 public:
  // How many guesses the next run should have, n_max at most; 0: guessing does not pay for now. Asked once before each
  // run.
  int64_t next(int64_t n_max) noexcept;
  // A run with guesses took so much of the time of one without; 0: not known.
  void add_cost(double relative) noexcept;
  // ... and had n_guessed, of which n_accepted were right.
  void add(int64_t n_guessed, int64_t n_accepted) noexcept;

 private:
  double yield_ = 0, cost_ = 0;  // means of lately: tokens a run, relative cost
  int64_t n_seen_ = 0;
  int64_t n_pause_ = 1,
          pause_ = 0;  // runs left without guesses, the first tells what one takes; how long the last pause was
  int64_t n_ = 4;      // guesses: more where all are right, fewer where few are
};

}  // namespace assay::engine
