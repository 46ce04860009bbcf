// See cpu_budget.h.
#include "constraint/cpu_budget.h"

#include <fmt/format.h>
#include <time.h>

#include "assay/error.h"

namespace assay::constraint {

std::chrono::nanoseconds CpuBudget::thread_time() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
}

void CpuBudget::check() const {
  if (clock_() - begin_ <= most_) return;
  throw Error(
      Errc::bad_request,
      fmt::format("compiling it takes more than {} ms of the processor: needs smaller lengths, counts, lists or "
                  "repetitions, or fewer of them",
                  std::chrono::duration_cast<std::chrono::milliseconds>(most_).count()));
}

}  // namespace assay::constraint
