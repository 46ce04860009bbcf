// Quantised weights in mode fast: decoded to the halves that the format's own decoding rounds to, and multiplied to the
// bits of a matrix of those halves, by every kernel and wherever the rows are cut.
#include "backend/cuda/tiles/fast_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "backend/cuda/kernels/float_table.h"
#include "backend/cuda/kernels/unpack_table.h"
#include "backend/cuda/linear/matrix_test.h"
#include "backend/cuda/runtime/device_state.h"
#include "backend/cuda/runtime/device_test.h"
#include "backend/cuda/runtime/run_fast.h"
#include "backend/cuda/runtime/this_card.h"
#include "num/f16.h"
#include "quant/format.h"
#include "support/random_weights.h"
#include "support/tiny_plan.h"

namespace assay::backend::cuda {
namespace {

std::vector<const quant::Format*> block_formats() {
  std::vector<const quant::Format*> formats;
  for (const quant::Format& format : quant::all_formats()) {
    if (format.activation != quant::Activation::f32) formats.push_back(&format);
  }
  return formats;
}

// A matrix as blocks and as the halves that it stands for.
struct Blocks {
  Uploaded blocks;
  std::vector<uint16_t> halves;
  DeviceBuffer device_halves;

  Blocks(tensor::DType dtype, int64_t rows, int64_t cols, uint64_t seed) {
    const quant::Format& format = *quant::find_format(dtype);
    const std::vector<std::byte> bytes = test::random_weights(format, rows * cols, seed);
    std::vector<float> floats(static_cast<size_t>(rows * cols));
    quant::decode_row(format, bytes.data(), rows * cols, floats.data());
    for (const float x : floats) halves.push_back(num::float_to_half(x));
    blocks = lay(dtype, rows, cols, bytes, false);
    device_halves = upload(halves);
  }
  FloatRows as_halves(const float* bias, float* y) const {
    const Matrix& m = blocks.matrix;
    return {tensor::DType::F16, device_halves.data(), m.rows, bias, y, m.rows};
  }
};

// By every row of the table that takes the matrix.
void check_halves(const Blocks& b) {
  const Matrix& m = b.blocks.matrix;
  for (const UnpackRow& row : unpack_table()) {
    if (!row.takes({m.dtype, m.cols, m.parts.n > 1})) continue;
    for (const int64_t begin : {int64_t{0}, m.rows / 3}) {
      const auto n = static_cast<size_t>((m.rows - begin) * m.cols);
      const DeviceBuffer found = poisoned(n / 2);
      blocks_to_halves(row.kernel, m, begin, m.rows - begin, found.data(), Queue());
      const auto* expected = b.halves.data() + begin * m.cols;
      EXPECT_EQ(download<uint16_t>(found.data(), n), std::vector<uint16_t>(expected, expected + n))
          << row.name << ": " << m.rows << " x " << m.cols << " from row " << begin;
    }
  }
}

void check_skinny(const Blocks& a, const Blocks& b, uint64_t seed) {
  const int64_t cols = a.blocks.matrix.cols, rows_a = a.blocks.matrix.rows, rows_b = b.blocks.matrix.rows;
  if (a.blocks.matrix.parts.n < 2) return;
  const DeviceBuffer bias = upload(test::random_activations(rows_a, seed));
  for (const int64_t n : {1, 2, 8, 11, 17, 40}) {
    const DeviceBuffer x = upload(test::random_activations(n * cols, seed + static_cast<uint64_t>(n)));
    const auto size_a = static_cast<size_t>(rows_a * n), size_b = static_cast<size_t>(rows_b * n);
    const DeviceBuffer found_a = poisoned(size_a), found_b = poisoned(size_b), expected_a = poisoned(size_a),
                       expected_b = poisoned(size_b);
    const LinearTask tasks[] = {{&a.blocks.matrix, bias.as<float>(), found_a.as<float>()},
                                {&b.blocks.matrix, nullptr, found_b.as<float>()}};
    const FloatRows rows[] = {a.as_halves(bias.as<float>(), expected_a.as<float>()),
                              b.as_halves(nullptr, expected_b.as<float>())};
    fast_skinny(rows, 8, cols, x.as<float>(), n, Queue());
    const FloatProduct product{{a.blocks.matrix.dtype, rows_a, true}, cols, true, false};
    for (const FloatRow& row : float_table()) {
      if (row.kernel != FloatKernel::fast_skinny_of_blocks || !takes(row, product, this_card())) continue;
      if (row.form.tokens == 1 && n > 1) continue;
      check(cudaMemset(found_a.data(), 0xFF, found_a.size()), "poisoning test memory");
      check(cudaMemset(found_b.data(), 0xFF, found_b.size()), "poisoning test memory");
      fast_skinny_blocks(tasks, row.form.tokens, x.as<float>(), n, Queue());
      EXPECT_TRUE(same_floats(download<float>(found_a.data(), size_a), download<float>(expected_a.data(), size_a)))
          << row.name << ": " << cols << " columns, " << n;
      EXPECT_TRUE(same_floats(download<float>(found_b.data(), size_b), download<float>(expected_b.data(), size_b)))
          << row.name << ": " << cols << " columns, " << n;
    }
  }
}

TEST(CudaFastBlocks, AreMultipliedAsTheHalvesTheyDecodeTo) {
  ASSAY_REQUIRE_GPU();
  for (const quant::Format* format : block_formats()) {
    SCOPED_TRACE(tensor::traits(format->dtype).name);
    const int64_t block = tensor::traits(format->dtype).block_elements;
    // A block, chunks of no block, chunks that end within a stage or a superblock, and whole ones.
    for (const int64_t n_blocks : {1, 3, 6, 22, 32}) {
      if (n_blocks == 32 && block == 256) continue;
      const Blocks a(format->dtype, 37, n_blocks * block, 100 + static_cast<uint64_t>(n_blocks)),
          b(format->dtype, 80, n_blocks * block, 200);
      check_halves(a);
      check_skinny(a, b, 300);
    }
  }
}

TEST(CudaFastBlocks, WideRowsHaveTheSameBits) {
  ASSAY_REQUIRE_GPU();
  for (const tensor::DType dtype : {tensor::DType::Q4_K, tensor::DType::Q8_0}) {
    const Blocks a(dtype, 5000, 1024, 1), b(dtype, 16, 1024, 2);  // more tiles than blocks of threads
    check_skinny(a, b, 3);
  }
}

// However little memory the halves have.
TEST(CudaFastBlocks, CutsChangeNoBit) {
  ASSAY_REQUIRE_GPU();
  constexpr int64_t kCols = 512, kTokens = 130;
  test::TinyShape shape;
  shape.dtype = tensor::DType::Q4_K;
  shape.d_model = kCols, shape.d_ff = 768;
  shape.n_heads = 8, shape.n_kv_heads = 4, shape.head_dim = 64;
  const test::TinyPlan tiny(shape);
  ops::ExecutorOptions options;
  options.n_ctx = 256, options.n_batch_max = 200;
  options.fast = true, options.halves = true;
  DeviceState state(tiny.plan, options, {});
  const Blocks parts[] = {{tensor::DType::Q4_K, 2500, kCols, 1},
                          {tensor::DType::Q6_K, 300, kCols, 2},
                          {tensor::DType::IQ4_XS, 70, kCols, 3}};
  const Blocks floats(tensor::DType::Q8_0, 50, kCols, 4);  // given as the halves
  Matrix f16{tensor::DType::F16, 50, kCols, {}};
  f16.parts.base[0] = floats.device_halves.as<uint8_t>();
  const DeviceBuffer x = upload(test::random_activations(kTokens * kCols, 5)),
                     bias = upload(test::random_activations(2500, 6));
  const auto result = [&](bool in_tiles, size_t bytes) {
    state.halves = DeviceBuffer(bytes, "a test");
    std::vector<float> all;
    std::vector<DeviceBuffer> y;
    for (const int64_t rows : {2500, 300, 70, 50}) y.push_back(poisoned(static_cast<size_t>(rows * kTokens)));
    check(cudaDeviceSynchronize(), "poisoning");  // the state has a stream of its own
    const Matrix* const matrices[] = {&parts[0].blocks.matrix, &parts[1].blocks.matrix, &parts[2].blocks.matrix, &f16};
    std::vector<FastLinear> tasks;
    for (size_t i = 0; i < 4; ++i) {
      const Matrix& w = *matrices[i];
      const FloatChoice choice({{w.dtype, w.rows, w.parts.n > 1}, kCols, true, true}, state.card);
      const FloatRow& row = choice.at(in_tiles ? kTokens : kFastSkinnyTokensMax);
      const UnpackKernel unpacker = find_unpack_row({w.dtype, kCols, w.parts.n > 1}).kernel;
      tasks.push_back({{&w, i == 0 ? bias.as<float>() : nullptr, y[i].as<float>()}, &row, unpacker});
    }
    run_fast_linears(state, {tensor::DType::F16, x.as<float>(), kCols, kTokens, in_tiles, false}, tasks,
                     Queue(state.stream.get()));
    state.stream.wait();
    for (const DeviceBuffer& buffer : y) {
      const std::vector<float> part = download<float>(buffer.data(), buffer.size() / sizeof(float));
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  };
  const std::vector<float> expected = result(false, 1 << 20);
  EXPECT_TRUE(same_floats(result(false, 16 << 10), expected)) << "few tokens' kernel";
  if (state.hopper.view().n_processors == 0) return;
  for (const size_t kib : {size_t{16}, size_t{100}, size_t{1100}, size_t{2600}, size_t{4096}}) {
    EXPECT_TRUE(same_floats(result(true, kib << 10), expected)) << kib << " KiB";
  }
}

}  // namespace
}  // namespace assay::backend::cuda
