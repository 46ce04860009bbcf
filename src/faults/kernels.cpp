// Known faults of integer kernels: how activations become 8-bit integers, and how products of bytes
// are summed.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <vector>

#include "faults/linear.h"
#include "num/f16.h"
#include "ops/linear/linear.h"
#include "quant/q4_0.h"

namespace assay::faults::dictionary {
namespace {

const tensor::TensorView& matrix_of(const Case& c) { return c.view(c.record<ops::Linear>().w); }
const quant::Format& format_of(const Case& c) { return *quant::find_format(matrix_of(c).dtype); }

// Activations as integers, one scale a block.
struct Integers {
  int64_t block = 32, k = 0;
  std::vector<int> q;
  std::vector<double> d;
  double scale(int64_t row, int64_t i_block) const { return d[static_cast<size_t>(row * (k / block) + i_block)]; }
  const int* at(int64_t row, int64_t i_block) const { return q.data() + row * k + i_block * block; }
};
using SharedIntegers = std::shared_ptr<const Integers>;

// scale_of: of the block's values. The integers are clamped to least .. 127.
SharedIntegers integers_of(const Case& c, int64_t block, int least,
                           const std::function<double(std::span<const double>)>& scale_of) {
  auto x = std::make_shared<Integers>();
  x->block = block;
  x->k = depth_of(c);
  for (int64_t at = 0; at < c.failed.n_rows * x->k; at += block) {
    const std::span<const double> values(c.failed.a.data() + at, static_cast<size_t>(block));
    const bool finite = std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); });
    const double d = finite ? scale_of(values) : std::nan("");  // poison stays visible
    x->d.push_back(d);
    for (const double value : values) {
      const double rounded = d != 0 && finite ? std::nearbyint(value / d) : 0.0;
      x->q.push_back(static_cast<int>(std::clamp(rounded, static_cast<double>(least), 127.0)));
    }
  }
  return x;
}

double farthest(std::span<const double> values) {
  return *std::max_element(values.begin(), values.end(), [](double a, double b) { return std::abs(a) < std::abs(b); });
}
double scale_127(std::span<const double> values) { return std::abs(farthest(values)) / 127; }

// y = the sum over blocks of block_sum, and the bias.
using BlockSum = std::function<double(const std::byte* block, const int* q, double d)>;
SampleFunction blocks_with(const Case& c, SharedIntegers x, BlockSum block_sum) {
  return [&c, x = std::move(x), block_sum = std::move(block_sum), bias = right_linear(c).bias](const Sample& sample,
                                                                                               double* y) {
    const tensor::TensorView& view = matrix_of(c);
    const int64_t bytes = tensor::traits(view.dtype).block_bytes;
    const auto n_columns = static_cast<int64_t>(sample.columns.size());
    c.pool.run(n_columns, [&](int64_t i, int) {
      const int64_t r = sample.columns[static_cast<size_t>(i)];
      for (size_t s = 0; s < sample.rows.size(); ++s) {
        double sum = bias.empty() ? 0.0 : bias[static_cast<size_t>(r)];
        for (int64_t b = 0; b < x->k / x->block; ++b) {
          sum += block_sum(view.row(r) + b * bytes, x->at(sample.rows[s], b), x->scale(sample.rows[s], b));
        }
        y[static_cast<int64_t>(s) * n_columns + i] = sum;
      }
    });
  };
}

// Whether the source multiplies 8-bit integers over the blocks of the weight's own format.
bool multiplies_integers(const Case& c) {
  const int64_t block = declared_block(c);
  return block != 0 && c.declared.activation_bits == 8 && depth_of(c) % block == 0 &&
         tensor::traits(matrix_of(c).dtype).block_elements == block;
}

// The scale of a block from some of its registers only.
void offer_quantiser(const Case& c, Sink& out) {
  if (!multiplies_integers(c)) return;
  const int64_t block = declared_block(c);
  for (const int64_t parts : {2, 4}) {
    for (const int64_t part : {int64_t{0}, parts - 1}) {
      const auto n = static_cast<size_t>(block / parts);
      const SharedIntegers x = integers_of(c, block, -127, [=](std::span<const double> values) {
        return scale_127(values.subspan(static_cast<size_t>(part) * n, n));
      });
      auto values = std::make_shared<std::vector<double>>();
      for (size_t i = 0; i < x->q.size(); ++i) values->push_back(x->q[i] * x->d[i / static_cast<size_t>(block)]);
      LinearRule rule = right_linear(c);
      rule.x = values;
      out.add(fmt::format("a block of activations takes its scale from its {} 1/{}, and cuts what "
                          "is larger",
                          part == 0 ? "first" : "last", parts),
              linear_with(c, std::move(rule)));
    }
  }
}

const int8_t* bytes_of_q8_0(const std::byte* block) {
  return static_cast<const int8_t*>(static_cast<const void*>(block + 2));
}

// Activations + 128 as unsigned bytes; two products added in int16.
void offer_saturation(const Case& c, Sink& out) {
  if (!multiplies_integers(c) || matrix_of(c).dtype != tensor::DType::Q8_0) return;
  out.add("two products of bytes are added in 16 bits and saturate (maddubs, activations + 128)",
          blocks_with(c, integers_of(c, 32, -127, scale_127), [&c](const std::byte* block, const int* q, double d) {
            const int8_t* w = bytes_of_q8_0(block);
            int sum = 0;
            for (int j = 0; j < 32; j += 2) {
              const int pair = (q[j] + 128) * w[j] + (q[j + 1] + 128) * w[j + 1];
              sum += std::clamp(pair, -32768, 32767) - 128 * (w[j] + w[j + 1]);
            }
            return static_cast<double>(format_of(c).scales(block).d) * d * sum;
          }));
}

// The element farthest from zero becomes -128; moved onto a negative weight its sign cannot turn.
void offer_sign_trick(const Case& c, Sink& out) {
  const quant::Format& format = format_of(c);
  if (!multiplies_integers(c) || format.integers == nullptr || format.has_min) return;
  const SharedIntegers x =
      integers_of(c, 256, -128, [](std::span<const double> values) { return farthest(values) / -128; });
  out.add(
      "products of activations of -128 with negative weights have the wrong sign (sign_epi8 "
      "cannot turn -128)",
      blocks_with(c, x, [&format](const std::byte* block, const int* q, double d) {
        quant::Integers256 n;
        format.integers(block, n);
        double sum = 0;
        for (int j = 0; j < 256; ++j) {
          const int product = n.w[j] * q[j];
          sum += n.scale[j / 16] * (q[j] == -128 && n.w[j] < 0 ? -product : product);
        }
        return static_cast<double>(format.scales(block).d) * d * sum;
      }));
}

// Weights around 8 as unsigned nibbles, and 8 times the sum of the activations taken off.
void offer_offset_sum(const Case& c, Sink& out) {
  if (!multiplies_integers(c) || matrix_of(c).dtype != tensor::DType::Q4_0) return;
  for (const bool interleaved : {false, true}) {
    const auto block_sum = [interleaved](const std::byte* bytes, const int* q, double d) {
      const auto block = quant::load_block<quant::BlockQ4_0>(bytes);
      int sum = 0, sum_q = 0;
      for (int j = 0; j < 32; ++j) {
        const bool high = interleaved ? j % 2 == 1 : j >= 16;
        const uint8_t byte = block.nibbles[interleaved ? j / 2 : j % 16];
        sum += (high ? byte >> 4 : byte & 15) * q[j];
        sum_q += q[j];
      }
      return static_cast<double>(num::half_to_float(block.d)) * (d * sum - 8.0 * sum_q);
    };
    out.add(fmt::format("the sum of the activations that takes the nibbles' 8 off lacks its scale{}",
                        interleaved ? ", and nibbles are taken low, high, low, high" : ""),
            blocks_with(c, integers_of(c, 32, -127, scale_127), block_sum));
  }
}

constexpr Entry kEntries[] = {
    {"quantiser_part_block", "C27", offer_quantiser},
    {"int16_saturation", "C35", offer_saturation},
    {"sign_of_minus_128", "C36", offer_sign_trick},
    {"offset_sum_unscaled", "C26", offer_offset_sum},
};

}  // namespace

std::span<const Entry> kernel_entries() noexcept { return kEntries; }

}  // namespace assay::faults::dictionary
