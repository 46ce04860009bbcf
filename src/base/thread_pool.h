// A pool of std::jthread workers that run one function over a range of indices and join. The result of a computation
// never depends on the number of threads: callers split by rows and heads, never inside a sum.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

#include "base/processors.h"  // physical_cores(): the usual number of threads

namespace assay::base {

inline constexpr int kThreadsMax = 1024;

class ThreadPool {
 public:
  // n_threads >= 1 counts the caller: n_threads - 1 workers are started. pin: bind worker i to the i-th of
  // allowed_processors(); the caller, thread 0, stays where the system puts it. Error(bad_request) for a number of
  // threads beyond kThreadsMax.
  explicit ThreadPool(int n_threads, bool pin = false);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int n_threads() const noexcept;

  // Calls body(i, thread) for every i in [0, n), each once, on the caller and the workers; thread in [0, n_threads()).
  // Returns when all are done. The first exception is rethrown here. Not reentrant. Idle workers spin briefly, then
  // sleep.
  template <class Body>
  void run(int64_t n, Body&& body) {
    run_erased(
        n,
        [](void* context, int64_t i, int thread) {
          (*static_cast<std::remove_reference_t<Body>*>(context))(i, thread);
        },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

 private:
  using Call = void (*)(void* context, int64_t i, int thread);
  void run_erased(int64_t n, Call call, void* context);
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace assay::base
