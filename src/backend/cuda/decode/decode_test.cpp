// The products of decode by bits against linear_ref and linear_f32_ref: every format it serves, rows and chunks of
// every raggedness, several matrices of different formats at once, the row made with and without a norm, the gate.
#include "backend/cuda/decode/decode.h"

#include "backend/cuda/linear/matrix_test.h"
#include "backend/cuda/runtime/device_test.h"
#include "backend/cuda/runtime/this_card.h"
#include "num/math.h"
#include "ops/linear/linear.h"
#include "ops/rows/activation.h"
#include "ops/rows/rms_norm.h"
#include "quant/format.h"
#include "support/random_weights.h"

namespace assay::backend::cuda {
namespace {

using tensor::DType;

struct Case {
  std::vector<DType> dtypes;
  std::vector<int64_t> rows;
  int64_t cols;
  int planes;
  bool norm = false, pre_norm = false, gate = false, poison = false;
  int processors = 132;  // that the kernel counts on: with few its warps take many rows in turn
};
std::ostream& operator<<(std::ostream& out, const Case& c) {
  for (size_t i = 0; i < c.rows.size(); ++i) out << tensor::traits(c.dtypes[i]).name << " " << c.rows[i] << ", ";
  return out << "columns " << c.cols << ", planes " << c.planes << (c.norm ? ", norm" : "")
             << (c.pre_norm ? ", norm before" : "") << (c.gate ? ", gate" : "") << ", processors " << c.processors;
}

// The row that the products read, by the references.
struct HostRow {
  std::vector<float> pre, sum, y;
};
HostRow row_of(const Case& c, const std::vector<float>& a, const std::vector<float>& b, const std::vector<float>& pre_w,
               const std::vector<float>& w) {
  HostRow row{std::vector<float>(a.size()), a, a};
  if (!c.norm) return row;
  row.pre = b;
  if (c.pre_norm) ops::rms_norm_ref(b.data(), pre_w.data(), 1e-6f, c.cols, row.pre.data());
  for (size_t i = 0; i < a.size(); ++i) row.sum[i] = a[i] + row.pre[i];
  ops::rms_norm_ref(row.sum.data(), w.data(), 1e-5f, c.cols, row.y.data());
  return row;
}

// The second of two shards, on the same GPU: the products of the first send it what they make, and it has told that
// what they read is there.
class OtherShard {
 public:
  explicit OtherShard(size_t n)
      : y_(poisoned(n + kColumn)), flags_(upload(words_with(kGatherBlocksMax, kRound))),
        sent_(upload(words_with(0, 0))), round_(upload(std::vector<uint32_t>{kRound})) {}

  ShardWait wait() const { return {flags_.as<uint32_t>(), round_.as<uint32_t>(), sent_.as<uint32_t>(), 2, 0}; }
  GatherTask send() const {
    GatherTask task;
    task.y[1] = y_.as<float>(), task.flags[1] = sent_.as<uint32_t>(),
    task.arrived = flags_.as<uint32_t>() + kArrivedWord;
    task.round = round_.as<uint32_t>(), task.column = kColumn, task.n_shards = 2;
    return task;
  }
  void check(const std::vector<float>& expected) const {
    EXPECT_TRUE(same_floats(download<float>(y_.as<float>() + kColumn, expected.size()), expected))
        << "as another shard has it";
    EXPECT_EQ(download<uint32_t>(sent_.data(), kGatherFlags), words_with(0, kRound));
    EXPECT_EQ(download<uint32_t>(flags_.data(), kGatherFlags), words_with(kGatherBlocksMax, kRound));
  }

 private:
  static constexpr uint32_t kRound = 0xFFFFFFFF;  // the next one is 0
  static constexpr int kColumn = 3;
  static std::vector<uint32_t> words_with(size_t at, uint32_t word) {
    std::vector<uint32_t> words(static_cast<size_t>(kGatherFlags), 0);
    words[at] = word;
    return words;
  }
  DeviceBuffer y_, flags_, sent_, round_;
};

std::vector<float> products(DType dtype, const std::vector<std::byte>& bytes, int64_t rows, const Case& c,
                            const std::vector<float>& x, const float* bias) {
  const quant::Format& format = *quant::find_format(dtype);
  const int64_t row_bytes = c.cols / tensor::traits(dtype).block_elements * tensor::traits(dtype).block_bytes;
  std::vector<std::byte> memory(quant::activations_bytes(format.activation, c.planes, 1, c.cols));
  const quant::Activations integers = quant::carve(format.activation, c.planes, 1, c.cols, memory.data());
  if (format.activation != quant::Activation::f32) quant::quantise_row_ref(x.data(), integers, 0);
  std::vector<float> y;
  for (int64_t r = 0; r < rows; ++r) {
    const std::byte* row = bytes.data() + r * row_bytes;
    const float* b = bias == nullptr ? nullptr : bias + r;
    const bool floats = format.activation == quant::Activation::f32;
    y.push_back(floats ? ops::linear_f32_ref(format, row, x.data(), c.cols, b)
                       : ops::linear_ref(format, row, integers, 0, b));
  }
  return y;
}

DecodeKernel kernel_for(DType dtype) {
  return find_decode_row({dtype, 1, 256, quant::find_format(dtype)->activation}, this_card())->kernel;
}

void check_case(const Case& c, uint64_t seed) {
  const quant::Activation kind = quant::find_format(c.dtypes[0])->activation;
  std::vector<float> a = test::random_activations(c.cols, seed);
  const std::vector<float> b = test::random_activations(c.cols, seed + 1),
                           pre_w = test::random_activations(c.cols, seed + 2),
                           w = test::random_activations(c.cols, seed + 3);
  if (c.poison) a[static_cast<size_t>(c.cols / 2)] = std::numeric_limits<float>::quiet_NaN();
  const HostRow row = row_of(c, a, b, pre_w, w);
  const auto width = static_cast<size_t>(c.cols);
  const DeviceBuffer a_device = upload(a), b_device = upload(b), pre_w_device = upload(pre_w), w_device = upload(w),
                     pre = poisoned(width), sum = poisoned(width), y_row = poisoned(width);
  DecodeSource source;
  source.a = a_device.as<float>();
  source.d = static_cast<int32_t>(c.cols);
  if (c.norm) {
    source.b = b_device.as<float>();
    source.w = w_device.as<float>();
    source.eps = 1e-5f;
    if (c.pre_norm) source.pre_w = pre_w_device.as<float>(), source.pre_eps = 1e-6f, source.pre_y = pre.as<float>();
    source.sum = sum.as<float>();
    source.y = y_row.as<float>();
  }
  std::vector<Uploaded> weights;
  std::vector<DeviceBuffer> biases, y;
  std::vector<std::vector<float>> expected;
  for (size_t i = 0; i < c.rows.size(); ++i) {
    const quant::Format& format = *quant::find_format(c.dtypes[i]);
    const std::vector<std::byte> bytes = test::random_weights(format, c.rows[i] * c.cols, seed + 10 + i);
    const std::vector<float> bias = test::random_activations(c.rows[i], seed + 20 + i);
    expected.push_back(products(c.dtypes[i], bytes, c.rows[i], c, row.y, i % 2 == 0 ? bias.data() : nullptr));
    weights.push_back(lay(c.dtypes[i], c.rows[i], c.cols, bytes, kind == quant::Activation::f32));
    biases.push_back(upload(bias));
    y.push_back(poisoned(static_cast<size_t>(c.rows[i])));
  }
  std::vector<LinearTask> tasks;
  for (size_t i = 0; i < weights.size(); ++i) {
    tasks.push_back({&weights[i].matrix, i % 2 == 0 ? biases[i].as<float>() : nullptr, y[i].as<float>()});
  }
  const DeviceBuffer gated = poisoned(static_cast<size_t>(c.rows[0]));
  DecodeGate gate{c.gate ? gated.as<float>() : nullptr, ops::ActivationFunction::silu};
  const OtherShard other(static_cast<size_t>(c.rows[0]));
  const bool of_shard = seed / 100 % 3 == 0;  // the kernels of one GPU are others
  if (of_shard) source.wait = other.wait();
  if (of_shard && (c.gate || c.rows.size() == 1)) gate.send = other.send();
  const bool adds = !c.gate && c.rows.size() == 1;
  const std::vector<float> residual = test::random_activations(c.rows[0], seed + 4);
  const DeviceBuffer residual_device = upload(residual), added = poisoned(residual.size());
  if (adds) gate.residual = residual_device.as<float>(), gate.sum = added.as<float>();
  decode_linears(kernel_for(c.dtypes[0]), source, tasks, gate, c.planes, Queue(nullptr, false, c.processors));
  for (size_t i = 0; i < y.size(); ++i) {
    EXPECT_TRUE(same_floats(download<float>(y[i].data(), expected[i].size()), expected[i])) << c << ", matrix " << i;
  }
  if (c.norm) {
    EXPECT_TRUE(same_floats(download<float>(sum.data(), width), row.sum)) << c;
    EXPECT_TRUE(same_floats(download<float>(y_row.data(), width), row.y)) << c;
    const std::vector<float>& before = c.pre_norm ? row.pre : row.sum;
    EXPECT_TRUE(same_floats(download<float>((c.pre_norm ? pre : sum).data(), width), before)) << c;
  }
  if (adds) {
    if (of_shard) other.check(expected[0]);
    std::vector<float> sums = residual;
    for (size_t i = 0; i < sums.size(); ++i) sums[i] = sums[i] + expected[0][i];
    EXPECT_TRUE(same_floats(download<float>(added.data(), sums.size()), sums)) << c << ", added";
  }
  if (!c.gate) return;
  std::vector<float> product;
  for (size_t i = 0; i < expected[0].size(); ++i) product.push_back(num::silu(expected[0][i]) * expected[1][i]);
  EXPECT_TRUE(same_floats(download<float>(gated.data(), product.size()), product)) << c << ", gate";
  if (of_shard) other.check(product);
}

std::vector<DType> formats_of(quant::Activation kind) {
  if (kind == quant::Activation::a256) return {DType::Q4_K, DType::Q5_K, DType::Q6_K};
  if (kind == quant::Activation::a32) return {DType::Q4_0, DType::Q4_1, DType::Q8_0};
  return {DType::F32, DType::F16, DType::BF16};
}
constexpr quant::Activation kKinds[] = {quant::Activation::a256, quant::Activation::a32, quant::Activation::f32};
std::vector<int> planes_of(quant::Activation kind) {
  return kind == quant::Activation::f32 ? std::vector<int>{1} : std::vector<int>{1, 2};
}

TEST(CudaDecode, ProductsHaveTheReferencesBits) {
  ASSAY_REQUIRE_GPU();
  uint64_t seed = 2000;
  for (const quant::Activation kind : kKinds) {
    const int64_t block = kind == quant::Activation::a256 ? 256 : 32;
    for (const DType dtype : formats_of(kind)) {
      for (const int planes : planes_of(kind)) {
        for (const int64_t n_blocks : {1, 3, 7, 8, 9, 16, 18, 22, 23, 56, 64}) {
          for (const int64_t rows : {1, 3, 8, 13, 300})
            check_case({{dtype}, {rows}, n_blocks * block, planes}, seed += 100);
          for (const int64_t rows : {6, 41, 203}) {  // the rings go round
            Case c{{dtype}, {rows}, n_blocks * block, planes};
            c.processors = 1;
            check_case(c, seed += 100);
          }
          if (HasFailure()) return;
        }
        const int64_t wide =
            kind == quant::Activation::a256 ? 59 * 256 : 455 * 32;  // steps of chunks that differ in length
        check_case({{dtype}, {70}, wide, planes}, seed += 100);
        check_case({{dtype}, {3000}, 8 * 256, planes}, seed += 100);
        check_case({{dtype}, {2500}, 18 * 256, planes}, seed += 100);
        check_case({{dtype}, {40}, 8 * 256, planes, false, false, false, true}, seed += 100);
        if (HasFailure()) return;
      }
    }
  }
}

// The bytes of the columns that one of n shards has of all rows.
std::vector<std::byte> columns_of(const std::vector<std::byte>& bytes, int64_t rows, size_t i_shard, size_t n) {
  const size_t row_bytes = bytes.size() / static_cast<size_t>(rows), share = row_bytes / n;
  std::vector<std::byte> columns;
  for (size_t at = i_shard * share; at < bytes.size(); at += row_bytes) {
    columns.insert(columns.end(), bytes.begin() + static_cast<std::ptrdiff_t>(at),
                   bytes.begin() + static_cast<std::ptrdiff_t>(at + share));
  }
  return columns;
}

// A product of which each of n shards sums its columns alone, sent to all; then products that add the sums before their
// norm.
void check_sums(const Case& c, size_t n, uint64_t seed) {
  const DType dtype = c.dtypes[0];
  const int64_t rows = c.rows[0];
  const auto width = static_cast<size_t>(rows);
  std::vector<float> x = test::random_activations(c.cols, seed);
  if (c.poison) x[static_cast<size_t>(c.cols / 3)] = std::numeric_limits<float>::infinity();
  const std::vector<std::byte> bytes = test::random_weights(*quant::find_format(dtype), rows * c.cols, seed + 1);
  const std::vector<float> y = products(dtype, bytes, rows, c, x, nullptr);
  const Queue queue(nullptr, false, c.processors);
  std::vector<DeviceBuffer> landings;
  for (size_t i = 0; i < n; ++i) landings.push_back(upload(std::vector<uint32_t>(n * width, kNoSum)));
  for (size_t i = 0; i < n; ++i) {
    const Uploaded columns = lay(dtype, rows / static_cast<int64_t>(n), c.cols, columns_of(bytes, rows, i, n), false);
    const size_t share = x.size() / n;
    const auto begin = x.begin() + static_cast<std::ptrdiff_t>(i * share);
    const DeviceBuffer own = upload(std::vector<float>(begin, begin + static_cast<std::ptrdiff_t>(share)));
    DecodeSource source;
    source.a = own.as<float>();
    source.d = static_cast<int32_t>(share);
    DecodeGate gate;
    gate.sums.n_shards = static_cast<int32_t>(n);
    for (size_t q = 0; q < n; ++q) gate.sums.to[q] = landings[q].as<float>() + i * width;
    const LinearTask task{&columns.matrix, nullptr, nullptr};
    decode_linears(kernel_for(dtype), source, std::span(&task, 1), gate, c.planes, queue);
    check(cudaDeviceSynchronize(), "a test");
  }
  const std::vector<float> a = test::random_activations(rows, seed + 2),
                           pre_w = test::random_activations(rows, seed + 3),
                           w = test::random_activations(rows, seed + 4);
  Case next{{dtype}, {9}, rows, c.planes, true, c.pre_norm};
  const HostRow row = row_of(next, a, y, pre_w, w);
  const std::vector<std::byte> next_bytes =
      test::random_weights(*quant::find_format(dtype), next.rows[0] * rows, seed + 5);
  const std::vector<float> expected = products(dtype, next_bytes, next.rows[0], next, row.y, nullptr);
  const DeviceBuffer a_device = upload(a), pre_w_device = upload(pre_w), w_device = upload(w),
                     in_time = upload(std::vector<uint32_t>{0});
  const Uploaded matrix = lay(dtype, next.rows[0], rows, next_bytes, false);
  for (const DeviceBuffer& landing : landings) {
    const DeviceBuffer sum = poisoned(width), y_row = poisoned(width), out = poisoned(expected.size());
    DecodeSource source;
    source.a = a_device.as<float>(), source.w = w_device.as<float>(), source.eps = 1e-5f,
    source.d = static_cast<int32_t>(rows);
    source.sums = {landing.as<float>(), in_time.as<uint32_t>(), static_cast<int32_t>(n), static_cast<int32_t>(rows)};
    if (c.pre_norm) source.pre_w = pre_w_device.as<float>(), source.pre_eps = 1e-6f;
    source.sum = sum.as<float>(), source.y = y_row.as<float>();
    const LinearTask task{&matrix.matrix, nullptr, out.as<float>()};
    decode_linears(kernel_for(dtype), source, std::span(&task, 1), {}, c.planes, queue);
    EXPECT_TRUE(same_floats(download<float>(sum.data(), width), row.sum)) << c << ", shards " << n;
    EXPECT_TRUE(same_floats(download<float>(y_row.data(), width), row.y)) << c << ", shards " << n;
    EXPECT_TRUE(same_floats(download<float>(out.data(), expected.size()), expected)) << c << ", shards " << n;
  }
  EXPECT_EQ(download<uint32_t>(in_time.data(), 1)[0], 0u);
}

TEST(CudaDecode, SumsOfColumnsGiveTheReferencesBits) {
  ASSAY_REQUIRE_GPU();
  uint64_t seed = 7000000;
  for (const quant::Activation kind : {quant::Activation::a256, quant::Activation::a32}) {
    const int64_t block = kind == quant::Activation::a256 ? 256 : 32;
    for (const DType dtype : formats_of(kind)) {
      for (const int planes : planes_of(kind)) {
        for (const int64_t n : {2, 4}) {
          for (const int64_t blocks_of_shard : {1, 3, 4, 11, 14}) {
            const int64_t cols = n * blocks_of_shard * block;
            for (const int64_t rows : {block, 9 * block})
              check_sums({{dtype}, {rows}, cols, planes}, static_cast<size_t>(n), seed += 100);
            Case c{{dtype}, {3 * block}, cols, planes, false, true};
            c.processors = 1;
            check_sums(c, static_cast<size_t>(n), seed += 100);
          }
          check_sums({{dtype}, {2 * block}, n * 2 * block, planes, false, false, false, true}, static_cast<size_t>(n),
                     seed += 100);
          Case wide{{dtype}, {8 * block}, kind == quant::Activation::a256 ? 56 * block : 448 * block, planes};
          for (const int processors : {132, 5})
            wide.processors = processors, check_sums(wide, static_cast<size_t>(n), seed += 100);
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST(CudaDecode, SeveralMatricesNormsAndGates) {
  ASSAY_REQUIRE_GPU();
  uint64_t seed = 900000;
  for (const quant::Activation kind : kKinds) {
    const std::vector<DType> f = formats_of(kind);
    for (const int planes : planes_of(kind)) {
      for (const int64_t cols : {256, 8 * 256, 9 * 256, 22 * 256}) {
        for (const bool pre_norm : {false, true}) {
          check_case({{f[0], f[1], f[2]}, {130, 9, 600}, cols, planes, true, pre_norm}, seed += 100);
          check_case({{f[2], f[0]}, {1, 2111}, cols, planes, true, pre_norm}, seed += 100);
          if (HasFailure()) return;
        }
        for (const DType dtype : f) {
          if (dtype == DType::F32) continue;
          check_case({{dtype, dtype}, {700, 700}, cols, planes, true, false, true}, seed += 100);
          check_case({{dtype, dtype}, {2203, 2203}, cols, planes, false, false, true}, seed += 100);
          for (const int64_t rows : {1, 3, 77}) {
            Case c{{dtype, dtype}, {rows, rows}, cols, planes, true, false, true};
            c.processors = 2;
            check_case(c, seed += 100);
          }
          if (HasFailure()) return;
        }
      }
    }
  }
}

// How many warps fetch for the others goes by the model's width and the product: both widths, rows of all lengths.
TEST(CudaDecode, SuperblocksOfNarrowAndWideModels) {
  ASSAY_REQUIRE_GPU();
  uint64_t seed = 12000000;
  const std::vector<DType> f = formats_of(quant::Activation::a256);
  for (const int planes : {1, 2}) {
    for (const int64_t n_blocks : {1, 3, 7, 8, 9, 22, 32, 59, 64}) {
      const int64_t cols = n_blocks * 256;
      for (const DType dtype : f) {
        check_case({{dtype}, {2051}, cols, planes}, seed += 100);
        for (const bool norm : {false, true}) {
          check_case({{dtype, dtype}, {706, 706}, cols, planes, norm, false, true}, seed += 100);
          Case few{{dtype, dtype}, {50, 50}, cols, planes, norm, norm, true};
          few.processors = 1;
          check_case(few, seed += 100);
        }
      }
      check_case({{f[0], f[2], f[1], f[2]}, {33, 7, 90, 1}, cols, planes, true}, seed += 100);
      Case several{{f[2], f[0], f[1]}, {133, 65, 2}, cols, planes};
      several.processors = 1;
      check_case(several, seed += 100);
      if (HasFailure()) return;
    }
  }
}

// One block of threads, which is what compute-sanitizer's racecheck looks at, and in time that it can have.
class CudaDecodeBlock : public testing::TestWithParam<DType> {};

TEST_P(CudaDecodeBlock, HasTheReferencesBits) {
  ASSAY_REQUIRE_GPU();
  const DType dtype = GetParam();
  const quant::Activation kind = quant::find_format(dtype)->activation;
  const int64_t block = kind == quant::Activation::a256 ? 256 : 32;
  uint64_t seed = 17000000;
  for (const int planes : planes_of(kind)) {
    for (const int64_t n_blocks : {9, 22}) {
      for (const bool norm : {false, true}) {
        Case one{{dtype}, {27}, n_blocks * block, planes, norm},
            pair{{dtype, dtype}, {14, 14}, n_blocks * block, planes, norm, false, true};
        one.processors = pair.processors = 1;
        check_case(one, seed += 100);
        check_case(pair, seed += 100);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, CudaDecodeBlock,
                         testing::Values(DType::Q4_K, DType::Q5_K, DType::Q6_K, DType::Q4_0, DType::Q4_1, DType::Q8_0,
                                         DType::F32, DType::F16, DType::BF16),
                         [](const auto& format) { return std::string(tensor::traits(format.param).name); });

}  // namespace
}  // namespace assay::backend::cuda
