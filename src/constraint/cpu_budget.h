// How much of the processor's time compiling a schema, a grammar or the tools of a request may take. The clock is the
// thread's own: what else the machine does is not counted.
#pragma once

#include <chrono>
#include <cstdint>

namespace assay::constraint {

#if defined(ASSAY_SANITIZED)
inline constexpr std::chrono::milliseconds kCpuMost{4'000};  // the same work by a program that checks each step
#else
inline constexpr std::chrono::milliseconds kCpuMost{100};
#endif

class CpuBudget {
 public:
  using Clock = std::chrono::nanoseconds (*)();
  static std::chrono::nanoseconds thread_time();

  explicit CpuBudget(std::chrono::nanoseconds most = kCpuMost, Clock clock = thread_time)
      : clock_(clock), most_(most), begin_(clock()) {}

  // A step of work; the clock is read once in kStepsBetween of them. Error(bad_request) where the time is spent.
  void step() {
    if (++n_steps_ % kStepsBetween == 0) check();
  }
  void check() const;

  static constexpr uint64_t kStepsBetween = 1'024;

 private:
  Clock clock_;
  std::chrono::nanoseconds most_, begin_;
  uint64_t n_steps_ = 0;
};

}  // namespace assay::constraint
