// The kernels that work token by token against their references, by bits.
#include "backend/cuda/rows/row_kernels.h"

#include <limits>

#include "backend/cuda/rows/fused.h"
#include "backend/cuda/rows/plain_rows.h"
#include "backend/cuda/runtime/device_test.h"
#include "backend/cuda/runtime/device_weights.h"
#include "ops/attention/rope.h"
#include "ops/embed/embed.h"
#include "ops/linear/expert_sum.h"
#include "ops/rows/activation.h"
#include "ops/rows/gate.h"
#include "ops/rows/rms_norm.h"
#include "support/random_weights.h"

namespace assay::backend::cuda {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

// Rows in which every rule of section 1 finds work.
std::vector<float> hard_rows(int64_t n, uint64_t seed) {
  std::vector<float> x = test::random_activations(n, seed);
  test::Random random(seed + 1);
  for (int64_t block = 0; block < n / 32; ++block) {
    float* at = x.data() + 32 * block;
    switch (block % 9) {
      case 1: std::fill_n(at, 32, 0.0f); break;
      case 2: at[random.below(32)] = kNan; break;
      case 3: at[random.below(32)] = -kInf; break;
      case 4:
        for (int i = 0; i < 32; ++i) at[i] *= 0x1p-101f;
        break;
      case 5:
        for (int i = 0; i < 32; ++i) at[i] *= 0x1p-98f;
        break;
      case 6:
        for (int i = 0; i < 32; ++i) at[i] *= 0x1p120f;
        break;
      case 7:
        for (int i = 0; i < 32; ++i) at[i] = static_cast<float>(random.below(255) - 127) * 0.5f;
        break;
      default: break;
    }
  }
  return x;
}

TEST(CudaRows, QuantisedRowsHaveTheReferencesBits) {
  ASSAY_REQUIRE_GPU();
  for (const quant::Activation kind : {quant::Activation::a32, quant::Activation::a256}) {
    for (const int planes : {1, 2}) {
      for (const int64_t k : {256, 768, 2304}) {
        const int64_t n_rows = 5;
        std::vector<float> x = hard_rows(n_rows * k, 11);
        if (kind == quant::Activation::a256) {  // whole superblocks without poison too
          for (int64_t j = 0; j < 256; ++j) x[static_cast<size_t>(j)] = static_cast<float>(j - 100) * 0.01f;
        }
        const size_t bytes = quant::activations_bytes(kind, planes, n_rows, k);
        std::vector<std::byte> expected(bytes);
        const quant::Activations host = quant::carve(kind, planes, n_rows, k, expected.data());
        for (int64_t row = 0; row < n_rows; ++row) quant::quantise_row_ref(x.data() + row * k, host, row);
        const DeviceBuffer device_x = upload(x), memory = upload(std::vector<std::byte>(bytes));
        const quant::Activations device = quant::carve(kind, planes, n_rows, k, memory.data());
        quantise_rows(device_x.as<float>(), n_rows, device, nullptr);
        const std::vector<std::byte> found = download<std::byte>(memory.data(), bytes);
        const quant::Activations got = quant::carve(kind, planes, n_rows, k, const_cast<std::byte*>(found.data()));
        const auto n = static_cast<size_t>(n_rows * k);
        EXPECT_EQ(std::memcmp(got.q, host.q, n), 0) << "q";
        EXPECT_EQ(std::memcmp(got.q_sums, host.q_sums, 2 * n / static_cast<size_t>(host.group())), 0) << "sums of q";
        if (planes == 2) {
          EXPECT_EQ(std::memcmp(got.l, host.l, n), 0) << "l";
          EXPECT_EQ(std::memcmp(got.l_sums, host.l_sums, 2 * n / static_cast<size_t>(host.group())), 0) << "sums of l";
        }
        const auto n_blocks = n / static_cast<size_t>(host.block());
        EXPECT_TRUE(same_floats({got.d, n_blocks}, {host.d, n_blocks}));
      }
    }
  }
}

// Both layouts: the file's, and cut into parts; by every row of the table that takes them.
TEST(CudaRows, EveryFormatDecodes) {
  ASSAY_REQUIRE_GPU();
  for (const quant::Format& format : quant::all_formats()) {
    const int64_t rows = 7, cols = 768;
    const tensor::DTypeTraits& t = tensor::traits(format.dtype);
    const std::vector<std::byte> bytes = test::random_weights(format, rows * cols, 3);
    std::vector<float> expected(static_cast<size_t>(rows * cols));
    quant::decode_row(format, bytes.data(), rows * cols, expected.data());
    const DeviceBuffer file = upload(bytes);
    for (const bool whole : {true, false}) {
      const PartBytes parts = part_bytes(format.dtype, whole);
      Matrix m{format.dtype, rows, cols, {}};
      const DeviceBuffer cut(bytes.size() + 1024, "a test");
      m.parts.n = parts.n;
      size_t at = 0;
      for (int p = 0; p < parts.n; ++p) {
        m.parts.bytes[p] = parts.bytes[p];
        m.parts.base[p] = cut.as<uint8_t>() + at;
        at +=
            (bytes.size() / static_cast<size_t>(t.block_bytes) * static_cast<size_t>(parts.bytes[p]) + 255) / 256 * 256;
      }
      cut_blocks(file.as<uint8_t>(), rows * cols / t.block_elements, m.parts, nullptr);
      const std::vector<int32_t> tokens = {6, 0, 3};
      const DeviceBuffer ids = upload(tokens);
      std::vector<float> embedded(3 * 768);
      for (size_t i = 0; i < 3; ++i) {
        ops::embed_ref(format, bytes.data() + tokens[i] * cols / t.block_elements * t.block_bytes, cols, 1.7f,
                       embedded.data() + 768 * i);
      }
      int n_rows = 0;
      for (const UnpackRow& row : unpack_table()) {
        if (!row.takes({format.dtype, cols, parts.n > 1})) continue;
        ++n_rows;
        const DeviceBuffer y = poisoned(expected.size());
        decode_rows(row.kernel, m, 2, 4, y.as<float>(), nullptr);
        EXPECT_TRUE(same_floats(download<float>(y.data(), 4 * 768), std::span(expected).subspan(2 * 768, 4 * 768)))
            << row.name << ": " << t.name << whole;
        embed(row.kernel, m, ids.as<int32_t>(), 3, 1.7f, y.as<float>(), Queue());
        EXPECT_TRUE(same_floats(download<float>(y.data(), embedded.size()), embedded))
            << row.name << ": " << t.name << whole;
      }
      EXPECT_GE(n_rows, 1) << t.name << whole;
    }
  }
}

TEST(CudaRows, NormsHaveTheReferencesBits) {
  ASSAY_REQUIRE_GPU();
  for (const int64_t d : {1, 2, 31, 32, 33, 64, 100, 576, 640, 2048, 4099}) {
    const int64_t n_runs = 9;
    std::vector<float> x = test::random_activations(n_runs * d, 5), expected(x.size());
    x[0] = 0x1p-140f;
    if (d > 40) x[static_cast<size_t>(2 * d + 35)] = kInf, x[static_cast<size_t>(3 * d + 1)] = kNan;
    const std::vector<float> w = test::random_activations(d, 6);
    for (int64_t i = 0; i < n_runs; ++i)
      ops::rms_norm_ref(x.data() + i * d, w.data(), 1e-5f, d, expected.data() + i * d);
    const DeviceBuffer device_x = upload(x), device_w = upload(w), y = poisoned(x.size());
    rms_norm(device_x.as<float>(), device_w.as<float>(), 1e-5f, d, n_runs, y.as<float>(), nullptr);
    EXPECT_TRUE(same_floats(download<float>(y.data(), x.size()), expected)) << d;
    rms_norm(device_x.as<float>(), device_w.as<float>(), 1e-5f, d, n_runs, device_x.as<float>(), nullptr);
    EXPECT_TRUE(same_floats(download<float>(device_x.data(), x.size()), expected)) << d << " in place";
  }
}

TEST(CudaRows, RotationsHaveTheReferencesBits) {
  ASSAY_REQUIRE_GPU();
  for (const bool interleaved : {true, false}) {
    for (const int64_t dim : {0, 2, 48, 64}) {
      const int64_t head_dim = 64, n_heads = 3, n_tokens = 4, n_ctx = 50;
      ops::RopeSpec spec;
      spec.dim = dim;
      spec.interleaved = interleaved;
      for (int64_t i = 0; i < dim / 2; ++i) spec.inverse_frequency.push_back(1.0 / static_cast<double>(1 + i));
      std::vector<float> table(static_cast<size_t>(n_ctx * dim + 1));
      for (int64_t p = 0; p < n_ctx; ++p)
        ops::rope_angles(spec, p, table.data() + p * dim, table.data() + p * dim + dim / 2);
      const std::vector<int32_t> positions = {0, 7, 49, 8};
      const std::vector<float> x = test::random_activations(n_tokens * n_heads * head_dim, 8);
      std::vector<float> expected(x.size());
      for (int64_t t = 0; t < n_tokens; ++t) {
        const float* angles = table.data() + positions[static_cast<size_t>(t)] * dim;
        for (int64_t h = 0; h < n_heads; ++h) {
          const int64_t at = (t * n_heads + h) * head_dim;
          ops::rope_ref(x.data() + at, angles, angles + dim / 2, dim, interleaved, head_dim, expected.data() + at);
        }
      }
      const DeviceBuffer device_x = upload(x), device_table = upload(table), ids = upload(positions),
                         y = poisoned(x.size());
      rope(device_x.as<float>(), device_table.as<float>(), ids.as<int32_t>(), n_tokens,
           {n_heads, head_dim, dim, interleaved}, y.as<float>(), nullptr);
      EXPECT_TRUE(same_floats(download<float>(y.data(), x.size()), expected)) << dim << interleaved;
    }
  }
}

TEST(CudaRows, GatesAndSumsHaveTheReferencesBits) {
  ASSAY_REQUIRE_GPU();
  std::vector<float> gate_in, up;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 10007) {  // all magnitudes, infinities, NaNs
    gate_in.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
    up.push_back(bits % 3 == 0 ? 1.0f : std::bit_cast<float>(static_cast<uint32_t>(bits * 2654435761u)));
  }
  const auto n = static_cast<int64_t>(up.size());
  std::vector<float> expected(up.size());
  const DeviceBuffer device_gate = upload(gate_in), device_up = upload(up), y = poisoned(up.size());
  for (size_t i = 0; i < ops::kNActivationFunctions; ++i) {
    const auto function = static_cast<ops::ActivationFunction>(i);
    ops::gate_ref(function)(gate_in.data(), up.data(), n, expected.data());
    gate_any(device_gate.as<float>(), device_up.as<float>(), function, 1, n, y.as<float>(), Queue());
    EXPECT_TRUE(same_floats(download<float>(y.data(), up.size()), expected)) << ops::traits_of(function).name;
  }
  for (size_t i = 0; i < up.size(); ++i) expected[i] = gate_in[i] + up[i];
  add(device_gate.as<float>(), device_up.as<float>(), n, y.as<float>(), nullptr);
  EXPECT_TRUE(same_floats(download<float>(y.data(), up.size()), expected)) << "sum";
}

TEST(CudaRows, RowsAreSelected) {
  ASSAY_REQUIRE_GPU();
  const std::vector<float> x = test::random_activations(6 * 37, 9);
  const DeviceBuffer device_x = upload(x), rows = upload(std::vector<int32_t>{1, 4, 5}), y = poisoned(3 * 37);
  select_rows(device_x.as<float>(), rows.as<int32_t>(), 3, 37, y.as<float>(), nullptr);
  std::vector<float> expected;
  for (const int64_t row : {1, 4, 5}) expected.insert(expected.end(), x.begin() + row * 37, x.begin() + row * 37 + 37);
  EXPECT_TRUE(same_floats(download<float>(y.data(), expected.size()), expected));
}

// Few elements, and so many that a thread makes four; rows that are no whole fours.
TEST(CudaRows, SumsOfExpertsHaveTheReferencesBits) {
  ASSAY_REQUIRE_GPU();
  struct SumShape {
    int64_t n_tokens, n_used, d;
  };
  for (const SumShape& s : {SumShape{3, 2, 40}, SumShape{70, 8, 1024}, SumShape{70, 1, 1024}, SumShape{701, 3, 101}}) {
    const std::vector<float> x = hard_rows(s.n_tokens * s.n_used * s.d / 32 * 32 + 32, 31),
                             routes = test::random_activations(s.n_tokens * 2 * s.n_used, 32);
    const DeviceBuffer on_x = upload(x), on_routes = upload(routes);
    const auto n = static_cast<size_t>(s.n_tokens * s.d);
    for (const bool weighted : {false, true}) {
      std::vector<float> expected(n);
      for (int64_t t = 0; t < s.n_tokens; ++t) {
        ops::expert_sum_ref(x.data() + t * s.n_used * s.d, weighted ? routes.data() + t * 2 * s.n_used : nullptr,
                            s.n_used, s.d, expected.data() + t * s.d);
      }
      const DeviceBuffer y = poisoned(n);
      expert_sum(on_x.as<float>(), weighted ? on_routes.as<float>() : nullptr, s.n_used, s.d, s.n_tokens * s.d,
                 y.as<float>(), Queue());
      EXPECT_TRUE(same_floats(download<float>(y.data(), n), expected)) << s.n_tokens << " x " << s.d << weighted;
    }
  }
}

}  // namespace
}  // namespace assay::backend::cuda
