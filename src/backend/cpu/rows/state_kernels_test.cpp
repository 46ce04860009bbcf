// The kernels of ops that keep a state: the bits of the references, values and states, over ragged sizes, numbers from
// subnormal to infinite, and several tokens one after the other.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "backend/cpu/linear/linear.h"
#include "backend/cpu/sets/kernels.h"
#include "support/random_numbers.h"

namespace assay::backend::cpu {
namespace {

std::vector<float> numbers(int64_t n, uint64_t seed, float scale = 1.0f, bool extremes = false) {
  test::Random random(seed);
  std::vector<float> x;
  for (int64_t i = 0; i < n; ++i) x.push_back(random.normal() * scale);
  if (extremes && n > 3) x[static_cast<size_t>(n / 2)] = INFINITY, x[static_cast<size_t>(n / 3)] = 1e-41f, x[0] = -0.0f;
  return x;
}

std::vector<uint32_t> bits(const std::vector<float>& x) {
  std::vector<uint32_t> all;
  for (const float value : x)
    all.push_back(value != value ? 0x7FC00000u : std::bit_cast<uint32_t>(value));  // a NaN is a NaN
  return all;
}

class StateKernels : public ::testing::TestWithParam<Kernels> {
 protected:
  const KernelFunctions fast = make_kernels(GetParam()), reference = make_kernels(Kernels::reference);
};

TEST_P(StateKernels, CausalConv) {
  for (const int64_t kernel : {1, 2, 3, 4, 7, 64}) {
    for (const int64_t n : {1, 15, 16, 17, 31, 32}) {
      for (const bool has_bias : {false, true}) {
        const int64_t stride = 40, n_tokens = 9;
        const auto x = numbers(n_tokens * stride, 1, 1.0f, kernel == 3), w = numbers(n * kernel, 2),
                   bias = numbers(n, 3);
        std::vector<float> kept(static_cast<size_t>((kernel - 1) * ops::kConvColumns), 0.0f), kept_fast = kept;
        std::vector<float> y(x.size(), 0.0f), y_fast = y;
        for (const auto& part : {std::pair(0, 4), std::pair(4, 9)}) {
          const auto run = [&, begin = part.first, end = part.second](
                               const KernelFunctions& kernels, std::vector<float>& state, std::vector<float>& out) {
            kernels.causal_conv(x.data() + begin * stride, end - begin, stride, w.data(),
                                has_bias ? bias.data() : nullptr, kernel, n, state.data(), out.data() + begin * stride);
          };
          run(reference, kept, y), run(fast, kept_fast, y_fast);
        }
        EXPECT_EQ(bits(y), bits(y_fast)) << kernel << ", " << n;
        EXPECT_EQ(bits(kept), bits(kept_fast)) << kernel << ", " << n;
      }
    }
  }
}

TEST_P(StateKernels, DeltaRule) {
  for (const bool extremes : {false, true}) {
    for (const int64_t d_k : {1, 16, 33}) {
      for (const int64_t d_v : {1, 15, 16, 17, 48, 49, 64}) {
        for (const int64_t n_decay : {int64_t{1}, d_k}) {
          std::vector<float> s(static_cast<size_t>(d_k * d_v), 0.0f), s_fast = s;
          for (uint64_t token = 0; token < 5; ++token) {
            const auto q = numbers(d_k, token), k = numbers(d_k, token + 10, 0.2f),
                       v = numbers(d_v, token + 20, 1.0f, extremes && token == 3);
            auto decay = numbers(n_decay, token + 30);
            for (float& e : decay) e = 0.9f + 0.02f * e;
            std::vector<float> y(static_cast<size_t>(d_v)), y_fast = y;
            reference.delta_rule(q.data(), k.data(), v.data(), decay.data(), n_decay, 0.6f, d_k, d_v, s.data(),
                                 y.data());
            fast.delta_rule(q.data(), k.data(), v.data(), decay.data(), n_decay, 0.6f, d_k, d_v, s_fast.data(),
                            y_fast.data());
            EXPECT_EQ(bits(y), bits(y_fast)) << d_k << ", " << d_v << ", token " << token;
          }
          EXPECT_EQ(bits(s), bits(s_fast)) << d_k << ", " << d_v;
        }
      }
    }
  }
}

TEST_P(StateKernels, SelectiveScan) {
  for (const bool extremes : {false, true}) {
    for (const int64_t head_dim : {1, 5}) {
      for (const int64_t d_state : {1, 15, 16, 17, 32, 40, 64, 100}) {
        for (const bool by_state : {false, true}) {
          const int64_t n_a = by_state ? d_state : 1;
          auto a = numbers(n_a, 1);
          for (float& x : a) x = -1.0f - x * x;
          std::vector<float> h(static_cast<size_t>(head_dim * d_state), 0.0f), h_fast = h;
          for (uint64_t token = 0; token < 5; ++token) {
            const auto x = numbers(head_dim, token + 2, 1.0f, extremes && token == 3), b = numbers(d_state, token + 10),
                       c = numbers(d_state, token + 20);
            std::vector<float> y(static_cast<size_t>(head_dim)), y_fast = y;
            const ops::ScanToken one{
                x.data(), b.data(),       c.data(), a.data(), 0.1f + 0.1f * static_cast<float>(token),
                0.7f,     token % 2 == 0, n_a,      head_dim, d_state};
            reference.selective_scan(one, h.data(), y.data());
            fast.selective_scan(one, h_fast.data(), y_fast.data());
            EXPECT_EQ(bits(y), bits(y_fast)) << head_dim << ", " << d_state << ", token " << token;
          }
          EXPECT_EQ(bits(h), bits(h_fast)) << head_dim << ", " << d_state;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, StateKernels, ::testing::ValuesIn(kernel_sets()), [](const auto& set) {
  std::string text(name(set.param));
  for (char& c : text) c = c == '-' ? '_' : c;
  return text;
});

}  // namespace
}  // namespace assay::backend::cpu
