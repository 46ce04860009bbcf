// Clocks that the products of one token take on a machine whose clock and neighbours change: each run stands between
// two chains of additions, of one clock each, and counts where both took as long. Prints clocks a step of 8 blocks, the
// least (the 2nd percentile) and the quartile, weights in cache.
// linear_clocks SET FORMAT...   e.g. linear_clocks avx2 Q4_K Q6_K
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string_view>
#include <vector>

#include "backend/cpu/linear/linear_thread.h"
#include "linear_case.h"

namespace {

using namespace assay;

constexpr int kChain = 16000, kRuns = 800;

double now() {
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Nanoseconds of kChain additions that wait for one another.
double chain() {
  const double begin = now();
  long x = 1;
  for (int i = 0; i < kChain; i += 8) {
#if defined(__aarch64__)
    asm volatile(".rept 8\nadd %0,%0,1\n.endr" : "+r"(x));
#else
    asm volatile(".rept 8\nadd $1,%0\n.endr" : "+r"(x));
#endif
  }
  return now() - begin;
}

void measure(const bench::LinearSetting& s) {
  bench::LinearCase c(s);
  const backend::cpu::LinearChoice choice(s.set, c.task);
  const backend::cpu::LinearRange& range = choice.at(s.tokens);
  backend::cpu::LinearThread thread(c.scratch.data());
  thread.rows(range, c.task, 0, s.rows);
  std::vector<double> clocks;
  for (int i = 0; i < kRuns; ++i) {
    const double before = chain(), begin = now();
    thread.rows(range, c.task, 0, s.rows);
    const double took = now() - begin, after = chain();
    if (std::abs(before - after) < 0.02 * before) clocks.push_back(took / (before + after) * 2 * kChain);
  }
  const tensor::DTypeTraits& traits = tensor::traits(s.format->dtype);
  std::printf("%-8.*s planes %d, %5d x %5d: ", static_cast<int>(traits.name.size()), traits.name.data(), s.planes,
              static_cast<int>(s.rows), static_cast<int>(s.k));
  if (clocks.size() < 50) {
    std::printf("the clock was not steady\n");
    return;
  }
  std::sort(clocks.begin(), clocks.end());
  const double steps = static_cast<double>(s.rows * s.k / traits.block_elements) / 8;
  std::printf("%7.1f %7.1f\n", clocks[clocks.size() / 50] / steps, clocks[clocks.size() / 4] / steps);
}

}  // namespace

int main(int argc, char** argv) {
  for (const Kernels set : backend::cpu::kernel_sets()) {
    if (argc < 2 || name(set) != argv[1]) continue;
    for (int i = 2; i < argc; ++i) {
      for (const quant::Format& format : quant::all_formats()) {
        if (tensor::traits(format.dtype).name != argv[i] || format.activation == quant::Activation::f32) continue;
        for (const int planes : {1, 2}) {
          for (const int64_t k : {2048, 5632}) measure({&format, set, 1, planes, k, k == 2048 ? 120 : 40});
        }
      }
    }
    return 0;
  }
  std::fprintf(
      stderr,
      "usage: linear_clocks SET FORMAT..., a set of this processor and formats with blocks, e.g. avx2 Q4_K Q6_K\n");
  return 2;
}
