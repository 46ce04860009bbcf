// What a step of a scheduler costs, learnt from the steps that were run: how many prompt tokens one can take beside running
// answers without keeping them waiting. Only times depend on it, never a result.
#pragma once

#include <array>
#include <cstdint>

namespace assay::engine {

class StepCost {
 public:
  void add(int64_t n_answers, int64_t n_prompt, double ms);
  // Prompt tokens that keep a step beside n_answers running ones within gap_ms: 1 to n_max, as many as there are
  // where nobody waits.
  int64_t prompt_tokens(int64_t n_answers, double gap_ms, int64_t n_max) const noexcept;
  double answers_ms(int64_t n_answers) const noexcept;  // of a step with so many answers alone; 0: not known yet

 private:
  std::array<double, 12> answers_ms_ = {};  // of steps without prompts, by the logarithm of n_answers; 0: not seen yet
  double prompt_ms_ = 0;                    // a prompt token more; 0: not seen yet
};

}  // namespace assay::engine
