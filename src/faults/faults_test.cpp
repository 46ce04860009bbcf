// The likeliest faults, each computed here by plain loops that share no code with the dictionary,
// and what the dictionary calls them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <numbers>

#include "faults/dictionary.h"
#include "num/f16.h"
#include "ops/embed/embed.h"
#include "ops/linear/linear.h"
#include "ops/rows/rms_norm.h"
#include "quant/format.h"
#include "support/failed_ops.h"
#include "support/random_numbers.h"
#include "support/tiny_plan.h"

namespace assay::faults {
namespace {

using test::fed_from;
using test::plain_f32;
using test::RecordedRun;
using test::TinyPlan;
using test::TinyShape;

// A square query matrix, fewer key heads than query heads; two batches, the second of which fails.
TinyShape small_shape(tensor::DType dtype = tensor::DType::Q4_0) {
  TinyShape shape;
  shape.d_model = 128, shape.head_dim = 32, shape.n_heads = 4, shape.n_kv_heads = 2;
  shape.dtype = dtype;
  return shape;
}

class DictionaryFaults : public testing::Test {
 protected:
  void use(const TinyShape& shape) {
    tiny_ = std::make_unique<TinyPlan>(shape);
    run_ = std::make_unique<RecordedRun>(tiny_->plan, std::vector{fed_from(0, 9), fed_from(9, 7)}, pool_);
  }
  void SetUp() override { use(small_shape()); }

  const ops::Plan& plan() const { return tiny_->plan; }
  FailedOp op(std::string_view name, int32_t layer = 0) const { return run_->op(name, layer, 1); }
  const tensor::TensorView& view(ops::WeightId id) const { return plan().weights[static_cast<size_t>(id)].view; }
  template <class Record>
  const Record& record(const FailedOp& f) const {
    return plan().ops[static_cast<size_t>(f.i_op)].get<Record>();
  }

  std::vector<double> weights(ops::WeightId id) const {
    const tensor::TensorView& v = view(id);
    std::vector<float> w(static_cast<size_t>(v.shape.elements()));
    quant::decode_row(*quant::find_format(v.dtype), v.data.data(), v.shape.elements(), w.data());
    return {w.begin(), w.end()};
  }

  // The first cause must have this id, reproduce what was found, and say this.
  void expect(FailedOp f, std::string_view id, std::string_view says) {
    for (double& x : f.found) x = static_cast<double>(static_cast<float>(x));
    const std::vector<Cause> causes = find_causes(plan(), f, plain_f32(), pool_);
    ASSERT_FALSE(causes.empty()) << id;
    EXPECT_EQ(causes[0].id, id) << causes[0].text;
    EXPECT_TRUE(causes[0].reproduces) << causes[0].residual;
    EXPECT_LT(causes[0].residual, 1e-2);
    EXPECT_NE(causes[0].text.find(says), std::string::npos) << causes[0].text;
  }

  base::ThreadPool pool_{1};
  std::unique_ptr<TinyPlan> tiny_;
  std::unique_ptr<RecordedRun> run_;
};

size_t index(int64_t i) { return static_cast<size_t>(i); }

// found[t][j] = formula(t, j)
template <class Formula>
FailedOp with(FailedOp f, Formula formula) {
  for (int64_t t = 0; t < f.n_rows; ++t) {
    for (int64_t j = 0; j < f.width; ++j) f.found[index(t * f.width + j)] = formula(t, j);
  }
  return f;
}

TEST_F(DictionaryFaults, Norms) {
  const FailedOp f = op("ffn_norm");
  const auto& norm = record<ops::RmsNorm>(f);
  const std::vector<double> w = weights(norm.w);
  const auto x = [&](int64_t t, int64_t j) { return f.a[index(t * f.a_width + j)]; };
  const auto mean_of = [&](int64_t t, auto value) {
    double sum = 0;
    for (int64_t j = 0; j < f.a_width; ++j) sum += value(x(t, j));
    return sum / static_cast<double>(f.a_width);
  };
  const auto square = [](double v) { return v * v; };
  expect(with(f, [&](int64_t t, int64_t j) { return x(t, j) / std::sqrt(mean_of(t, square) + 1e-2) * w[index(j)]; }),
         "norm_eps", "eps 0.01 in place of the file's 1e-05");
  expect(with(f,
              [&](int64_t t, int64_t j) {
                const double mean = mean_of(t, [](double v) { return v; });
                const double variance = mean_of(t, [&](double v) { return (v - mean) * (v - mean); });
                return (x(t, j) - mean) / std::sqrt(variance + 1e-5) * w[index(j)];
              }),
         "norm_layer_norm", "LayerNorm");
  expect(
      with(f, [&](int64_t t, int64_t j) { return x(t, j) / std::sqrt(mean_of(t, square) + 1e-5) * (1 + w[index(j)]); }),
      "norm_weight_plus_one", "1 + weight");
  const std::vector<double> other = weights(record<ops::RmsNorm>(op("attn_norm")).w);
  expect(
      with(f, [&](int64_t t, int64_t j) { return x(t, j) / std::sqrt(mean_of(t, square) + 1e-5) * other[index(j)]; }),
      "norm_other_weight", "in place of");
}

// sum over the input of w(r, j) x(t, j), plus bias
template <class Weight>
FailedOp product(const FailedOp& f, const std::vector<double>& bias, Weight weight) {
  return with(f, [&](int64_t t, int64_t r) {
    double sum = bias.empty() ? 0 : bias[index(r)];
    for (int64_t j = 0; j < f.a_width; ++j) sum += weight(r, j) * f.a[index(t * f.a_width + j)];
    return sum;
  });
}

TEST_F(DictionaryFaults, MatricesTakenWrongly) {
  const FailedOp q = op("attn_q");
  const auto& linear = record<ops::Linear>(q);
  const std::vector<double> w = weights(linear.w), bias = weights(linear.bias);
  const int64_t n = q.width, k = q.a_width;
  ASSERT_EQ(n, k);
  expect(product(q, bias, [&](int64_t r, int64_t j) { return w[index(j * k + r)]; }), "weight_layout", "transposed");
  expect(product(q, {}, [&](int64_t r, int64_t j) { return w[index(r * k + j)]; }), "linear_bias", "dropped");
  expect(product(q, bias, [&](int64_t r, int64_t j) { return j < 96 ? w[index(r * k + j)] : 0.0; }), "half_blocks",
         "last block of 32");
  expect(
      product(q, bias, [&](int64_t r, int64_t j) { return j % 64 < 16 || j % 64 >= 32 ? w[index(r * k + j)] : 0.0; }),
      "half_blocks", "inputs 16 to 31 of each 64");

  const FailedOp key = op("attn_k");
  const std::vector<double> wk = weights(record<ops::Linear>(key).w), wv = weights(record<ops::Linear>(op("attn_v")).w);
  expect(product(key, {}, [&](int64_t r, int64_t j) { return wk[index(j * key.width + r)]; }), "weight_layout",
         "[64][128] is read as [128][64]");
  expect(product(key, {}, [&](int64_t r, int64_t j) { return wv[index(r * k + j)]; }), "weights_swapped",
         "in place of");

  // What converters do: a head's rows as [2][d / 2], turned to [d / 2][2]; here with the number of
  // query heads, for keys.
  std::vector<int64_t> order;
  const int64_t heads = 4, d = key.width / heads;
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t i = 0; i < d / 2; ++i) {
      for (int64_t s = 0; s < 2; ++s) order.push_back(h * d + s * (d / 2) + i);
    }
  }
  expect(product(key, {}, [&](int64_t r, int64_t j) { return wk[index(order[index(r)] * k + j)]; }), "rows_permuted",
         "in 4 heads");
}

TEST_F(DictionaryFaults, TailsAndHeads) {
  TinyShape shape = small_shape();
  shape.vocab_size = 100;
  use(shape);
  const FailedOp f = op("output", -1);
  const std::vector<double> w = weights(record<ops::Linear>(f).w),
                            table = weights(record<ops::Embed>(op("embed", -1)).table);
  expect(product(f, {}, [&](int64_t r, int64_t j) { return table[index(r * f.a_width + j)]; }), "tied_head",
         "in place of");
  expect(product(f, {}, [&](int64_t r, int64_t j) { return r < 64 ? w[index(r * f.a_width + j)] : 0.0; }), "tail_rows",
         "from 64 of 100 on");
  FailedOp capped = f;
  for (double& y : capped.found) y = 30 * std::tanh(y / 30);
  expect(capped, "logits_softcap", "capped at 30");
}

TEST_F(DictionaryFaults, AHeadThatWasNeverLoaded) {
  const FailedOp f = op("output", -1);
  test::Random random(3);
  std::vector<double> noise;
  for (size_t i = 0; i < weights(record<ops::Linear>(f).w).size(); ++i)
    noise.push_back(static_cast<double>(random.normal()));
  const std::vector<Cause> causes =
      find_causes(plan(), product(f, {}, [&](int64_t r, int64_t j) { return noise[index(r * f.a_width + j)]; }),
                  plain_f32(), pool_);
  ASSERT_EQ(causes.size(), 1u);
  EXPECT_EQ(causes[0].id, "unrelated_weight");
  EXPECT_FALSE(causes[0].reproduces);
}

// Blocks decoded from their bytes in wrong ways. value(block, j): element j of a block.
template <class Value>
FailedOp decoded(const FailedOp& f, const tensor::TensorView& v, Value value) {
  const tensor::DTypeTraits& t = tensor::traits(v.dtype);
  return product(f, {}, [&](int64_t r, int64_t j) {
    const auto* block =
        static_cast<const uint8_t*>(static_cast<const void*>(v.row(r) + j / t.block_elements * t.block_bytes));
    return value(block, j % t.block_elements);
  });
}
double half_at(const uint8_t* bytes) {
  return static_cast<double>(num::half_to_float(static_cast<uint16_t>(bytes[0] | bytes[1] << 8)));
}

TEST_F(DictionaryFaults, DecodeOfNibbles) {
  const FailedOp f = op("attn_k");
  const tensor::TensorView& v = view(record<ops::Linear>(f).w);
  expect(decoded(f, v,
                 [](const uint8_t* b, int64_t j) {
                   return half_at(b) * ((j % 2 == 0 ? b[2 + j / 2] & 15 : b[2 + j / 2] >> 4) - 8);
                 }),
         "decode_nibbles", "low, high, low, high");
  expect(
      decoded(f, v,
              [](const uint8_t* b, int64_t j) { return half_at(b) * (j < 16 ? b[2 + j] & 15 : b[2 + j - 16] >> 4); }),
      "decode_offset", "unsigned");
}

TEST_F(DictionaryFaults, DecodeOfSuperBlocks) {
  TinyShape shape = small_shape(tensor::DType::Q4_K);
  shape.d_model = shape.d_ff = 256, shape.head_dim = 64;
  use(shape);
  FailedOp f = op("attn_k");
  const auto scale = [](const uint8_t* b, int64_t i) {
    return i < 4 ? b[4 + i] & 63 : (b[8 + i] & 15) | (b[i] >> 6 << 4);
  };
  const auto min = [](const uint8_t* b, int64_t i) {
    return i < 4 ? b[8 + i] & 63 : (b[8 + i] >> 4) | (b[4 + i] >> 6 << 4);
  };
  const auto nibble = [](const uint8_t* b, int64_t j) {
    return j / 32 % 2 == 0 ? b[16 + j / 64 * 32 + j % 32] & 15 : b[16 + j / 64 * 32 + j % 32] >> 4;
  };
  const tensor::TensorView& q4 = view(record<ops::Linear>(f).w);
  expect(decoded(f, q4,
                 [&](const uint8_t* b, int64_t j) {
                   return half_at(b) * scale(b, j / 32) * nibble(b, j) + half_at(b + 2) * min(b, j / 32);
                 }),
         "decode_min_sign", "wrong sign");
  expect(decoded(f, q4,
                 [&](const uint8_t* b, int64_t j) {
                   const int64_t i = j / 32;
                   const int s = i < 4 ? b[4 + i] & 63 : b[8 + i] & 15, m = i < 4 ? b[8 + i] & 63 : b[8 + i] >> 4;
                   return half_at(b) * s * nibble(b, j) - half_at(b + 2) * m;
                 }),
         "decode_k_scales", "top two bits");
  expect(decoded(f, q4,
                 [&](const uint8_t* b, int64_t j) {
                   return half_at(b) * scale(b, j / 32) / 63 * nibble(b, j) - half_at(b + 2) * min(b, j / 32) / 63;
                 }),
         "decode_scales_63", "63");

  shape.dtype = tensor::DType::Q6_K;
  use(shape);
  f = op("attn_k");
  expect(decoded(f, view(record<ops::Linear>(f).w),
                 [](const uint8_t* b, int64_t j) {
                   const int low = j % 2 == 0 ? b[j / 2] & 15 : b[j / 2] >> 4,
                             high = b[128 + j / 4] >> (2 * (j % 4)) & 3;
                   return half_at(b + 208) * static_cast<int8_t>(b[192 + j / 16]) * ((low | high << 4) - 32);
                 }),
         "decode_q6_order", "one after another");

  shape.dtype = tensor::DType::Q2_K;
  use(shape);
  f = op("attn_k");
  expect(decoded(f, view(record<ops::Linear>(f).w),
                 [](const uint8_t* b, int64_t j) {
                   const int q = b[16 + j / 128 * 32 + j % 32] >> (2 * (j / 32 % 4)) & 3;
                   const int64_t lane = j / 128 * 8 + j % 32 / 16 * 4 + j / 32 % 4;  // of a half [2][4] for [4][2]
                   return half_at(b + 80) * (b[lane] & 15) * q - half_at(b + 82) * (b[lane] >> 4);
                 }),
         "decode_scale_lanes", "wrong 16 weights");
}

TEST_F(DictionaryFaults, EightBitProducts) {
  use(small_shape(tensor::DType::Q8_0));
  FailedOp f = op("attn_k");
  Declared declared = plain_f32();
  declared.activation_bits = 8;
  const tensor::TensorView& v = view(record<ops::Linear>(f).w);
  for (int64_t t = 0; t < f.n_rows; ++t) {
    for (int64_t r = 0; r < f.width; ++r) {
      double sum = 0;
      for (int64_t first = 0; first < f.a_width; first += 32) {
        float largest = 0;
        for (int64_t j = first; j < first + 32; ++j)
          largest = std::max(largest, std::fabs(static_cast<float>(f.a[index(t * f.a_width + j)])));
        const auto* block = static_cast<const uint8_t*>(static_cast<const void*>(v.row(r) + first / 32 * 34));
        int inner = 0;
        for (int64_t j = 0; j < 32; j += 2) {
          int pair = 0, sum_of_q = 0;
          for (int64_t i = j; i < j + 2; ++i) {
            const int q = static_cast<int>(
                std::lrint(static_cast<float>(f.a[index(t * f.a_width + first + i)]) * (127.0f / largest)));
            pair += (static_cast<int8_t>(block[2 + i]) + 128) * q;
            sum_of_q += q;
          }
          inner += std::clamp(pair, -32768, 32767) - 128 * sum_of_q;
        }
        sum += half_at(block) * static_cast<double>(largest / 127.0f) * inner;
      }
      f.found[index(t * f.width + r)] = sum;
    }
  }
  const std::vector<Cause> causes = find_causes(plan(), f, declared, pool_);
  ASSERT_FALSE(causes.empty());
  EXPECT_EQ(causes[0].id, "int16_saturation") << causes[0].text;
  EXPECT_TRUE(causes[0].reproduces);
}

// Rotation of one head. pair(i): its two elements.
template <class Pair, class Angle>
FailedOp rotated(const FailedOp& f, int64_t d, Pair pair, Angle angle) {
  FailedOp out = f;
  for (int64_t t = 0; t < f.n_rows; ++t) {
    for (int64_t head = 0; head < f.width; head += d) {
      for (int64_t i = 0; i < d / 2; ++i) {
        const auto [a, b] = pair(i);
        const double x = f.a[index(t * f.width + head + a)], y = f.a[index(t * f.width + head + b)], turn = angle(t, i);
        out.found[index(t * f.width + head + a)] = x * std::cos(turn) - y * std::sin(turn);
        out.found[index(t * f.width + head + b)] = x * std::sin(turn) + y * std::cos(turn);
      }
    }
  }
  return out;
}

TEST_F(DictionaryFaults, Rotations) {
  const int64_t d = 32;
  const auto neighbours = [](int64_t i) { return std::pair{2 * i, 2 * i + 1}; };
  const auto halves = [](int64_t i) { return std::pair{i, i + d / 2}; };
  for (const char* name : {"attn_q_rope", "attn_k_rope"}) {
    const FailedOp f = op(name);
    const auto at = [&](int64_t t) { return static_cast<double>(f.positions[index(t)]); };
    const auto frequency = [](double theta, int64_t i) {
      return std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(d));
    };
    expect(rotated(f, d, halves, [&](int64_t t, int64_t i) { return at(t) * frequency(1e4, i); }), "rope_pairing",
           "halves (i, i + d/2) where");
    expect(rotated(f, d, neighbours, [&](int64_t t, int64_t i) { return at(t) * frequency(1e6, i); }), "rope_theta",
           "base is 1e+06 in place of the file's 10000");
    expect(rotated(f, d, neighbours, [&](int64_t t, int64_t i) { return (at(t) + 1) * frequency(1e4, i); }),
           "rope_position_shift", "+1");
    expect(rotated(f, d, neighbours, [&](int64_t t, int64_t i) { return (at(t) - 9) * frequency(1e4, i); }),
           "rope_position_start", "start from 0");
    expect(rotated(f, d, neighbours, [&](int64_t t, int64_t i) { return -at(t) * frequency(1e4, i); }),
           "rope_direction", "backwards");
    expect(rotated(f, d, neighbours, [&](int64_t t, int64_t i) { return at(t) / 4 * frequency(1e4, i); }),
           "rope_scaling", "divided by 4");
    expect(rotated(f, d, neighbours,
                   [&](int64_t t, int64_t i) {
                     const double plain = frequency(1e4, i), wave = 2 * std::numbers::pi / plain;
                     if (wave < 2048) return at(t) * plain;
                     if (wave > 8192) return at(t) * plain / 8;
                     const double smooth = (8192 / wave - 1) / 3;
                     return at(t) * ((1 - smooth) * plain / 8 + smooth * plain);
                   }),
           "rope_scaling", "Llama 3's scaling by 8");
    expect(rotated(f, d, neighbours,
                   [&](int64_t t, int64_t i) {
                     return i < d / 4 ? at(t) * std::pow(1e4, -2.0 * static_cast<double>(i) / (d / 2)) : 0.0;
                   }),
           "rope_dims", "16 of a head's 32");
  }
}

struct Plain {  // attention by plain loops, with what may be wrong
  std::function<bool(int64_t key, int64_t position)> sees = [](int64_t key, int64_t position) {
    return key <= position;
  };
  std::function<int64_t(int64_t head)> kv_head = [](int64_t head) { return head / 2; };
  double scale = 1 / std::sqrt(32.0);
  std::function<double(double)> product = [](double x) { return x; };
};

FailedOp attended(const FailedOp& f, const Plain& p) {
  FailedOp out = f;
  const int64_t d = 32;
  const bounds::KvHistory& h = f.history.at(0);
  for (int64_t t = 0; t < f.n_rows; ++t) {
    for (int64_t head = 0; head < f.width / d; ++head) {
      const int64_t first = p.kv_head(head) * d;
      std::vector<double> weight(index(h.n_positions()), 0.0);
      double sum = 0, largest = -std::numeric_limits<double>::infinity();
      for (int64_t j = 0; j < h.n_positions(); ++j) {
        if (!p.sees(j, f.positions[index(t)])) continue;
        double score = 0;
        for (int64_t i = 0; i < d; ++i)
          score += f.a[index(t * f.width + head * d + i)] * h.k[index(j * h.width + first + i)];
        weight[index(j)] = p.product(score) * p.scale;
        largest = std::max(largest, weight[index(j)]);
      }
      for (int64_t j = 0; j < h.n_positions(); ++j) {
        if (p.sees(j, f.positions[index(t)])) sum += weight[index(j)] = std::exp(weight[index(j)] - largest);
      }
      for (int64_t i = 0; i < d; ++i) {
        double y = 0;
        for (int64_t j = 0; j < h.n_positions(); ++j) {
          if (weight[index(j)] != 0) y += weight[index(j)] / sum * h.v[index(j * h.width + first + i)];
        }
        out.found[index(t * f.width + head * d + i)] = y;
      }
    }
  }
  return out;
}

TEST_F(DictionaryFaults, Attention) {
  const FailedOp f = op("attention");
  Plain plain;
  for (size_t i = 0; i < f.found.size(); ++i)
    ASSERT_NEAR(attended(f, plain).found[i], f.found[i], 1e-9 * (1 + std::abs(f.found[i])));
  plain.kv_head = [](int64_t head) { return head % 2; };
  expect(attended(f, plain), "attention_heads", "tiled");
  plain = {};
  plain.scale = 1;
  expect(attended(f, plain), "attention_scale", "missing");
  plain = {};
  plain.sees = [](int64_t, int64_t) { return true; };
  expect(attended(f, plain), "attention_mask", "no causal mask");
  plain.sees = [](int64_t key, int64_t position) { return key <= position + 1; };
  expect(attended(f, plain), "attention_mask", "off by one");
  plain.sees = [](int64_t key, int64_t position) { return key < position; };
  expect(attended(f, plain), "attention_mask", "does not see itself");
  plain.sees = [](int64_t key, int64_t position) { return key <= position && key >= 9; };
  expect(attended(f, plain), "attention_batch", "only keys of the current batch");
  plain.sees = [](int64_t key, int64_t position) { return key <= position && position - key < 8; };
  expect(attended(f, plain), "attention_window", "a window of 8 keys is applied");

  FailedOp swapped = f;
  std::swap(swapped.history.at(0).k, swapped.history.at(0).v);
  swapped.found = attended(swapped, {}).found;
  swapped.history = f.history;
  expect(swapped, "kv_swapped", "swapped");
}

TEST_F(DictionaryFaults, AttentionWindowOffByOne) {
  TinyShape shape = small_shape();
  shape.window = 6;
  use(shape);
  Plain plain;
  plain.sees = [](int64_t key, int64_t position) { return key <= position && position - key < 7; };
  expect(attended(op("attention"), plain), "attention_window", "7 keys in place of 6");
  plain.sees = [](int64_t key, int64_t position) { return key <= position && position - key < 5; };
  expect(attended(op("attention"), plain), "attention_window", "5 keys in place of 6");
  plain.sees = [](int64_t key, int64_t position) { return key <= position; };
  expect(attended(op("attention"), plain), "attention_window", "window of 6 keys is not applied");
}

TEST_F(DictionaryFaults, AttentionStridesAndOverflow) {
  const FailedOp f = op("attention");
  FailedOp packed = f;  // [head][position][dim] read from [position][head][dim]
  bounds::KvHistory& h = packed.history.at(0);
  const int64_t n = h.n_positions();
  for (int64_t head = 0; head < 2; ++head) {
    for (int64_t p = 0; p < n; ++p) {
      for (int64_t i = 0; i < 32; ++i) {
        h.k[index(p * 64 + head * 32 + i)] = f.history.at(0).k[index(head * n * 32 + p * 32 + i)];
        h.v[index(p * 64 + head * 32 + i)] = f.history.at(0).v[index(head * n * 32 + p * 32 + i)];
      }
    }
  }
  packed.found = attended(packed, {}).found;
  packed.history = f.history;
  expect(packed, "kv_stride", "packed");

  FailedOp large = f;  // products near the end of f16, as some models have them
  double largest = 0;
  for (const double x : f.a) largest = std::max(largest, std::abs(x));
  for (double& x : large.a) x *= 65504 / largest;
  large.expected.y = attended(large, {}).found;
  Plain half;
  half.product = [](double x) {
    return static_cast<double>(num::half_to_float(num::float_to_half(static_cast<float>(x))));
  };
  large.found = attended(large, half).found;
  ASSERT_TRUE(std::any_of(large.found.begin(), large.found.end(), [](double x) { return std::isnan(x); }));
  const std::vector<Cause> causes = find_causes(plan(), large, plain_f32(), pool_);
  ASSERT_FALSE(causes.empty());
  EXPECT_EQ(causes[0].id, "attention_overflow") << causes[0].text;
}

TEST_F(DictionaryFaults, GatesAndSums) {
  const FailedOp f = op("ffn_act");
  const auto gate = [&](int64_t t, int64_t j) { return f.a[index(t * f.width + j)]; };
  const auto up = [&](int64_t t, int64_t j) { return f.b[index(t * f.width + j)]; };
  const auto silu = [](double x) { return x / (1 + std::exp(-x)); };
  expect(with(f, [&](int64_t t, int64_t j) { return silu(up(t, j)) * gate(t, j); }), "gate_swapped", "swapped");
  expect(with(f,
              [&](int64_t t, int64_t j) {
                const double x = gate(t, j);
                return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x))) *
                       up(t, j);
              }),
         "gate_activation", "GELU (tanh) in place of SiLU");
  expect(with(f, [&](int64_t t,
                     int64_t j) { return 0.5 * gate(t, j) * std::erfc(-gate(t, j) / std::sqrt(2.0)) * up(t, j); }),
         "gate_activation", "GELU (erf)");

  const FailedOp sum = op("residual");
  expect(with(sum, [&](int64_t t, int64_t j) { return sum.b[index(t * sum.width + j)]; }), "add_missing",
         "residual is missing");
  expect(with(sum, [&](int64_t t,
                       int64_t j) { return sum.a[index(t * sum.width + j)] + 2 * sum.b[index(t * sum.width + j)]; }),
         "add_twice", "branch is added twice");
}

TEST_F(DictionaryFaults, Embeddings) {
  TinyShape shape = small_shape();
  shape.gemma = true;
  use(shape);
  const FailedOp f = op("embed", -1);
  const std::vector<double> table = weights(record<ops::Embed>(f).table);
  const int64_t vocabulary = 64, d = f.width;
  const auto token = [&](int64_t t) { return f.tokens[index(t)]; };
  expect(with(f, [&](int64_t t, int64_t j) { return 16 * table[index(j * vocabulary + token(t))]; }), "embed_column",
         "column in place of a row");
  expect(with(f, [&](int64_t t, int64_t j) { return table[index(token(t) * d + j)]; }), "embed_scale",
         "scale 16 is missing");
  expect(with(f, [&](int64_t t, int64_t j) { return 16 * table[index((token(t) + 1) * d + j)]; }), "embed_row",
         "after the token's own");
}

}  // namespace
}  // namespace assay::faults
