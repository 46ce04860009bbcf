// Every kernel of every set against the scalar reference, bit by bit, over the shapes of the contract's section 9.
#include "backend/cpu/linear/linear.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cpu/linear/linear_thread.h"
#include "backend/cpu/sets/kernel_sets.h"
#include "support/random_weights.h"

namespace assay::backend::cpu {
namespace {

using quant::Format;
using test::Random;

struct Free {
  void operator()(void* p) const { std::free(p); }
};
using Bytes = std::unique_ptr<std::byte, Free>;

Bytes aligned_bytes(size_t n) { return Bytes(static_cast<std::byte*>(std::aligned_alloc(64, (n + 127) / 64 * 64))); }

bool same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

// Random weights and activations of one shape, with the reference's results for all tokens.
struct Case {
  const Format& format;
  int64_t k, rows, tokens;
  int planes;                     // 0: as f32
  std::vector<std::byte> memory;  // weights begin at 1, an odd address
  std::vector<float> x, bias, expected;
  Bytes activation_bytes;
  LinearTask task;

  Case(const Format& f, int64_t k_, int64_t rows_, int64_t tokens_, int planes_, uint64_t seed)
      : format(f), k(k_), rows(rows_), tokens(tokens_), planes(planes_) {
    memory.assign(1, std::byte{0});
    for (int64_t r = 0; r < rows; ++r) {
      const std::vector<std::byte> row = test::random_weights(format, k, seed + static_cast<uint64_t>(r));
      memory.insert(memory.end(), row.begin(), row.end());
    }
    memory.shrink_to_fit();
    x = test::random_activations(tokens * k, seed + 77);
    Random random(seed + 99);
    for (int64_t r = 0; r < rows; ++r) bias.push_back(random.normal());
  }

  void poison(uint64_t seed) {  // zeros, subnormals, infinities, NaN in scales and activations
    constexpr uint16_t kScales[] = {0, 0x8000, 1, 0x83FF, 0x7BFF, 0x7C00, 0xFC00, 0x7E00};
    constexpr float kValues[] = {0,
                                 -0.0f,
                                 1e-40f,
                                 1e-31f,
                                 3e38f,
                                 -3e38f,
                                 std::numeric_limits<float>::infinity(),
                                 std::numeric_limits<float>::quiet_NaN()};
    Random random(seed);
    const tensor::DTypeTraits& t = tensor::traits(format.dtype);
    const test::ScaleOffsets offsets = test::scale_offsets(format.dtype);
    for (size_t at = 1; at < memory.size(); at += static_cast<size_t>(t.block_bytes)) {
      if (random.below(8) != 0) continue;
      const uint16_t scale = kScales[random.below(8)];
      if (offsets.d >= 0) std::memcpy(&memory[at + static_cast<size_t>(offsets.d)], &scale, 2);
      if (format.dtype == tensor::DType::MXFP4)
        memory[at] = static_cast<std::byte>(random.below(2) == 0 ? random.below(3) : 253 + random.below(3));
    }
    for (int64_t begin = 0; begin < tokens * k; begin += 32) {
      const int kind = random.below(40);
      for (int64_t j = begin; j < std::min(begin + 32, tokens * k); ++j) {
        if (kind == 0) x[static_cast<size_t>(j)] = 0;
        if (kind == 1) x[static_cast<size_t>(j)] *= 1e-38f;
        if (kind == 2) x[static_cast<size_t>(j)] *= 1e37f;
      }
      if (kind == 3) x[static_cast<size_t>(begin)] = kValues[random.below(8)];
    }
  }

  // Sums of integers as large as they get: rows of equal bytes, activations near the largest of their block (127 and 0,
  // or 126 and 64/128).
  void push_to_bounds(uint64_t seed) {
    const tensor::DTypeTraits& t = tensor::traits(format.dtype);
    const test::ScaleOffsets offsets = test::scale_offsets(format.dtype);
    for (size_t at = 1; at < memory.size(); at += static_cast<size_t>(t.block_bytes)) {
      constexpr int kFills[] = {0x7F, 0xFF, 0x80};
      const int fill = kFills[(at - 1) * static_cast<size_t>(rows) / memory.size() % 3];
      uint16_t d, m;
      std::memcpy(&d, &memory[at + static_cast<size_t>(std::max(offsets.d, 0))], 2);
      std::memcpy(&m, &memory[at + static_cast<size_t>(std::max(offsets.m, 0))], 2);
      std::memset(&memory[at], fill, static_cast<size_t>(t.block_bytes));
      if (offsets.m >= 0) std::memcpy(&memory[at + static_cast<size_t>(offsets.m)], &m, 2);
      if (offsets.d >= 0) std::memcpy(&memory[at + static_cast<size_t>(offsets.d)], &d, 2);
      if (format.dtype == tensor::DType::MXFP4) memory[at] = std::byte{120};
    }
    Random random(seed);
    for (int64_t begin = 0; begin < tokens * k; begin += 32) {
      const bool whole = random.below(2) == 0;
      for (int64_t j = begin; j < begin + 32; ++j)
        x[static_cast<size_t>(j)] = whole || j % 32 == 0 ? 1.0f : 126.5f / 127.0f;
    }
  }

  void prepare() {
    const tensor::DTypeTraits& t = tensor::traits(format.dtype);
    task.format = &format;
    task.weights = memory.data() + 1;
    task.row_bytes = k / t.block_elements * t.block_bytes;
    task.k = k;
    task.as_f32 = planes == 0;
    task.n_tokens = tokens;
    task.x_f32 = tensor::ConstMat(x.data(), tokens, k, k);
    if (planes > 0) {
      activation_bytes = aligned_bytes(quant::activations_bytes(format.activation, planes, tokens, k));
      task.x = quant::carve(format.activation, planes, tokens, k, activation_bytes.get());
      quantise_rows(Kernels::reference, task.x_f32, task.x, 0, tokens);
    }
    expected.assign(static_cast<size_t>(tokens * rows), 0);
    task.y = tensor::Mat{expected.data(), tokens, rows, rows};
    linear_rows(Kernels::reference, task, 0, rows, nullptr);
  }

  int64_t compare(Kernels set, int64_t n, bool with_bias) const {
    LinearTask part = task;
    part.n_tokens = n;
    return compare(name(set), LinearChoice(set, part), n, with_bias);
  }

  // Runs the first n tokens in two ranges of rows and compares; returns how many values were compared.
  int64_t compare(std::string_view by, const LinearChoice& choice, int64_t n, bool with_bias) const {
    LinearTask part = task;
    part.n_tokens = n;
    part.bias = with_bias ? bias.data() : nullptr;
    const int64_t stride = rows + 3;
    std::vector<float> y(static_cast<size_t>(n * stride), -12345.0f);
    part.y = tensor::Mat{y.data(), n, rows, stride};
    const int64_t step = choice.row_step(n);
    const int64_t cut = std::min(rows, (rows / 2 + step - 1) / step * step);
    const Bytes scratch = aligned_bytes(choice.scratch_bytes(part));
    LinearThread(scratch.get()).rows(choice.at(n), part, 0, cut);
    LinearThread(scratch.get()).rows(choice.at(n), part, cut, rows);
    int64_t wrong = 0;
    for (int64_t t = 0; t < n; ++t) {
      for (int64_t r = 0; r < rows; ++r) {
        const float dot = expected[static_cast<size_t>(t * rows + r)];
        const float wanted = with_bias ? dot + bias[static_cast<size_t>(r)] : dot;
        const float got = y[static_cast<size_t>(t * stride + r)];
        if (!same(wanted, got) && wrong++ == 0) {
          ADD_FAILURE() << tensor::traits(format.dtype).name << " " << by << ", " << choice.at(n).name << ", k " << k
                        << " rows " << rows << " tokens " << n << " planes " << planes << ": token " << t << " row "
                        << r << " is " << got << " instead of " << wanted;
        }
      }
      for (int64_t r = rows; r < stride; ++r)
        EXPECT_EQ(y[static_cast<size_t>(t * stride + r)], -12345.0f) << "written past the rows";
    }
    return n * rows;
  }
};

class LinearKernels : public testing::TestWithParam<size_t> {
 protected:
  const Format& format() const { return quant::all_formats()[GetParam()]; }
  int64_t block() const { return std::max<int64_t>(32, tensor::traits(format().dtype).block_elements); }
};

TEST(KernelSets, BeginWithTheReferenceAndAscend) {
  std::printf("kernel sets:");
  for (const Kernels set : kernel_sets()) std::printf(" %s", std::string(name(set)).c_str());
  std::printf("\n");
  EXPECT_EQ(kernel_sets().front(), Kernels::reference);
  EXPECT_TRUE(std::ranges::is_sorted(kernel_sets()));
  EXPECT_TRUE(can_run(best_kernel_set()));
}

// "The best" is no set of its own: wherever a set is asked for, it means the last of those that run here.
TEST(KernelSets, TheBestIsTheLastOfThem) {
  EXPECT_EQ(resolved(Kernels::best), best_kernel_set());
  EXPECT_TRUE(can_run(Kernels::best));
  EXPECT_EQ(linear_table(Kernels::best).data(), linear_table(best_kernel_set()).data());
  std::set<std::string_view> names;
  for (const Kernels set : all_kernels()) {
    EXPECT_EQ(can_run(set), set == Kernels::best || std::ranges::count(kernel_sets(), set) == 1) << name(set);
    EXPECT_EQ(parse_kernels(name(set)), set);
    EXPECT_TRUE(names.insert(name(set)).second) << name(set);
  }
}

int64_t run_shapes(const Format& format, int64_t block, int planes) {
  int64_t compared = 0;
  uint64_t seed = 1;
  const auto both = [&](Case& c, int64_t n, bool with_bias) {
    for (const Kernels set : fast_kernel_sets()) compared += c.compare(set, n, with_bias);
  };
  for (int64_t blocks : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 37}) {
    Case c(format, blocks * block, 7, 9, planes, seed++);
    if (blocks % 2 == 0) c.poison(seed);
    c.prepare();
    for (int64_t n : {1, 2, 3, 9}) both(c, n, blocks % 3 == 0);
  }
  if (format.activation != quant::Activation::f32) {
    Case c(format, 9 * block, 35, 25, planes, seed++);
    c.push_to_bounds(seed);
    c.prepare();
    for (int64_t n : {1, 7, 25}) both(c, n, false);
  }
  for (int64_t rows : {1, 8, 9, 33, 97}) {
    Case c(format, 3 * block, rows, rows == 33 ? 64 : 17, planes, seed++);
    c.prepare();
    for (int64_t n = 1; n <= 17; ++n) both(c, n, n % 2 == 0);
    if (rows == 33) both(c, 64, true);
  }
  return compared;
}

// What run_shapes compares on one kernel set: tokens and rows of its three loops. A kernel that is never asked would
// pass every comparison.
constexpr int64_t kShapeValues = 18 * 7 * (1 + 2 + 3 + 9) + (1 + 8 + 9 + 33 + 97) * (17 * 18 / 2) + 33 * 64;
constexpr int64_t kBoundValues = 35 * (1 + 7 + 25);

TEST_P(LinearKernels, EqualTheReferenceInExactMode) {
  if (format().activation == quant::Activation::f32) return;  // float weights run as f32
  if (fast_kernel_sets().empty()) GTEST_SKIP() << "this processor has no kernels but the reference";
  for (const int planes : {1, 2}) {
    const int64_t compared = run_shapes(format(), block(), planes);
    std::printf("%s, %d plane%s: %lld values compared\n", std::string(tensor::traits(format().dtype).name).c_str(),
                planes, planes == 1 ? "" : "s", static_cast<long long>(compared));
    EXPECT_EQ(compared, std::ssize(fast_kernel_sets()) * (kShapeValues + kBoundValues));
  }
}

TEST_P(LinearKernels, EqualTheReferenceInModeF32) {
  if (fast_kernel_sets().empty()) GTEST_SKIP() << "this processor has no kernels but the reference";
  int64_t compared = run_shapes(format(), block(), 0), per_set = kShapeValues + kBoundValues;
  if (format().activation == quant::Activation::f32) {  // rows of any length
    per_set = kShapeValues + 7 * 5 * (1 + 2 + 7);
    for (const int64_t k : {1, 7, 31, 33, 100, 255, 263}) {
      Case c(format(), k, 5, 7, 0, static_cast<uint64_t>(k));
      c.prepare();
      for (const Kernels set : fast_kernel_sets()) {
        for (int64_t n : {1, 2, 7}) compared += c.compare(set, n, n == 2);
      }
    }
  }
  std::printf("%s as f32: %lld values compared\n", std::string(tensor::traits(format().dtype).name).c_str(),
              static_cast<long long>(compared));
  EXPECT_EQ(compared, std::ssize(fast_kernel_sets()) * per_set);
}

// Every row of the tables alone, also where another goes before it, at the ends of its range of tokens.
TEST(LinearTable, EveryRowEqualsTheReference) {
  for (const Kernels set : fast_kernel_sets()) {
    for (const LinearRow& row : linear_table(set)) {
      int64_t compared = 0;
      for (const Format& format : quant::all_formats()) {
        for (const int planes : {0, 1, 2}) {
          if (planes > 0 && format.activation == quant::Activation::f32) continue;
          const int64_t block = std::max<int64_t>(32, tensor::traits(format.dtype).block_elements);
          const int64_t k = std::max((row.k_min + block - 1) / block * block, 9 * block),
                        last = std::min(row.tokens_max, row.tokens_min + 14);
          LinearTask asked;
          asked.format = &format;
          asked.k = k;
          asked.row_bytes = k / tensor::traits(format.dtype).block_elements * tensor::traits(format.dtype).block_bytes;
          asked.as_f32 = planes == 0;
          asked.x.planes = planes;
          if (!row.takes(asked)) continue;
          Case c(format, k, 7, last, planes, static_cast<uint64_t>(k + planes));
          c.prepare();
          for (const int64_t n : {row.tokens_min, last})
            compared += c.compare(name(set), LinearChoice(set, row, c.task), n, n == last);
        }
      }
      EXPECT_GT(compared, 0) << name(set) << ": no format has the row \"" << row.name << "\"";
    }
  }
}

// Rows that kernels take together, short ones of all lengths and longer ones with whole and broken turns of steps: groups
// of 4 and of 8 rows, whole and not.
TEST(LinearTable, RowsTakenTogetherEqualTheReference) {
  std::vector<int64_t> lengths(35);
  std::iota(lengths.begin(), lengths.end(), 16);
  lengths.insert(lengths.end(), {64, 78, 98, 128, 170, 176});
  for (const Format& format : quant::all_formats()) {
    if (format.activation != quant::Activation::a32) continue;
    for (const int planes : {1, 2}) {
      for (const int64_t blocks : lengths) {
        Case c(format, 32 * blocks, 21, 1, planes, static_cast<uint64_t>(100 * blocks));
        if (blocks % 3 == 0) c.poison(static_cast<uint64_t>(blocks));
        if (blocks % 3 == 1) c.push_to_bounds(static_cast<uint64_t>(blocks));
        c.prepare();
        for (const Kernels set : fast_kernel_sets()) {
          EXPECT_EQ(c.compare(set, 1, planes == 1), 21);
          for (const LinearRow& row : linear_table(set)) {  // also where this processor does not want it
            if (row.tokens_min != 1 || !row.takes(c.task)) continue;
            EXPECT_EQ(c.compare(name(set), LinearChoice(set, row, c.task), 1, planes == 2), 21);
          }
        }
      }
    }
  }
}

// Ranges follow one another from one token to any number, each with the first row that takes it.
TEST(LinearTable, RangesHaveTheFirstRowThatTakesThem) {
  for (const Kernels set : fast_kernel_sets()) {
    for (const Format& format : quant::all_formats()) {
      for (const int planes : {0, 1, 2}) {
        if (planes > 0 && format.activation == quant::Activation::f32) continue;
        for (const int64_t k : {256, 4096}) {
          Case c(format, k, 1, 1, planes, 3);
          c.prepare();
          const LinearChoice choice(set, c.task);
          ASSERT_EQ(choice.ranges().front().tokens_min, 1);
          ASSERT_EQ(choice.ranges().back().tokens_max, kAnyTokens);
          for (int64_t n = 1; n <= 40; ++n) {
            std::string_view wanted = "reference";
            for (const LinearRow& row : linear_table(set)) {
              if (row.is_wanted != nullptr && !row.is_wanted()) continue;
              if (wanted == "reference" && row.takes(c.task) && row.tokens_min <= n && n <= row.tokens_max)
                wanted = row.name;
            }
            EXPECT_EQ(choice.at(n).name, wanted)
                << name(set) << " " << tensor::traits(format.dtype).name << " planes " << planes << " tokens " << n;
            EXPECT_TRUE(choice.at(n).tokens_min <= n && n <= choice.at(n).tokens_max);
          }
        }
      }
    }
  }
}

// More activations than the kernels lay out at a time.
TEST(LinearPasses, EqualTheReference) {
  constexpr struct {
    tensor::DType dtype;
    int planes;
  } kCases[] = {{tensor::DType::Q4_K, 1},
                {tensor::DType::Q6_K, 1},
                {tensor::DType::Q6_K, 2},
                {tensor::DType::F16, 0},
                {tensor::DType::Q4_0, 2}};
  for (const auto& [dtype, planes] : kCases) {
    Case c(*quant::find_format(dtype), 37 * 256, 3, 115, planes, 5);
    c.prepare();
    for (const Kernels set : fast_kernel_sets()) EXPECT_EQ(c.compare(set, 115, true), 115 * 3);
  }
}

// Matrices of several formats that read the same activations, which one call lays out for the next; each in two ranges
// of rows.
TEST(LinearPasses, LaidOutActivationsServeEveryFormat) {
  using tensor::DType;
  constexpr int64_t kTokens = 9, kRows = 70, kCut = 32;
  for (const auto& dtypes : {std::vector{DType::Q4_0, DType::Q8_0, DType::Q4_1, DType::Q8_0},
                             std::vector{DType::Q6_K, DType::Q4_K, DType::Q6_K}}) {
    for (const int planes : {1, 2}) {
      std::vector<Case> cases;
      for (const DType dtype : dtypes)
        cases.emplace_back(*quant::find_format(dtype), 9 * 256, kRows, kTokens, planes, 11 + cases.size());
      for (Case& c : cases) c.x = cases.front().x, c.prepare();
      for (const Kernels set : fast_kernel_sets()) {
        for (const int64_t n : {int64_t{1}, int64_t{2}, int64_t{3}, kTokens}) {
          size_t bytes = 0;
          for (const Case& c : cases) bytes = std::max(bytes, linear_scratch_bytes(set, c.task));
          const Bytes scratch = aligned_bytes(bytes);
          LinearThread thread(scratch.get());
          for (const Case& c : cases) {
            std::vector<float> y(static_cast<size_t>(n * kRows));
            LinearTask task = c.task;
            task.x = cases.front().task.x;
            task.n_tokens = task.x.n_rows = n;
            task.y = tensor::Mat{y.data(), n, kRows, kRows};
            const LinearChoice choice(set, task);
            ASSERT_EQ(kCut % choice.row_step(n), 0);
            thread.rows(choice.at(n), task, 0, kCut);
            thread.rows(choice.at(n), task, kCut, kRows);
            int64_t wrong = 0;
            for (size_t i = 0; i < y.size(); ++i) wrong += same(y[i], c.expected[i]) ? 0 : 1;
            EXPECT_EQ(wrong, 0) << tensor::traits(c.format.dtype).name << " " << name(set) << " planes " << planes
                                << " tokens " << n << ", " << choice.at(n).name;
          }
        }
      }
    }
  }
}

// How a row of the table walks is how its range does.
TEST(LinearTable, RangesWalkAsTheirRows) {
  for (const Kernels set : fast_kernel_sets()) {
    for (const LinearRow& row : linear_table(set)) {
      for (const Format& format : quant::all_formats()) {
        Case c(format, 256, 1, 1, format.activation == quant::Activation::f32 ? 0 : 1, 3);
        c.prepare();
        if (!row.takes(c.task)) continue;
        const LinearChoice choice(set, row, c.task);
        const LinearRange& range = choice.at(row.tokens_min);
        if (range.kernel.vector == nullptr) continue;
        EXPECT_EQ(range.layout.walk.one_by_one, row.walk.one_by_one) << name(set) << " " << row.name;
        EXPECT_EQ(range.layout.walk.ahead_bytes, row.walk.ahead_bytes) << name(set) << " " << row.name;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, LinearKernels, testing::Range<size_t>(0, quant::all_formats().size()),
                         [](const auto& param) {
                           return std::string(tensor::traits(quant::all_formats()[param.param].dtype).name);
                         });

}  // namespace
}  // namespace assay::backend::cpu
