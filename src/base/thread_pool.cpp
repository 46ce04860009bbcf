// The pool behind thread_pool.h. A round is one call of run. Its chunks are claimed by compare-and-swap on one word
// that holds the round's number and how many chunks are left; who has claimed a chunk may read the round's job, because
// the round cannot end before that chunk is done. So a worker that comes late finds either nothing left or a chunk of
// the current round, never an old job.
#include "base/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "assay/error.h"

namespace assay::base {
namespace {

constexpr std::chrono::microseconds kSpin{40};  // longer than the gap between two ops, shorter than a waste
constexpr int64_t kChunksPerThread = 8;

void pause() noexcept {
#if defined(__x86_64__)  // the instruction has no portable spelling
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

// Waits until word differs from old: spins for a while if there are processors to spare, then sleeps.
template <class T>
T wait_for_change(const std::atomic<T>& word, T old, bool spin) noexcept {
  if (spin) {
    const auto begin = std::chrono::steady_clock::now();
    do {
      for (int i = 0; i < 32; ++i) {
        const T now = word.load(std::memory_order_acquire);
        if (now != old) return now;
        pause();
      }
    } while (std::chrono::steady_clock::now() - begin < kSpin);
  }
  word.wait(old, std::memory_order_acquire);
  return word.load(std::memory_order_acquire);
}

void pin_to(int processor) noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (processor >= CPU_SETSIZE) return;
  CPU_SET(processor, &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);  // a wish: a refusal costs speed only
}

}  // namespace

struct ThreadPool::State {
  struct Job {
    int64_t n = 0;
    int64_t chunk = 0;
    int64_t n_chunks = 0;
    Call call = nullptr;
    void* context = nullptr;
  };

  Job job;                                         // written by run() while nothing is claimed or claimable
  alignas(64) std::atomic<uint64_t> claim{0};      // round << 32 | chunks left to claim
  alignas(64) std::atomic<int32_t> unfinished{0};  // chunks of this round whose body has not returned
  alignas(64) std::atomic<uint32_t> wake{0};       // changes with every round; workers sleep on it
  std::atomic<bool> failed{false};
  std::atomic<bool> stop{false};
  std::mutex error_mutex;
  std::exception_ptr error;
  bool spin = true;
  int n_threads = 1;
  std::vector<std::jthread> workers;  // last: joined before the rest goes

  void work(int thread) noexcept;
  void run_chunk(const Job& current, int64_t i_chunk, int thread) noexcept;
  void worker(int thread) noexcept;
};

void ThreadPool::State::run_chunk(const Job& current, int64_t i_chunk, int thread) noexcept {
  const int64_t begin = i_chunk * current.chunk;
  const int64_t end = std::min(current.n, begin + current.chunk);
  try {
    for (int64_t i = begin; i < end && !failed.load(std::memory_order_relaxed); ++i)
      current.call(current.context, i, thread);
  } catch (...) {
    const std::lock_guard lock(error_mutex);
    if (!error) error = std::current_exception();
    failed.store(true, std::memory_order_relaxed);
  }
}

// Claims and runs chunks until none is left.
void ThreadPool::State::work(int thread) noexcept {
  uint64_t seen = claim.load(std::memory_order_acquire);
  while ((seen & UINT32_MAX) != 0) {
    if (!claim.compare_exchange_weak(seen, seen - 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
    const int64_t left = static_cast<int64_t>(seen & UINT32_MAX);
    run_chunk(job, job.n_chunks - left, thread);
    if (unfinished.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished.notify_all();
    seen = claim.load(std::memory_order_acquire);
  }
}

void ThreadPool::State::worker(int thread) noexcept {
  uint32_t seen = 0;
  for (;;) {
    seen = wait_for_change(wake, seen, spin);
    if (stop.load(std::memory_order_acquire)) return;
    work(thread);
  }
}

ThreadPool::ThreadPool(int n_threads, bool pin) : state_(std::make_unique<State>()) {
  if (n_threads < 1 || n_threads > kThreadsMax) {
    throw Error(Errc::bad_request, "a pool of " + std::to_string(n_threads) + " threads was asked for; 1 to " +
                                       std::to_string(kThreadsMax) + " are possible");
  }
  const std::vector<int> processors = allowed_processors();
  state_->n_threads = n_threads;
  state_->spin = static_cast<size_t>(n_threads) <= processors.size();  // spinning takes a processor from who has work
  state_->workers.reserve(static_cast<size_t>(n_threads - 1));
  for (int thread = 1; thread < n_threads; ++thread) {
    const int processor = pin ? processors[static_cast<size_t>(thread) % processors.size()] : -1;
    state_->workers.emplace_back([state = state_.get(), thread, processor] {
      if (processor >= 0) pin_to(processor);
      state->worker(thread);
    });
  }
}

ThreadPool::~ThreadPool() {
  state_->stop.store(true, std::memory_order_release);
  state_->wake.fetch_add(1);
  state_->wake.notify_all();
}

int ThreadPool::n_threads() const noexcept { return state_->n_threads; }

void ThreadPool::run_erased(int64_t n, Call call, void* context) {
  if (n <= 0) return;
  State& s = *state_;
  if (n == 1 || s.n_threads == 1) {
    for (int64_t i = 0; i < n; ++i) call(context, i, 0);
    return;
  }
  const int64_t chunk = std::max<int64_t>(1, n / (s.n_threads * kChunksPerThread));
  const int64_t n_chunks = (n + chunk - 1) / chunk;  // at most twice threads * kChunksPerThread
  s.job = {n, chunk, n_chunks, call, context};
  s.unfinished.store(static_cast<int32_t>(n_chunks), std::memory_order_relaxed);
  const uint64_t round = (s.claim.load(std::memory_order_relaxed) >> 32) + 1;
  s.claim.store(round << 32 | static_cast<uint64_t>(n_chunks), std::memory_order_release);
  s.wake.fetch_add(1);
  s.wake.notify_all();
  s.work(0);
  for (int32_t left = s.unfinished.load(std::memory_order_acquire); left != 0;) {
    left = wait_for_change(s.unfinished, left, s.spin);
  }
  if (s.failed.load(std::memory_order_relaxed)) {
    s.failed.store(false, std::memory_order_relaxed);
    std::rethrow_exception(std::exchange(s.error, nullptr));
  }
}

}  // namespace assay::base
