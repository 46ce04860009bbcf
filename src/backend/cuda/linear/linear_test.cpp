// Matrix products of every format against dot_ref and dot_f32_ref, by bits, over ragged shapes.
#include "backend/cuda/linear/linear.h"

#include <set>

#include "backend/cuda/kernels/linear_table.h"
#include "backend/cuda/linear/float_memory.h"
#include "backend/cuda/linear/float_skinny.h"
#include "backend/cuda/linear/launch_linear.h"
#include "backend/cuda/linear/matrix_test.h"
#include "backend/cuda/runtime/device_test.h"
#include "backend/cuda/runtime/this_card.h"
#include "ops/linear/linear.h"
#include "support/random_weights.h"

namespace assay::backend::cuda {
namespace {

struct Shape {
  int64_t rows, cols, n_tokens;
};
std::ostream& operator<<(std::ostream& out, const Shape& s) {
  return out << s.rows << " x " << s.cols << ", " << s.n_tokens << " tokens";
}

// Rows of x as integers, here and on the device.
struct Quantised {
  std::vector<std::byte> memory;
  quant::Activations host;
  DeviceBuffer device_memory;
  quant::Activations device;
  Quantised(quant::Activation kind, int planes, int64_t cols, const std::vector<float>& x) {
    const auto n_rows = static_cast<int64_t>(x.size()) / cols;
    memory.resize(quant::activations_bytes(kind, planes, n_rows, cols));
    host = quant::carve(kind, planes, n_rows, cols, memory.data());
    for (int64_t row = 0; row < n_rows; ++row) quant::quantise_row_ref(x.data() + row * cols, host, row);
    device_memory = upload(memory);
    device = quant::carve(kind, planes, n_rows, cols, device_memory.data());
  }
};

// Of batch tiles; nothing where the products have none.
BatchForm form_of(const LinearProducts& products, int64_t n_tokens, const Card& card) {
  return batch_form(products, n_tokens, card).value_or(BatchForm{});
}

// The table's rows on this card.
struct ThisLaunch {
  const Card card = this_card();
  const HopperMemory hopper{true};
  const Queue queue{nullptr, false, card.n_multiprocessors};
  Launching launching() const { return {card, hopper.view(), queue}; }
};
const LinearRow& row_of(std::string_view name) { return *find_linear_row(name); }

// The formats with kernels of their own.
bool has_tiles(tensor::DType dtype) { return part_bytes(dtype, false).n > 1; }

void check_quantised(const quant::Format& format, const Shape& shape, int planes, bool with_bias, uint64_t seed) {
  const std::vector<std::byte> bytes = test::random_weights(format, shape.rows * shape.cols, seed);
  std::vector<float> x = test::random_activations(shape.n_tokens * shape.cols, seed + 1);
  if (shape.n_tokens > 2) {
    x[static_cast<size_t>(shape.cols)] = std::numeric_limits<float>::quiet_NaN();
    std::fill_n(x.begin() + 2 * shape.cols, shape.cols / 2, 0.0f);
  }
  const std::vector<float> bias = test::random_activations(shape.rows, seed + 2);
  const quant::Activation kind = format.activation;
  const Quantised integers(kind, planes, shape.cols, x);
  const quant::Activations &host = integers.host, &device = integers.device;
  const int64_t row_bytes =
      shape.cols / tensor::traits(format.dtype).block_elements * tensor::traits(format.dtype).block_bytes;
  std::vector<float> expected;
  for (int64_t t = 0; t < shape.n_tokens; ++t) {
    for (int64_t r = 0; r < shape.rows; ++r) {
      expected.push_back(ops::linear_ref(format, bytes.data() + r * row_bytes, host, t,
                                         with_bias ? &bias[static_cast<size_t>(r)] : nullptr));
    }
  }
  const Uploaded w = lay(format.dtype, shape.rows, shape.cols, bytes, false);
  const DeviceBuffer device_bias = upload(bias);
  const float* b = with_bias ? device_bias.as<float>() : nullptr;
  const auto where = [&] {
    return ::testing::Message() << tensor::traits(format.dtype).name << " " << shape << ", planes " << planes;
  };
  // Every row of the table that takes the product, whatever number of tokens it is chosen for.
  const ThisLaunch here;
  const LinearMatrix matrix = as_linear_matrix(w.matrix);
  const LinearProducts products{std::span(&matrix, 1), kind, planes, shape.cols};
  std::set<std::string_view> ran;
  for (const LinearRow& row : linear_table()) {
    if (row.tokens_max == kBatchTokensMax && shape.n_tokens > kBatchTokensMax) continue;
    if (!row.takes(products, shape.n_tokens, here.card)) continue;
    const DeviceBuffer y = poisoned(expected.size());
    const LinearTask task{&w.matrix, b, y.as<float>()};
    launch_linears(row, form_of(products, shape.n_tokens, here.card), std::span(&task, 1), device, shape.n_tokens,
                   here.launching());
    EXPECT_TRUE(same_floats(download<float>(y.data(), expected.size()), expected)) << where() << ", " << row.name;
    ran.insert(row.name);
  }
  EXPECT_TRUE(ran.contains("any format")) << where();
  EXPECT_EQ(ran.contains("vector"), has_tiles(format.dtype)) << where();
  EXPECT_EQ(ran.contains("group tiles"), has_tiles(format.dtype) && here.card.has_groups()) << where();
}

TEST(CudaLinear, QuantisedProductsHaveTheReferencesBits) {
  ASSAY_REQUIRE_GPU();
  uint64_t seed = 100;
  for (const quant::Format& format : quant::all_formats()) {
    if (format.activation == quant::Activation::f32) continue;
    const int64_t block = format.activation == quant::Activation::a256 ? 256 : 32;
    for (const int planes : {1, 2}) {
      for (const Shape& shape : {Shape{1, block, 1}, Shape{33, 3 * block, 2}, Shape{40, 9 * block, 9},
                                 Shape{70, 22 * block, 17}, Shape{17, 8 * block, 1}, Shape{5, 18 * block, 70},
                                 Shape{129, 5 * block, 130}, Shape{130, 64 * 32 / block * block, 3}}) {
        check_quantised(format, shape, planes, shape.rows % 2 == 1, ++seed);
        if (HasFailure()) return;
      }
    }
  }
}

TEST(CudaLinear, TilesHaveTheReferencesBitsAtEveryEdge) {
  ASSAY_REQUIRE_GPU();
  uint64_t seed = 300;
  for (const quant::Format& format : quant::all_formats()) {
    if (!has_tiles(format.dtype)) continue;
    const int64_t block = format.activation == quant::Activation::a256 ? 256 : 32;
    for (const int planes : {1, 2}) {
      for (int64_t n_tokens = 1; n_tokens <= 17; ++n_tokens)
        check_quantised(format, {n_tokens + 2, 2 * block, n_tokens}, planes, false, ++seed);
      for (const Shape& shape : {Shape{129, 8 * block, 63}, Shape{128, 5 * block, 64}, Shape{7, 18 * block, 65},
                                 Shape{300, 7 * block, 200}, Shape{257, 17 * block, 129}}) {
        check_quantised(format, shape, planes, shape.rows % 2 == 1, ++seed);
        if (HasFailure()) return;
      }
    }
  }
}

// Clusters of every size (more rows, fewer blocks that share K), rows left over, tokens of every number of columns;
// chunks that end within a line of four blocks of 32.
TEST(CudaLinear, SeveralTokensHaveTheReferencesBits) {
  ASSAY_REQUIRE_GPU();
  uint64_t seed = 700;
  for (const quant::Format& format : quant::all_formats()) {
    if (!has_tiles(format.dtype)) continue;
    for (const int planes : {1, 2}) {
      for (const Shape& shape :
           {Shape{32, 7 * 256, 1}, Shape{33, 8 * 256, 8}, Shape{47, 256, 9}, Shape{100, 9 * 256, 16},
            Shape{65, 22 * 256, 17}, Shape{300, 16 * 256, 33}, Shape{64, 3 * 256, 128}, Shape{16390, 256, 3},
            Shape{8199, 512, 5}, Shape{4100, 768, 12}, Shape{8200, 256, 20}, Shape{4111, 2 * 256, 24},
            Shape{40, 120 * 256, 20}, Shape{200, 2048, 256}}) {
        check_quantised(format, shape, planes, shape.rows % 2 == 1, ++seed);
        if (HasFailure()) return;
      }
    }
    if (format.activation == quant::Activation::a256) continue;
    for (const int64_t n_blocks : {1, 3, 7, 8, 11, 18, 20, 45, 77}) {
      for (const int planes : {1, 2}) {
        check_quantised(format, {64, 32 * n_blocks, 7}, planes, false, ++seed);
        check_quantised(format, {33, 32 * n_blocks, 40}, planes, true, ++seed);
        if (HasFailure()) return;
      }
    }
  }
}

// More tiles than multiprocessors, and those left over split into two, four and eight parts.
TEST(CudaLinear, SplitTilesHaveTheReferencesBits) {
  ASSAY_REQUIRE_GPU();
  uint64_t seed = 800;
  for (const tensor::DType dtype : {tensor::DType::Q4_K, tensor::DType::Q6_K}) {
    for (const Shape& shape :
         {Shape{17000, 4 * 256, 32}, Shape{7680, 8 * 256, 32}, Shape{3801, 8 * 256, 33}, Shape{129, 22 * 256, 70},
          Shape{140, 3 * 256, 70}, Shape{150, 6 * 256, 40}, Shape{9000, 5 * 256, 100}}) {
      check_quantised(*quant::find_format(dtype), shape, 2, shape.rows % 2 == 1, ++seed);
      if (HasFailure()) return;
    }
  }
}

// Blocks of threads that take tile after tile, the last ones ragged: the sums of one tile and the outputs of the one
// before share a place.
TEST(CudaLinear, TileAfterTileHasTheBitsOfOtherKernels) {
  ASSAY_REQUIRE_GPU();
  const ThisLaunch here;
  if (!here.card.has_groups()) GTEST_SKIP() << "no Hopper";
  uint64_t seed = 900;
  for (const tensor::DType dtype :
       {tensor::DType::Q4_K, tensor::DType::Q5_K, tensor::DType::Q6_K, tensor::DType::Q8_0}) {
    const quant::Format& format = *quant::find_format(dtype);
    for (const int planes : {1, 2}) {
      for (const Shape& shape : {Shape{4612, 8 * 256, 1100}, Shape{4612, 11 * 256, 1100}, Shape{4610, 5 * 256, 1100}}) {
        const Uploaded w =
            lay(dtype, shape.rows, shape.cols, test::random_weights(format, shape.rows * shape.cols, ++seed), false);
        const std::vector<float> x = test::random_activations(shape.n_tokens * shape.cols, ++seed);
        const Quantised integers(format.activation, planes, shape.cols, x);
        const auto n = static_cast<size_t>(shape.rows * shape.n_tokens);
        const DeviceBuffer expected = poisoned(n), found = poisoned(n);
        const LinearTask reference{&w.matrix, nullptr, expected.as<float>()},
            task{&w.matrix, nullptr, found.as<float>()};
        launch_linears(row_of("tiles"), {}, std::span(&reference, 1), integers.device, shape.n_tokens,
                       here.launching());
        launch_linears(row_of("group tiles"), {}, std::span(&task, 1), integers.device, shape.n_tokens,
                       here.launching());
        EXPECT_TRUE(same_floats(download<float>(found.data(), n), download<float>(expected.data(), n)))
            << tensor::traits(dtype).name << " " << shape << ", planes " << planes;
      }
    }
  }
}

// Matrices of two formats in one product.
TEST(CudaLinear, SeveralTokensTimesTwoFormats) {
  ASSAY_REQUIRE_GPU();
  const ThisLaunch here;
  uint64_t seed = 1000;
  using tensor::DType;
  for (const auto& [a, b] : {std::pair(DType::Q4_K, DType::Q6_K), std::pair(DType::Q6_K, DType::Q5_K),
                             std::pair(DType::Q4_1, DType::Q8_0)}) {
    for (const int planes : {1, 2}) {
      for (const Shape& shape :
           {Shape{70, 2048, 5}, Shape{300, 9 * 256, 20}, Shape{300, 2048, 33}, Shape{130, 11 * 256, 100}}) {
        const quant::Activation kind = quant::find_format(a)->activation;
        const std::vector<float> x = test::random_activations(shape.n_tokens * shape.cols, ++seed);
        const Quantised integers(kind, planes, shape.cols, x);
        const quant::Activations &host = integers.host, &device = integers.device;
        std::vector<Uploaded> weights;
        std::vector<DeviceBuffer> y;
        std::vector<std::vector<float>> expected(2);
        for (const DType dtype : {a, b}) {
          const quant::Format& format = *quant::find_format(dtype);
          const std::vector<std::byte> bytes = test::random_weights(format, shape.rows * shape.cols, ++seed);
          const int64_t row_bytes = static_cast<int64_t>(bytes.size()) / shape.rows;
          std::vector<float>& of_format = expected[weights.size()];
          for (int64_t t = 0; t < shape.n_tokens; ++t) {
            for (int64_t r = 0; r < shape.rows; ++r)
              of_format.push_back(ops::linear_ref(format, bytes.data() + r * row_bytes, host, t, nullptr));
          }
          weights.push_back(lay(dtype, shape.rows, shape.cols, bytes, false));
          y.push_back(poisoned(of_format.size()));
        }
        const LinearTask tasks[] = {{&weights[0].matrix, nullptr, y[0].as<float>()},
                                    {&weights[1].matrix, nullptr, y[1].as<float>()}};
        const LinearMatrix matrices[] = {as_linear_matrix(weights[0].matrix), as_linear_matrix(weights[1].matrix)};
        for (const LinearRow& row : linear_table()) {
          if (!row.takes({matrices, kind, planes, shape.cols}, shape.n_tokens, here.card)) continue;
          launch_linears(row, form_of({matrices, kind, planes, shape.cols}, shape.n_tokens, here.card), tasks, device,
                         shape.n_tokens, here.launching());
          for (size_t i = 0; i < 2; ++i) {
            EXPECT_TRUE(same_floats(download<float>(y[i].data(), expected[i].size()), expected[i]))
                << row.name << ", matrix " << i << ", " << shape << ", planes " << planes;
            check(cudaMemset(y[i].data(), 0xA5, expected[i].size() * sizeof(float)), "poisoning test memory");
          }
        }
        if (HasFailure()) return;
      }
    }
  }
}

// Several matrices at once, and integers as large as they become.
TEST(CudaLinear, TilesOfSeveralMatrices) {
  ASSAY_REQUIRE_GPU();
  constexpr int64_t kTokens = 70, kCols = 512;
  const quant::Format& format = *quant::find_format(tensor::DType::Q4_K);
  std::vector<std::byte> memory(quant::activations_bytes(format.activation, 2, kTokens, kCols));
  const quant::Activations host = quant::carve(format.activation, 2, kTokens, kCols, memory.data());
  for (int64_t t = 0; t < kTokens; ++t) {
    std::vector<float> x(kCols, t % 2 == 0 ? 1.0f : -1.0f);
    quant::quantise_row_ref(x.data(), host, t);
  }
  const DeviceBuffer device_memory = upload(memory);
  const quant::Activations device = quant::carve(format.activation, 2, kTokens, kCols, device_memory.data());
  std::vector<Uploaded> weights;
  std::vector<DeviceBuffer> y;
  std::vector<std::vector<float>> expected;
  std::vector<LinearTask> tasks;
  for (const int64_t rows : {130, 1, 64}) {
    std::vector<std::byte> bytes = test::random_weights(format, rows * kCols, 900 + static_cast<uint64_t>(rows));
    for (size_t i = 0; rows == 1 && i < bytes.size(); ++i) {  // every bit of the weights, scales and minima is set
      if (i % 144 >= 4) bytes[i] = std::byte{0xFF};
    }
    expected.emplace_back();
    for (int64_t t = 0; t < kTokens; ++t) {
      for (int64_t r = 0; r < rows; ++r)
        expected.back().push_back(ops::linear_ref(format, bytes.data() + r * 288, host, t, nullptr));
    }
    weights.push_back(lay(format.dtype, rows, kCols, bytes, false));
    y.push_back(poisoned(expected.back().size()));
  }
  for (size_t i = 0; i < weights.size(); ++i) tasks.push_back({&weights[i].matrix, nullptr, y[i].as<float>()});
  const ThisLaunch here;
  const auto check_rows = [&](std::vector<size_t> which) {
    std::vector<LinearTask> some;
    std::vector<LinearMatrix> matrices;
    for (const size_t i : which) some.push_back(tasks[i]), matrices.push_back(as_linear_matrix(*tasks[i].w));
    std::set<std::string_view> ran;
    for (const LinearRow& row : linear_table()) {
      if (!row.takes({matrices, format.activation, 2, kCols}, kTokens, here.card)) continue;
      launch_linears(row, form_of({matrices, format.activation, 2, kCols}, kTokens, here.card), some, device, kTokens,
                     here.launching());
      for (const size_t i : which) {
        EXPECT_TRUE(same_floats(download<float>(y[i].data(), expected[i].size()), expected[i]))
            << row.name << ", matrix " << i;
        check(cudaMemset(y[i].data(), 0xA5, expected[i].size() * sizeof(float)), "poisoning test memory");
      }
      ran.insert(row.name);
    }
    return ran;
  };
  EXPECT_EQ(check_rows({0, 2}).contains("batch tiles"), here.card.has_groups());
  EXPECT_FALSE(check_rows({0, 1, 2}).contains("batch tiles")) << "they want 32 rows";
}

// One float matrix against linear_f32_ref, by every kernel that serves the shape.
void check_floats(tensor::DType dtype, const Shape& shape, uint64_t seed) {
  const quant::Format& format = *quant::find_format(dtype);
  const std::vector<std::byte> bytes = test::random_weights(format, shape.rows * shape.cols, seed);
  std::vector<float> x = test::random_activations(shape.n_tokens * shape.cols, seed + 1);
  if (shape.n_tokens > 2) x[static_cast<size_t>(shape.cols)] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> bias = test::random_activations(shape.rows, seed + 2);
  const bool has_bias = shape.rows % 2 == 1;
  const int64_t row_bytes = shape.cols * tensor::traits(dtype).block_bytes;
  std::vector<float> expected;
  for (int64_t t = 0; t < shape.n_tokens; ++t) {
    for (int64_t r = 0; r < shape.rows; ++r) {
      const float* b = has_bias ? &bias[static_cast<size_t>(r)] : nullptr;
      expected.push_back(
          ops::linear_f32_ref(format, bytes.data() + r * row_bytes, x.data() + t * shape.cols, shape.cols, b));
    }
  }
  const Uploaded w = lay(dtype, shape.rows, shape.cols, bytes, true);
  const DeviceBuffer device_x = upload(x), device_bias = upload(bias);
  const Card card = this_card();
  const FloatNeed need{256, shape.cols};  // fewer rows than some shapes have: in parts
  const FloatMemory memory(std::span(&need, 1), std::max(shape.n_tokens, kFloatSkinnyTokensMax + 1));
  // Every row of the table that takes the matrix, whatever number of tokens it is chosen for.
  for (const FloatRow& row : float_table()) {
    if (!takes(row, {{dtype, shape.rows, false}, shape.cols, false, true}, card)) continue;
    const DeviceBuffer y = poisoned(expected.size());
    const FloatRows rows{dtype,         w.matrix.parts.base[0],
                         shape.rows,    has_bias ? device_bias.as<float>() : nullptr,
                         y.as<float>(), shape.rows};
    if (row.kernel == FloatKernel::any) linear_float(rows, shape.cols, device_x.as<float>(), shape.n_tokens, nullptr);
    if (row.kernel == FloatKernel::skinny)
      linear_float_skinny(rows, row.form, shape.cols, device_x.as<float>(), shape.n_tokens, Queue());
    if (row.kernel == FloatKernel::tiles) {
      FloatTiles tiles(memory.view(), row.form.tokens, shape.cols, device_x.as<float>(), shape.n_tokens, Queue());
      FloatRows first = rows, rest = rows;  // two runs where there are two rows
      first.n_rows = rows.n_rows / 2;
      rest.n_rows -= first.n_rows;
      rest.w = static_cast<const std::byte*>(rows.w) + first.n_rows * row_bytes;
      rest.y += first.n_rows;
      rest.bias = rows.bias == nullptr ? nullptr : rows.bias + first.n_rows;
      tiles.add(first);
      tiles.add(rest);
      tiles.finish();
    }
    EXPECT_TRUE(same_floats(download<float>(y.data(), expected.size()), expected))
        << row.name << ": " << tensor::traits(dtype).name << " " << shape;
  }
}

TEST(CudaLinear, FloatProductsHaveTheReferencesBits) {
  ASSAY_REQUIRE_GPU();
  uint64_t seed = 500;
  for (const tensor::DType dtype : {tensor::DType::F32, tensor::DType::F16, tensor::DType::BF16}) {
    for (const Shape& shape :
         {Shape{1, 1, 1}, Shape{3, 31, 2}, Shape{9, 33, 1}, Shape{5, 100, 7}, Shape{33, 576, 1}, Shape{66, 640, 9},
          Shape{4, 2056, 4}, Shape{17, 24, 3}, Shape{16, 32, 2}, Shape{130, 256, 65}, Shape{257, 576, 70},
          Shape{300, 2048, 64}, Shape{65, 5632, 5}, Shape{19, 3168, 130}, Shape{700, 256, 3}}) {
      check_floats(dtype, shape, seed += 3);
    }
  }
}

}  // namespace
}  // namespace assay::backend::cuda
