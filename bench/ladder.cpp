// One op from its plain text to its fastest kernel, for docs/design/ladder.md: a product of Q4_K
// weights, counted by instructions.
//   ladder STEP [TOKENS]     STEP: float, integer, gemv, tiles
// Prints the multiply-adds of one product. Run it under callgrind with
// --toggle-collect='*measured*': what that counts, by the multiply-adds printed, is the figure of
// the page. Every step but `float` gives the same bits, which is checked.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "linear_case.h"

namespace {

using assay::Kernels;

constexpr int64_t kColumns = 2048, kRows = 64;

void by_floats(const assay::backend::cpu::LinearTask& task) {  // decode a row, multiply, add
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t t = 0; t < task.n_tokens; ++t) {
      task.y(t, r) =
          assay::quant::dot_f32_ref(*task.format, task.weights + r * task.row_bytes, task.x_f32.row(t), task.k);
    }
  }
}

__attribute__((noinline)) void measured(std::string_view step, assay::bench::LinearCase& c) {
  if (step == "float") return by_floats(c.task);
  linear_rows(step == "integer" ? Kernels::reference : Kernels::avx2, c.task, 0, kRows, c.scratch.data());
}

assay::bench::LinearCase make(Kernels set, int64_t n_tokens) {
  return assay::bench::LinearCase(
      {assay::quant::find_format(assay::tensor::DType::Q4_K), set, n_tokens, 1, kColumns, kRows});
}

bool same_bits(const assay::bench::LinearCase& a, const assay::bench::LinearCase& b) {
  return a.y.size() == b.y.size() && std::memcmp(a.y.data(), b.y.data(), a.y.size() * sizeof(float)) == 0;
}

}  // namespace

int main(int n_arguments, char** arguments) {
  constexpr std::string_view kSteps[] = {"float", "integer", "gemv", "tiles"};
  const std::string_view step = n_arguments > 1 ? arguments[1] : "";
  if (std::find(std::begin(kSteps), std::end(kSteps), step) == std::end(kSteps)) {
    std::fprintf(stderr, "usage: ladder float|integer|gemv|tiles [TOKENS]\n");
    return 2;
  }
  const int64_t n_tokens = step != "tiles" ? 1 : n_arguments > 2 ? std::atoll(arguments[2]) : 128;
  if (n_tokens < 1) {
    std::fprintf(stderr, "ladder: at least one token is needed\n");
    return 2;
  }
  const bool fast = step == "gemv" || step == "tiles";
  if (fast && !assay::backend::cpu::can_run(Kernels::avx2)) {
    std::fprintf(stderr, "ladder: this processor has no AVX2 with FMA and F16C\n");
    return 1;
  }
  assay::bench::LinearCase c = make(fast ? Kernels::avx2 : Kernels::reference, n_tokens);
  measured(step, c);
  if (fast) {
    assay::bench::LinearCase plain = make(Kernels::reference, n_tokens);
    linear_rows(Kernels::reference, plain.task, 0, kRows, plain.scratch.data());
    if (!same_bits(c, plain)) {
      std::fprintf(stderr, "ladder: %s differs from the reference\n", std::string(step).c_str());
      return 1;
    }
  }
  std::printf("%lld\n", static_cast<long long>(n_tokens * kRows * kColumns));
}
