// What a step of a scheduler costs, learnt from the steps that were run: how many prompt tokens one can take beside
// running answers without keeping them waiting. Only times depend on it, never a result.
#pragma once

#include <array>
#include <cstdint>

namespace assay::engine {

// Prompt tokens of a step, and the mean of their positions: a token attends to all that stand before it.
struct PromptTokens {
  int64_t n = 0;
  double position = 0;
};

class StepCost {
 public:
  void add(int64_t n_answers, const PromptTokens& prompt, double ms, double gap_ms);
  // Prompt tokens that keep a step beside n_answers running ones within gap_ms: 1 to n_max, as many as there are
  // where nobody waits. A token at this position counts as weight() of them.
  int64_t prompt_tokens(int64_t n_answers, double position, double gap_ms, int64_t n_max) const noexcept;
  // 1 where tokens were measured; behind that as if their time grew with the position.
  double weight(double position) const noexcept;
  double answers_ms(int64_t n_answers) const noexcept;  // of a step with so many answers alone; 0: not known yet

 private:
  void limit(const PromptTokens& prompt) noexcept;

  std::array<double, 12> answers_ms_ = {};  // of steps without prompts, by the logarithm of n_answers; 0: not seen yet
  double prompt_ms_ = 0;                    // a prompt token more; 0: not seen yet
  double position_ = 0;                     // where that was measured last
  // What a step takes rises by stairs: one token more may want another wave of a GPU's blocks. So after a step that was
  // too slow the next ones take fewer tokens, however quick these are, until this is forgotten.
  int64_t n_most_ = 0;  // 0: no limit
  double position_of_most_ = 0;
  int n_steps_limited_ = 0;  // that are left
};

}  // namespace assay::engine
