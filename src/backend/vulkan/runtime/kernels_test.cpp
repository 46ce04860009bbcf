// Every row of the table against its op's reference by bits: the same plan runs by kernels and borrowed, and what each
// op wrote is compared. Among the rows are zeros, subnormals, infinities and NaNs.
#include "backend/vulkan/runtime/kernels.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <set>

#include "assay/error.h"
#include "backend/vulkan/device/device_test.h"
#include "backend/vulkan/probe/probe.h"
#include "backend/vulkan/rows/activation.h"
#include "backend/vulkan/runtime/vulkan_executor.h"
#include "ops/attention/attention.h"
#include "ops/attention/kv_store.h"
#include "ops/attention/rope.h"
#include "ops/embed/embed.h"
#include "ops/linear/expert_linear.h"
#include "ops/linear/expert_scale.h"
#include "ops/linear/linear.h"
#include "ops/linear/route.h"
#include "ops/plan/op_values.h"
#include "ops/rows/activate.h"
#include "ops/rows/activation.h"
#include "ops/rows/add.h"
#include "ops/rows/add_columns.h"
#include "ops/rows/gate.h"
#include "ops/rows/rms_norm.h"
#include "ops/rows/scale.h"
#include "ops/rows/scale_columns.h"
#include "ops/rows/select_outputs.h"
#include "ops/rows/slice.h"
#include "ops/rows/softcap.h"
#include "support/random_weights.h"
#include "support/rounds.h"

namespace assay::backend::vulkan {
namespace {

using ops::kNone;
using tensor::DType;

// A plan over one value that the test gives; the first value made is handed on, so that nothing needs a head.
class TestPlan {
 public:
  explicit TestPlan(int64_t width) {
    plan.input = value(width);
    plan.handed = value(width);
    add(ops::Add{plan.input, plan.input, plan.handed});
    plan.vocab_size = kVocabSize, plan.d_model = width;
  }

  static constexpr int64_t kVocabSize = 40;
  ops::Plan plan;

  ops::ValueId value(int64_t width, ops::RowDomain domain = ops::RowDomain::tokens) {
    plan.values.push_back({"value " + std::to_string(plan.values.size()), width, domain});
    return static_cast<ops::ValueId>(plan.values.size() - 1);
  }
  template <class R>
  void add(const R& record) {
    plan.ops.push_back({record, std::string(R::kKind) + " " + std::to_string(plan.ops.size()), 0});
  }
  ops::WeightId weight(DType dtype, int64_t rows, int64_t cols) {
    memory_.push_back(std::make_unique<std::vector<std::byte>>(
        test::random_weights(*quant::find_format(dtype), rows * cols, ++seed_)));
    tensor::TensorView view;
    view.dtype = dtype;
    view.shape.rank = rows == 0 ? 1 : 2;
    view.shape.dims = {rows, cols, 1, 1};
    view.data = *memory_.back();
    plan.weights.push_back({"weight " + std::to_string(plan.weights.size()), view, 0});
    return static_cast<ops::WeightId>(plan.weights.size() - 1);
  }
  ops::WeightId vector(int64_t n) {
    const ops::WeightId id = weight(DType::F32, 1, n);
    tensor::Shape& shape = plan.weights.back().view.shape;
    shape.rank = 1, shape.dims = {n, 1, 1, 1};
    return id;
  }
  ops::ValueId slice(ops::ValueId x, int64_t first, int64_t width) {
    const ops::ValueId y = value(width);
    add(ops::Slice{x, 1, first, y});
    return y;
  }

 private:
  std::vector<std::unique_ptr<std::vector<std::byte>>> memory_;
  uint64_t seed_ = 0;
};

class Collector final : public ops::OpObserver {
 public:
  std::vector<std::pair<std::string, std::vector<float>>> seen;
  bool wants(const ops::Op&) override { return true; }
  void on_op(const ops::Op& op, int64_t, int64_t, std::span<const double> values) override {
    seen.push_back({op.name, {values.begin(), values.end()}});
  }
};

// Rows as a network has them, then such as it should not: small: each fifth row of zeros and subnormals, each eleventh
// of numbers whose products are; wild: each seventh with an infinity and a NaN.
enum class Rows { usual, small, wild };
std::vector<float> test_rows(int64_t n_rows, int64_t width, Rows kind) {
  std::vector<float> x = test::random_activations(n_rows * width, 99);
  for (int64_t i = 0; kind != Rows::usual && i < n_rows; ++i) {
    float* row = x.data() + i * width;
    if (i % 5 == 2) {
      for (int64_t j = 0; j < width; ++j) row[j] = j % 3 == 0 ? 0.0f : j % 3 == 1 ? -row[j] * 1e-39f : row[j] * 1e-44f;
    } else if (i % 11 == 4) {
      for (int64_t j = 0; j < width; ++j) row[j] *= 1e-27f;
    } else if (kind == Rows::wild && i % 7 == 3) {
      row[width / 3] = std::numeric_limits<float>::infinity();
      row[width / 2] = std::numeric_limits<float>::quiet_NaN();
      row[width - 1] = -std::numeric_limits<float>::infinity();
      row[1] = 3e38f;
    }
  }
  return x;
}

struct Outcome {
  std::vector<std::pair<std::string, std::vector<float>>> seen;  // of all batches
  std::vector<std::byte> cache;
  std::vector<bool> is_native;  // per op
};

class VulkanKernels : public ::testing::Test {
 protected:
  // Both ways over the rows in pieces; every third token is an output.
  Outcome run_plan(const ops::Plan& plan, const ops::ExecutorOptions& options, std::span<const float> rows,
                   const std::vector<int64_t>& pieces, bool borrows_all) {
    auto device = std::make_unique<Device>(std::make_unique<const Instance>(), 0, borrows_all);  // and once with copies
    if (!arithmetic_) arithmetic_ = probe(*device).arithmetic;
    device->set_arithmetic(*arithmetic_);
    device->set_uses_dots(device->uses_dots() || with_dots_);
    device->set_uses_shuffles(!without_shuffles_);
    device->set_tile_side(tile_side_);
    device->set_matrix_depth(matrix_depth_);
    has_tiles_ = device->has_attention_tiles();
    const auto executor = make_executor(plan, options, std::move(device), pool_, borrows_all);
    Collector collector;
    const int64_t width = plan.values[static_cast<size_t>(plan.input)].width;
    int64_t position = 0;
    for (const int64_t n : pieces) {
      std::copy_n(rows.begin() + position * width, n * width, executor->input(n).begin());
      std::vector<int32_t> tokens, positions;
      std::vector<uint8_t> outputs;
      for (int64_t i = 0; i < n; ++i) {
        tokens.push_back(static_cast<int32_t>((7 * (position + i)) % TestPlan::kVocabSize));
        positions.push_back(static_cast<int32_t>(position + i));
        outputs.push_back((position + i) % 3 == 0 ? 1 : 0);
      }
      executor->run({tokens, positions, {}, outputs, {.observer = &collector}});
      position += n;
    }
    Outcome result;
    result.seen = std::move(collector.seen);  // groups come in another order where nothing is fused
    std::ranges::stable_sort(result.seen, {}, [](const auto& seen) { return seen.first; });
    executor->visit_cache(0, [&](std::span<const std::byte> bytes) {
      result.cache.insert(result.cache.end(), bytes.begin(), bytes.end());
    });
    for (size_t i = 0; i < plan.ops.size(); ++i)
      result.is_native.push_back(!executor->kernels_of(static_cast<int32_t>(i)).front().borrowed);
    return result;
  }

  void expect_same(const ops::Plan& plan, ops::ExecutorOptions options, std::span<const float> rows,
                   const std::vector<int64_t>& pieces, const std::string& how) {
    const Outcome native = run_plan(plan, options, rows, pieces, false),
                  borrowed = run_plan(plan, options, rows, pieces, true);
    ASSERT_EQ(native.seen.size(), borrowed.seen.size());
    for (size_t i = 0; i < native.seen.size(); ++i)
      EXPECT_TRUE(same_floats(native.seen[i].second, borrowed.seen[i].second)) << native.seen[i].first << ", " << how;
    EXPECT_TRUE(native.cache == borrowed.cache) << how;
    for (size_t i = 0; i < plan.ops.size(); ++i) {
      const ops::Op& op = plan.ops[i];
      const auto* gate = op.as<ops::Gate>();
      const auto* activate = op.as<ops::Activate>();
      const bool has_no_kernel = op.is<ops::Route>() || op.is<ops::ExpertScale>() ||
                                 (gate != nullptr && !number_in_shaders(gate->activation)) ||
                                 (activate != nullptr && !number_in_shaders(activate->activation));
      EXPECT_NE(native.is_native[i], has_no_kernel) << plan.ops[i].name << ", " << how;
      EXPECT_FALSE(borrowed.is_native[i]);
      for (const Kernel* kernel :
           kernels_for(plan, options, plan.ops[i], {.has_matrices = matrix_depth_ > 0, .has_tiles = has_tiles_}))
        shown_.insert(kernel);
    }
  }

  void run_rows();
  void run_products();
  void run_tiles();
  void run_matrices();
  void run_wide();
  void run_attention();
  void run_attention_tiles(int64_t dim, ops::CacheType keys, ops::CacheType values);
  void run_layer(const std::vector<ops::CacheType>& types, const std::vector<DType>& formats);

  // Kept: some drivers cannot be unloaded and loaded again without end.
  std::optional<Instance> loaded_ =
      find_devices(false).list.empty() ? std::nullopt : std::optional<Instance>(std::in_place);
  base::ThreadPool pool_{2};
  std::optional<Arithmetic> arithmetic_;
  bool with_dots_ = false, without_shuffles_ = false;
  uint32_t matrix_depth_ = 0;
  int64_t tile_side_ = 0;
  bool has_tiles_ = false;  // of the device that ran last
  std::set<const Kernel*> shown_;
};

void VulkanKernels::run_rows() {
  constexpr int64_t kWidth = 192;
  TestPlan t(kWidth);
  const ops::ValueId x = t.plan.input, twice = t.plan.handed;
  for (const int64_t d : {kWidth, int64_t{64}, int64_t{3}}) {
    t.add(ops::RmsNorm{x, t.vector(d), 1e-5f, d, t.value(kWidth)});
    t.add(ops::RmsNorm{x, kNone, 1e-6f, d, t.value(kWidth)});
  }
  for (size_t i = 0; i < ops::kNActivationFunctions; ++i) {
    const auto function = static_cast<ops::ActivationFunction>(i);
    t.add(ops::Gate{x, twice, function, t.value(kWidth)});
    t.add(ops::Activate{x, function, t.value(kWidth)});
  }
  const ops::ValueId few = t.slice(x, 5, 4);
  t.add(ops::Gate{few, x, ops::ActivationFunction::sigmoid, t.value(kWidth)});
  t.add(ops::Scale{x, 0.3, t.value(kWidth)});
  t.add(ops::Softcap{x, 30.0, t.value(kWidth)});
  t.add(ops::AddColumns{x, t.vector(kWidth), t.value(kWidth)});
  t.add(ops::ScaleColumns{x, t.vector(kWidth), t.value(kWidth)});
  t.add(ops::Slice{x, 3, 1, t.value(3 * 20)});
  t.add(ops::SelectOutputs{x, t.value(kWidth, ops::RowDomain::outputs)});
  for (const auto& [dim, interleaved] : {std::pair(int64_t{64}, true), {int64_t{64}, false}, {int64_t{24}, true}}) {
    ops::RopeSpec spec;
    spec.dim = dim, spec.interleaved = interleaved;
    for (int64_t i = 0; i < dim / 2; ++i) spec.inverse_frequency.push_back(1.0 / static_cast<double>(1 + i));
    t.plan.ropes.push_back(spec);
    t.add(ops::Rope{x, static_cast<ops::RopeId>(t.plan.ropes.size() - 1), kWidth / 64, 64, t.value(kWidth)});
  }
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16, DType::Q4_0, DType::Q4_1, DType::Q5_0, DType::Q5_1,
                            DType::Q8_0, DType::Q4_K, DType::Q5_K, DType::Q6_K}) {
    t.add(ops::Embed{t.weight(dtype, TestPlan::kVocabSize, 256), 16.0, t.value(256)});
  }
  ops::ExecutorOptions options;
  options.n_ctx = 64, options.n_batch_max = 24, options.n_outputs_max = 24;
  expect_same(t.plan, options, test_rows(25, kWidth, Rows::wild), {24, 1}, "rows");
}

void VulkanKernels::run_products() {
  constexpr int64_t kWidth = 768;
  TestPlan t(kWidth);
  const ops::ValueId ragged = t.slice(t.plan.input, 3, 96 + 5), blocks = t.slice(t.plan.input, 0, 288);
  bool with_bias = false;
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16, DType::Q4_0, DType::Q4_1, DType::Q5_0, DType::Q5_1,
                            DType::Q8_0, DType::Q4_K, DType::Q5_K, DType::Q6_K}) {
    const int64_t block = tensor::traits(dtype).block_elements, n = block == 1 ? 101 : block == 32 ? 288 : 768;
    with_bias = !with_bias;
    t.add(ops::Linear{block == 1    ? ragged
                      : block == 32 ? blocks
                                    : t.plan.input,
                      t.weight(dtype, 13, n), with_bias ? t.vector(13) : kNone, t.value(13), kNone});
  }
  // Routes as a router gives them; then each rank its own input and expert, and rows that are a part of an expert's.
  const ops::ValueId x = t.slice(t.plan.input, 0, 256), both = t.slice(t.plan.input, 0, 512),
                     logits = t.slice(t.plan.input, 7, 5);
  const ops::RowDomain routed = ops::RowDomain::tokens.routed(2);
  const ops::ValueId routes = t.value(4), own = t.value(256, routed);
  t.add(ops::Route{logits, kNone, ops::Gating::softmax, 2, true, 1.0, routes});
  t.add(ops::ExpertScale{x, routes, 2, own});
  for (const DType dtype : {DType::Q4_0, DType::Q6_K, DType::F16}) {
    t.add(ops::ExpertLinear{x, routes, t.weight(dtype, 5 * 9, 256), t.vector(5 * 9), 5, 2, 256, 9, t.value(9, routed)});
    t.add(ops::ExpertLinear{own, routes, t.weight(dtype, 5 * 9, 256), kNone, 5, 2, 256, 4, t.value(4, routed), 9, 3});
    t.add(ops::ExpertLinear{both, kNone, t.weight(dtype, 2 * 9, 256), kNone, 2, 2, 256, 9, t.value(18)});
  }
  for (const auto& [planes, as_f32] : {std::pair(2, false), {1, false}, {2, true}}) {
    ops::ExecutorOptions options;
    options.n_ctx = 64, options.n_batch_max = 19, options.n_outputs_max = 19;
    options.planes = planes, options.weights_as_f32 = as_f32;
    expect_same(t.plan, options, test_rows(24, kWidth, Rows::wild), {19, 4, 1},
                std::to_string(planes) + (as_f32 ? " planes, f32" : " planes"));
  }
}

// Tiles with all their outputs and the device's dots of bytes, ragged at every side: several products together, and
// chunks that have no block.
void VulkanKernels::run_tiles() {
  constexpr int64_t kWidth = 2304;
  TestPlan t(kWidth);
  for (const int64_t n : {70, 33, 5})
    t.add(ops::Linear{t.plan.input, t.weight(DType::Q4_K, n, kWidth), kNone, t.value(n), kNone});
  const ops::ValueId few = t.slice(t.plan.input, 0, 512), ragged = t.slice(t.plan.input, 5, 352);
  t.add(ops::Linear{few, t.weight(DType::Q6_K, 40, 512), t.vector(40), t.value(40), kNone});
  t.add(ops::Linear{ragged, t.weight(DType::Q8_0, 37, 352), kNone, t.value(37), kNone});
  ops::ExecutorOptions options;
  options.n_ctx = 128, options.n_batch_max = 70, options.n_outputs_max = 70;
  expect_same(t.plan, options, test_rows(75, kWidth, Rows::wild), {70, 5}, "tiles");
}

// Cooperative matrices, or what stands for them in tests: ragged at every side, several products together, chunks that
// have no block, more tiles of tokens than one, and steps so small that a token is computed apart.
void VulkanKernels::run_matrices() {
  constexpr int64_t kWidth = 2304;
  TestPlan t(kWidth);
  for (const int64_t n : {170, 33, 5})
    t.add(ops::Linear{t.plan.input, t.weight(DType::Q4_K, n, kWidth), kNone, t.value(n), kNone});
  const ops::ValueId few = t.slice(t.plan.input, 0, 512), one = t.slice(t.plan.input, 5, 256);
  t.add(ops::Linear{few, t.weight(DType::Q6_K, 131, 512), t.vector(131), t.value(131), kNone});
  t.add(ops::Linear{one, t.weight(DType::Q5_K, 20, 256), t.vector(20), t.value(20), kNone});
  t.add(ops::Linear{t.plan.input, t.weight(DType::Q6_K, 17, kWidth), kNone, t.value(17), kNone});
  for (const int planes : {1, 2}) {
    ops::ExecutorOptions options;
    options.n_ctx = 272, options.n_batch_max = 260, options.n_outputs_max = 260, options.planes = planes;
    expect_same(t.plan, options, test_rows(260, kWidth, Rows::wild), {260}, "matrices, " + std::to_string(planes));
  }
}

// One token after the other, with rows of weights that 32, 64 and 128 invocations share, and a norm as wide as only
// large models have it.
void VulkanKernels::run_wide() {
  constexpr int64_t kWidth = 4608;
  TestPlan t(kWidth);
  t.add(ops::Linear{t.slice(t.plan.input, 0, 512), t.weight(DType::Q4_K, 4100, 512), kNone, t.value(4100), kNone});
  t.add(ops::Linear{t.slice(t.plan.input, 9, 2304), t.weight(DType::Q5_K, 11, 2304), t.vector(11), t.value(11), kNone});
  t.add(ops::Linear{t.slice(t.plan.input, 1, 2304), t.weight(DType::Q5_1, 6, 2304), kNone, t.value(6), kNone});
  const ops::ValueId normed = t.value(kWidth);
  t.add(ops::RmsNorm{t.plan.input, t.vector(kWidth), 1e-5f, kWidth, normed});
  t.add(ops::Linear{normed, t.weight(DType::Q6_K, 9, kWidth), kNone, t.value(9), kNone});
  ops::ExecutorOptions options;
  options.n_ctx = 16, options.n_batch_max = 1, options.n_outputs_max = 1;
  expect_same(t.plan, options, test_rows(5, kWidth, Rows::wild), {1, 1, 1, 1, 1}, "wide");
}

// A layer as networks have it, with all that is fused: norms before and after, norms of heads, gate, twins. formats: of
// values, of attention's output and of the last product; the others are Q4_K.
void VulkanKernels::run_layer(const std::vector<ops::CacheType>& types, const std::vector<DType>& formats) {
  constexpr int64_t kHeads = 4, kKvHeads = 2, kDim = 64, kWidth = kHeads * kDim, kKvWidth = kKvHeads * kDim,
                    kWide = 512;
  TestPlan t(kWidth);
  t.plan.cache_layers = {{kKvHeads, kDim}, {kKvHeads, kDim}};
  ops::RopeSpec spec;
  spec.dim = 48, spec.interleaved = false;
  for (int64_t i = 0; i < spec.dim / 2; ++i) spec.inverse_frequency.push_back(1.0 / static_cast<double>(1 + i));
  t.plan.ropes.push_back(spec);
  const auto linear = [&](ops::ValueId x, DType dtype, int64_t n, int64_t k) {
    const ops::ValueId y = t.value(n);
    t.add(ops::Linear{x, t.weight(dtype, n, k), kNone, y, kNone});
    return y;
  };
  const auto norm = [&](ops::ValueId x, int64_t width, int64_t d) {
    const ops::ValueId y = t.value(width);
    t.add(ops::RmsNorm{x, t.vector(d), 1e-5f, d, y});
    return y;
  };
  ops::ValueId x = t.plan.input;
  for (int32_t layer = 0; layer < 2; ++layer) {
    const ops::ValueId h = norm(x, kWidth, kWidth);
    ops::ValueId q = linear(h, DType::Q4_K, kWidth, kWidth), k = linear(h, DType::Q4_K, kKvWidth, kWidth);
    const ops::ValueId v = linear(h, formats[0], kKvWidth, kWidth);
    if (layer == 1) q = norm(q, kWidth, kDim), k = norm(k, kKvWidth, kDim);
    const ops::ValueId q_turned = t.value(kWidth), k_turned = t.value(kKvWidth), attended = t.value(kWidth);
    t.add(ops::Rope{q, 0, kHeads, kDim, q_turned});
    t.add(ops::Rope{k, 0, kKvHeads, kDim, k_turned});
    t.add(ops::KvStore{k_turned, v, layer});
    t.add(ops::Attention{q_turned, layer, kHeads, kKvHeads, kDim, 0.125, 0, attended});
    ops::ValueId o = linear(attended, formats[1], kWidth, kWidth);
    if (layer == 1) o = norm(o, kWidth, kWidth);
    const ops::ValueId sum = t.value(kWidth);
    t.add(ops::Add{x, o, sum});
    const ops::ValueId second = norm(sum, kWidth, kWidth);
    const ops::ValueId gate = linear(second, DType::Q4_K, kWide, kWidth),
                       up = linear(second, DType::Q4_K, kWide, kWidth), gated = t.value(kWide), next = t.value(kWidth);
    t.add(ops::Gate{gate, up, ops::ActivationFunction::silu, gated});
    t.add(ops::Add{sum, linear(gated, formats[2], kWidth, kWide), next});
    x = next;
  }
  for (const ops::CacheType type : types) {
    ops::ExecutorOptions options;
    options.n_ctx = 64, options.n_batch_max = 24, options.n_outputs_max = 24;
    options.cache_k = options.cache_v = type;
    expect_same(t.plan, options, test_rows(26, kWidth, Rows::small), {24, 1, 1},
                "a layer, cache type " + std::to_string(static_cast<int>(type)));
  }
}

// Two layers, the second with values in its keys and wide heads; segments of 256 positions are crossed.
void VulkanKernels::run_attention() {
  constexpr int64_t kHeads = 4, kKvHeads = 2, kDim = 32, kWide = 192, kWidth = kHeads * kWide;
  TestPlan t(kWidth);
  t.plan.cache_layers = {{kKvHeads, kDim}, {1, kWide, 0, 136, true}};
  const ops::ValueId q = t.slice(t.plan.input, 0, kHeads * kDim), k = t.slice(t.plan.input, 200, kKvHeads * kDim),
                     v = t.slice(t.plan.input, 300, kKvHeads * kDim);
  t.add(ops::KvStore{k, v, 0});
  const auto attend = [&](int64_t window, int64_t chunk, double softcap, bool sinks) {
    t.add(ops::Attention{q, 0, kHeads, kKvHeads, kDim, 0.2, window, t.value(kHeads * kDim), softcap,
                         sinks ? t.vector(kHeads) : kNone, chunk});
  };
  attend(0, 0, 0, false);
  attend(40, 0, 20, true);
  attend(0, 100, 0, true);
  t.add(ops::KvStore{t.slice(t.plan.input, 0, kWide), kNone, 1});
  t.add(ops::Attention{t.plan.input, 1, kHeads, 1, kWide, 0.05, 0, t.value(kHeads * 136)});
  const std::vector<float> rows = test_rows(290, kWidth, Rows::usual);
  for (const ops::CacheType type : {ops::CacheType::f16, ops::CacheType::f32, ops::CacheType::q8_0}) {
    ops::ExecutorOptions options;
    options.n_ctx = 300, options.n_batch_max = 270, options.n_outputs_max = 270;
    options.cache_k = options.cache_v = type;
    expect_same(t.plan, options, rows, {3, 270, 16, 1}, "cache type " + std::to_string(static_cast<int>(type)));
  }
}

// Attention by tiles: segments of 256 positions are crossed, windows and chunks begin within them, tiles of tokens and of
// heads are ragged. After rows as a network has them, which no tile leaves to the kernel behind it, come such as it
// should not have.
void VulkanKernels::run_attention_tiles(int64_t dim, ops::CacheType keys, ops::CacheType values) {
  constexpr int64_t kWidth = 640, kUsual = 400, kRows = 570;
  TestPlan t(kWidth);
  const auto attend = [&](int32_t layer, int64_t n_heads, double scale, int64_t window, int64_t chunk, bool sinks) {
    const ops::ValueId q = t.slice(t.plan.input, 0, n_heads * dim);
    t.add(ops::Attention{q, layer, n_heads, t.plan.cache_layers[static_cast<size_t>(layer)].n_kv_heads, dim, scale,
                         window, t.value(n_heads * dim), 0, sinks ? t.vector(n_heads) : kNone, chunk});
  };
  const int64_t n_heads = 512 / dim;
  for (const int64_t n_kv_heads : {int64_t{1}, int64_t{2}}) {
    const int64_t width = n_kv_heads * dim;
    if (width > kWidth / 2) continue;
    const auto layer = static_cast<int32_t>(t.plan.cache_layers.size());
    t.plan.cache_layers.push_back({n_kv_heads, dim});
    t.add(ops::KvStore{t.slice(t.plan.input, 340, width), t.slice(t.plan.input, 200, width), layer});  // wild: values
    attend(layer, n_heads, 0.1, 0, 0, false);
    attend(layer, n_heads - n_kv_heads, 0.5, layer == 0 ? 300 : 40, 0, true);
    attend(layer, n_kv_heads, layer == 0 ? 2 : 20, 0, 100, false);
  }
  std::vector<float> rows = test_rows(kRows, kWidth, Rows::wild);
  const std::vector<float> usual = test_rows(kUsual, kWidth, Rows::usual);
  std::ranges::copy(usual, rows.begin());
  ops::ExecutorOptions options;
  options.n_ctx = kRows + 30, options.n_batch_max = kUsual - 70, options.n_outputs_max = options.n_batch_max;
  options.cache_k = keys, options.cache_v = values;
  expect_same(t.plan, options, rows, {70, kUsual - 70, 65, 5, 100}, "tiles, heads of " + std::to_string(dim));
}

TEST_F(VulkanKernels, EveryRowOfTheTableHasTheBitsOfItsReference) {
  ASSAY_REQUIRE_VULKAN();
  run_rows();
  run_products();
  run_attention();
  run_layer({ops::CacheType::f16, ops::CacheType::q8_0}, {DType::Q6_K, DType::Q5_0, DType::Q5_K});
  for (const Kernel& kernel : kernels())
    EXPECT_NE(shown_.contains(&kernel), kernel.needs_matrices || (kernel.needs_tiles && !has_tiles_))
        << kernel.name << " was not run, or is of another test";
}

TEST_F(VulkanKernels, RowsForMatricesHaveTheBitsOfTheirReference) {
  ASSAY_REQUIRE_VULKAN();
  const Device device(std::make_unique<const Instance>(), 0);
  for (const uint32_t depth : depths_of_matrices(device)) {
    matrix_depth_ = depth;
    run_matrices();
  }
  for (const Kernel& kernel : kernels()) EXPECT_TRUE(shown_.contains(&kernel) || !kernel.needs_matrices) << kernel.name;
}

TEST_F(VulkanKernels, TilesAndDotsOfBytesAsFastDevicesHaveThem) {
  ASSAY_REQUIRE_VULKAN();
  tile_side_ = 4, with_dots_ = true;
  run_tiles();
  run_wide();
  without_shuffles_ = true;
  run_wide();
}

TEST_F(VulkanKernels, AttentionByTilesHasTheBitsOfItsReference) {
  ASSAY_REQUIRE_VULKAN();
  run_attention_tiles(64, ops::CacheType::f16, ops::CacheType::q8_0);
  run_attention_tiles(128, ops::CacheType::q8_0, ops::CacheType::f16);
  run_attention_tiles(256, ops::CacheType::f16, ops::CacheType::f16);
}

// In place of a function that was not asked for.
TEST_F(VulkanKernels, AnActivationThatShadersDoNotKnowGivesNaN) {
  ASSAY_REQUIRE_VULKAN();
  constexpr size_t kN = 64;
  struct Push {
    VkDeviceAddress a, b, y;
    uint32_t n, width;
    float factor;
  };
  Device device(std::make_unique<const Instance>(), 0);
  device.set_arithmetic(probe(device).arithmetic);
  std::set<uint32_t> known;
  for (size_t i = 0; i < ops::kNActivationFunctions; ++i) {
    if (const auto number = number_in_shaders(static_cast<ops::ActivationFunction>(i))) known.insert(*number);
  }
  const Buffer x = upload(device, std::vector<float>(kN, 0.5f));
  for (uint32_t number = 0; number < 16; ++number) {
    const Buffer y = poisoned(device, kN);
    device.dispatch("elements_2", {number}, Push{x.address(), 0, y.address(), kN, 1, 0}, 1);
    for (const float value : download<float>(device, y, kN))
      ASSERT_NE(std::isnan(value), known.contains(number)) << "activation " << number;
  }
}

// What a device does not take in one piece is borrowed.
TEST(VulkanKernelTable, TooLargeAMatrixIsBorrowed) {
  TestPlan t(256);
  t.add(ops::Linear{t.plan.input, t.weight(DType::Q8_0, 10, 256), kNone, t.value(10), kNone});
  t.add(ops::Add{t.plan.input, t.plan.input, t.value(256)});
  const ops::ExecutorOptions options;
  const auto n_rows = [&](size_t op, uint64_t bytes_max) {
    return kernels_for(t.plan, options, t.plan.ops[op], {.matrix_bytes_max = bytes_max}).size();
  };
  EXPECT_EQ(n_rows(1, 2720), 3u);  // 10 rows of 8 blocks of 34 bytes
  EXPECT_EQ(n_rows(1, 2719), 0u);
  EXPECT_EQ(n_rows(2, 1), 1u);
}

TEST(VulkanKernelTable, AFactorForEachRunOfColumnsIsBorrowed) {
  TestPlan t(256);
  t.add(ops::ScaleColumns{t.plan.input, t.vector(256), t.value(256)});
  t.add(ops::ScaleColumns{t.plan.input, t.vector(8), t.value(256)});
  const ops::ExecutorOptions options;
  EXPECT_EQ(kernels_for(t.plan, options, t.plan.ops[1], {}).size(), 1u);
  EXPECT_EQ(kernels_for(t.plan, options, t.plan.ops[2], {}).size(), 0u);
}

// As on a device that rounds nothing right and flushes subnormals.
TEST_F(VulkanKernels, AllByIntegersHasTheSameBits) {
  ASSAY_REQUIRE_VULKAN();
  if (find_devices(false).list.front().is_software && !test::is_exhaustive())
    GTEST_SKIP() << "half a minute of compiling for a processor: with ASSAY_EXHAUSTIVE";
  arithmetic_ = Arithmetic();
  run_layer({ops::CacheType::f16}, {DType::Q4_K, DType::Q4_K, DType::Q4_K});
}

}  // namespace
}  // namespace assay::backend::vulkan
