// Products of mode fast: the same bits for every number of tokens and by all kernels, close to the sums in double.
#include "backend/cuda/tiles/fast_linear.h"

#include <algorithm>

#include "backend/cuda/decode/decode.h"
#include "backend/cuda/kernels/decode_table.h"
#include "backend/cuda/kernels/limits.h"
#include "backend/cuda/rows/fused.h"
#include "backend/cuda/runtime/device_test.h"
#include "backend/cuda/runtime/this_card.h"
#include "num/f16.h"
#include "num/math.h"
#include "ops/rows/activation.h"
#include "support/random_weights.h"

namespace assay::backend::cuda {
namespace {

struct Matrices {
  tensor::DType dtype;
  int64_t rows, cols, n_tokens;
};

float widened(tensor::DType dtype, uint16_t bits) {
  return dtype == tensor::DType::F16 ? num::half_to_float(bits) : num::bf16_to_float(bits);
}
float rounded(tensor::DType dtype, float x) {
  return dtype == tensor::DType::F16 ? num::half_to_float(num::float_to_half(x))
                                     : num::bf16_to_float(num::float_to_bf16(x));
}

// Every output within what sums of that many terms in float32 can lose, truncated: sum |w x| * (K / 16 + 16) * 2^-23.
// Of large products every 13th row; bits of all are compared below.
void expect_close(const Matrices& m, const std::vector<uint16_t>& w, const std::vector<float>& x,
                  std::span<const float> bias, std::span<const float> y) {
  const int64_t step = m.rows * m.cols * m.n_tokens > 100'000'000 ? 13 : 1;
  for (int64_t t = 0; t < m.n_tokens; ++t) {
    for (int64_t r = 0; r < m.rows; r += step) {
      double sum = bias.empty() ? 0.0 : static_cast<double>(bias[static_cast<size_t>(r)]), size = std::abs(sum);
      for (int64_t j = 0; j < m.cols; ++j) {
        const double term = static_cast<double>(widened(m.dtype, w[static_cast<size_t>(r * m.cols + j)])) *
                            static_cast<double>(rounded(m.dtype, x[static_cast<size_t>(t * m.cols + j)]));
        sum += term;
        size += std::abs(term);
      }
      const double found = static_cast<double>(y[static_cast<size_t>(t * m.rows + r)]);
      ASSERT_LE(std::abs(found - sum), size * static_cast<double>(m.cols / 16 + 16) * 0x1p-23)
          << m.rows << " x " << m.cols << ", token " << t << " of " << m.n_tokens << ", row " << r;
    }
  }
}

// Calls check with every row of decode's table that takes such a matrix in mode fast on this card.
template <class Check>
void for_each_row(const Matrices& m, bool has_norm, Check&& check) {
  DecodeMatrix w{m.dtype, m.rows, m.cols};
  w.is_fast = true, w.has_norm = has_norm;
  const Card card = this_card();
  for (const DecodeRow& row : decode_table()) {
    if (takes(row, w, card)) check(row);
  }
}

// The kernels of one token give what fast_skinny gave for token 0, in two matrices, and where they are of one shape
// their gate.
void check_decode(const Matrices& m, const DeviceBuffer& w, const DeviceBuffer& x, const float* bias,
                  std::span<const float> expected, const DecodeRow& by) {
  for (const int64_t first : {m.rows / 3, m.rows / 2}) {
    Matrix matrices[2] = {{m.dtype, first, m.cols, {}}, {m.dtype, m.rows - first, m.cols, {}}};
    matrices[0].parts.base[0] = w.as<uint8_t>();
    matrices[1].parts.base[0] = w.as<uint8_t>() + first * m.cols * 2;
    const bool gated = 2 * first == m.rows;
    const DeviceBuffer y = poisoned(static_cast<size_t>(m.rows)), gate = poisoned(static_cast<size_t>(first) + 1);
    const LinearTask linears[2] = {{&matrices[0], bias, y.as<float>()},
                                   {&matrices[1], bias == nullptr ? nullptr : bias + first, y.as<float>() + first}};
    DecodeSource source;
    source.a = x.as<float>();
    source.d = static_cast<int32_t>(m.cols);
    decode_linears(by.kernel, source, std::span(linears).subspan(first == 0 ? 1 : 0),
                   {gated ? gate.as<float>() : nullptr, ops::ActivationFunction::silu}, 2, Queue());
    const std::vector<float> row(expected.begin(), expected.begin() + m.rows);
    EXPECT_TRUE(same_floats(download<float>(y.data(), row.size()), row))
        << m.rows << " x " << m.cols << ", " << by.name;
    if (!gated) continue;
    std::vector<float> product;
    for (size_t i = 0; i < static_cast<size_t>(first); ++i)
      product.push_back(num::silu(row[i]) * row[i + static_cast<size_t>(first)]);
    EXPECT_TRUE(same_floats(download<float>(gate.data(), product.size()), product))
        << m.rows << " x " << m.cols << ", " << by.name << ", gate";
  }
}

// A row that is made on the way, of two rows' sum and its norm, gives what the products of that row give.
void check_decode_of_norm(const Matrices& m, const DeviceBuffer& w, const DeviceBuffer& x, uint64_t seed,
                          const DecodeRow& by) {
  const auto width = static_cast<size_t>(m.cols), rows = static_cast<size_t>(m.rows);
  const DeviceBuffer added = upload(test::random_activations(m.cols, seed)),
                     norm = upload(test::random_activations(m.cols, seed + 1)), sum = poisoned(width),
                     normed = poisoned(width), own_sum = poisoned(width), own_normed = poisoned(width),
                     y = poisoned(rows), own_y = poisoned(rows);
  NormTask task;
  task.a = x.as<float>(), task.b = added.as<float>(), task.w = norm.as<float>();
  task.eps = 1e-5f;
  task.d = m.cols, task.n_rows = 1;
  task.sum = sum.as<float>(), task.y = normed.as<float>();
  norm_rows(OpKernel::norm_blocks, task, Queue());
  const FloatRows run{m.dtype, w.data(), m.rows, nullptr, y.as<float>(), m.rows};
  fast_skinny(std::span(&run, 1), 8, m.cols, normed.as<float>(), 1, Queue());
  Matrix matrix{m.dtype, m.rows, m.cols, {}};
  matrix.parts.base[0] = w.as<uint8_t>();
  const LinearTask linear{&matrix, nullptr, own_y.as<float>()};
  DecodeSource source;
  source.a = task.a, source.b = task.b, source.w = task.w;
  source.eps = task.eps;
  source.d = static_cast<int32_t>(m.cols);
  source.sum = own_sum.as<float>(), source.y = own_normed.as<float>();
  decode_linears(by.kernel, source, std::span(&linear, 1), {}, 2, Queue());
  const auto expect_same = [&](const DeviceBuffer& found, const DeviceBuffer& expected, size_t n, const char* what) {
    EXPECT_TRUE(same_floats(download<float>(found.data(), n), download<float>(expected.data(), n)))
        << m.rows << " x " << m.cols << ", " << by.name << ", " << what;
  };
  expect_same(own_sum, sum, width, "sum of rows");
  expect_same(own_normed, normed, width, "norm");
  expect_same(own_y, y, rows, "products");
}

void check(const Matrices& m, uint64_t seed) {
  const std::vector<float> floats = test::random_activations(m.rows * m.cols, seed),
                           x = test::random_activations(m.n_tokens * m.cols, seed + 1);
  std::vector<uint16_t> w;
  for (const float v : floats)
    w.push_back(m.dtype == tensor::DType::F16 ? num::float_to_half(v) : num::float_to_bf16(v));
  const std::vector<float> bias = test::random_activations(m.rows, seed + 2);
  const bool has_bias = m.rows % 2 == 1;
  const DeviceBuffer device_w = upload(w), device_x = upload(x), device_bias = upload(bias);
  DeviceBuffer halves(x.size() * 2, "a test");
  const size_t n = static_cast<size_t>(m.rows * m.n_tokens);
  // Two runs of rows, as of two matrices.
  const auto runs_of = [&](const DeviceBuffer& y) {
    const int64_t first = m.rows / 3;
    const float* b = has_bias ? device_bias.as<float>() : nullptr;
    return std::vector<FloatRows>{{m.dtype, device_w.data(), first, b, y.as<float>(), m.rows},
                                  {m.dtype, device_w.as<uint16_t>() + first * m.cols, m.rows - first,
                                   has_bias ? b + first : nullptr, y.as<float>() + first, m.rows}};
  };
  const DeviceBuffer few = poisoned(n), alone = poisoned(n), tiles = poisoned(n);
  fast_skinny(runs_of(few), 8, m.cols, device_x.as<float>(), m.n_tokens, Queue());
  const std::vector<float> expected = download<float>(few.data(), n);
  for (const int tile_tokens : {16, 32}) {
    const DeviceBuffer wide = poisoned(n);
    fast_skinny(runs_of(wide), tile_tokens, m.cols, device_x.as<float>(), m.n_tokens, Queue());
    EXPECT_TRUE(same_floats(download<float>(wide.data(), n), expected))
        << m.rows << " x " << m.cols << ", " << m.n_tokens << " tokens in tiles of " << tile_tokens;
  }
  expect_close(m, w, x, has_bias ? std::span<const float>(bias) : std::span<const float>(), expected);
  for (int64_t t = 0; t < m.n_tokens; ++t) {
    std::vector<FloatRows> runs = runs_of(alone);
    for (FloatRows& run : runs) run.y += t * m.rows;
    fast_skinny(runs, 8, m.cols, device_x.as<float>() + t * m.cols, 1, Queue());
  }
  EXPECT_TRUE(same_floats(download<float>(alone.data(), n), expected))
      << m.rows << " x " << m.cols << ", each of " << m.n_tokens << " tokens alone";
  for_each_row(m, false, [&](const DecodeRow& row) {
    check_decode(m, device_w, device_x, has_bias ? device_bias.as<float>() : nullptr, expected, row);
  });
  for_each_row(m, true, [&](const DecodeRow& row) {
    if (m.cols <= kNormWidthMax) check_decode_of_norm(m, device_w, device_x, seed + 3, row);
  });
  const HopperMemory hopper(true);
  if (hopper.view().n_processors == 0) return;
  round_to(m.dtype, device_x.as<float>(), m.n_tokens * m.cols, halves.data(), Queue());
  fast_tiles(runs_of(tiles), m.cols, halves.data(), m.n_tokens, hopper.view(), Queue());
  EXPECT_TRUE(same_floats(download<float>(tiles.data(), n), expected))
      << m.rows << " x " << m.cols << ", " << m.n_tokens << " tokens in tiles";
}

constexpr Matrices kMatrices[] = {
    {tensor::DType::F16, 3, 32, 1},      {tensor::DType::F16, 40, 96, 9},      {tensor::DType::F16, 129, 576, 17},
    {tensor::DType::F16, 300, 256, 65},  {tensor::DType::F16, 257, 2048, 130}, {tensor::DType::F16, 70, 1440, 33},
    {tensor::DType::F16, 520, 640, 140}, {tensor::DType::F16, 5000, 288, 2},   {tensor::DType::F16, 7000, 1024, 260},
    {tensor::DType::F16, 64, 11264, 1},  {tensor::DType::F16, 100, 16384, 3}};

class CudaFast : public testing::TestWithParam<Matrices> {};

TEST_P(CudaFast, ProductsHaveTheSameBitsForEveryBatch) {
  ASSAY_REQUIRE_GPU();
  for (const tensor::DType dtype : {tensor::DType::F16, tensor::DType::BF16}) {
    Matrices m = GetParam();
    m.dtype = dtype;
    check(m, 700 + static_cast<uint64_t>(m.rows + m.cols));
    if (HasFatalFailure()) return;
  }
}
INSTANTIATE_TEST_SUITE_P(Shapes, CudaFast, testing::ValuesIn(kMatrices), [](const auto& test) {
  return std::to_string(test.param.rows) + "x" + std::to_string(test.param.cols) + "x" +
         std::to_string(test.param.n_tokens);
});

}  // namespace
}  // namespace assay::backend::cuda
