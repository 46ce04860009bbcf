// Known ways to multiply with the right matrix wrongly: its decoding, the activations, the bias,
// what follows.
#include "faults/linear.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/aligned_buffer.h"
#include "faults/decode.h"
#include "num/math64.h"
#include "ops/linear/linear.h"

namespace assay::faults::dictionary {
namespace {

constexpr int64_t kColumnsPerTask = 32;

const tensor::TensorView& matrix_of(const Case& c) { return c.view(c.record<ops::Linear>().w); }
const quant::Format& format_of(const Case& c) { return *quant::find_format(matrix_of(c).dtype); }

// Eight sums, so that the compiler can use vectors.
double dot(const double* w, const double* x, int64_t k) {
  double lanes[8] = {};
  int64_t j = 0;
  for (; j + 8 <= k; j += 8) {
    for (int64_t i = 0; i < 8; ++i) lanes[i] += w[j + i] * x[j + i];
  }
  for (; j < k; ++j) lanes[j % 8] += w[j] * x[j];
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

// The rows of x as planes of integers.
struct Planes {
  base::AlignedBuffer memory;
  quant::Activations x;
};
Planes make_planes(const Case& c, quant::Activation kind, int planes) {
  Planes p;
  const int64_t n = c.failed.n_rows, k = depth_of(c);
  p.memory = base::AlignedBuffer(quant::activations_bytes(kind, planes, n, k), "activations of a failed op");
  p.x = quant::carve(kind, planes, n, k, p.memory.data());
  std::vector<float> row(static_cast<size_t>(k));
  for (int64_t t = 0; t < n; ++t) {
    std::transform(c.a(t), c.a(t) + k, row.begin(), [](double value) { return static_cast<float>(value); });
    quant::quantise_row_ref(row.data(), p.x, t);
  }
  return p;
}

double plane_value(const quant::Activations& x, int64_t row, int64_t j) {
  const int64_t i = row * x.k + j;
  const double l = x.planes == 2 ? static_cast<double>(x.l[i]) / 128 : 0.0;
  return static_cast<double>(x.q[i]) + l;
}
double plane_scale(const quant::Activations& x, int64_t row, int64_t j) {
  return static_cast<double>(x.d[row * (x.k / x.block()) + j / x.block()]);
}

Inputs make_declared_inputs(const Case& c) {
  if (declared_block(c) != 0) return quantised_inputs(c, c.declared.activation_bits, declared_block(c));
  const Inputs plain = quantised_inputs(c, 0, 0);
  const tensor::DType dtype = matrix_of(c).dtype;
  if (c.declared.activations_f16 && dtype == tensor::DType::F16) return changed_inputs(plain, as_f16);
  if (c.declared.activations_f16 && dtype == tensor::DType::BF16) return changed_inputs(plain, as_bf16);
  return plain;
}

}  // namespace

int64_t declared_block(const Case& c) {
  const quant::Activation kind = format_of(c).activation;
  if (kind == quant::Activation::f32 || c.declared.activation_bits == 0) return 0;
  if (c.declared.activation_block != 0) return c.declared.activation_block;
  return kind == quant::Activation::a256 ? 256 : 32;
}

Inputs quantised_inputs(const Case& c, int bits, int64_t block) {
  const bool fits = (block == 32 || block == 256) && depth_of(c) % block == 0;
  if (bits == 0 || !fits) return std::make_shared<std::vector<double>>(c.failed.a);
  const Planes p = make_planes(c, block == 256 ? quant::Activation::a256 : quant::Activation::a32, bits > 8 ? 2 : 1);
  auto values = std::make_shared<std::vector<double>>(c.failed.a.size());
  for (int64_t t = 0; t < c.failed.n_rows; ++t) {
    for (int64_t j = 0; j < depth_of(c); ++j) {
      const double scale = plane_scale(p.x, t, j);
      const bool half = block == 32 && c.declared.activation_scale_f16;
      (*values)[static_cast<size_t>(t * depth_of(c) + j)] = (half ? as_f16(scale) : scale) * plane_value(p.x, t, j);
    }
  }
  return values;
}

Inputs changed_inputs(const Inputs& x, double (*change)(double)) {
  auto values = std::make_shared<std::vector<double>>(*x);
  std::transform(values->begin(), values->end(), values->begin(), change);
  return values;
}

Inputs declared_inputs(const Case& c) {
  if (c.shared->inputs == nullptr) c.shared->inputs = make_declared_inputs(c);
  return c.shared->inputs;
}

LinearRule right_linear(const Case& c) {
  const auto& op = c.record<ops::Linear>();
  LinearRule rule;
  rule.x = declared_inputs(c);
  rule.row = [view = &matrix_of(c)](int64_t r, double* w) { right_weight_row(*view, r, w); };
  if (op.bias != ops::kNone) rule.bias = c.vector(op.bias);
  return rule;
}

SampleFunction linear_with(const Case& c, LinearRule rule) {
  return [&c, rule = std::move(rule)](const Sample& sample, double* y) {
    const int64_t k = depth_of(c), n_columns = static_cast<int64_t>(sample.columns.size());
    c.pool.run((n_columns + kColumnsPerTask - 1) / kColumnsPerTask, [&](int64_t task, int) {
      std::vector<double> w(static_cast<size_t>(k));
      for (int64_t i = task * kColumnsPerTask; i < std::min(n_columns, (task + 1) * kColumnsPerTask); ++i) {
        const int64_t r = sample.columns[static_cast<size_t>(i)];
        rule.row(r, w.data());
        for (size_t s = 0; s < sample.rows.size(); ++s) {
          const int64_t t = sample.rows[s];
          double sum = dot(w.data(), rule.x->data() + t * k, k);
          if (!rule.bias.empty()) sum += rule.bias[static_cast<size_t>(r)];
          y[static_cast<int64_t>(s) * n_columns + i] = rule.after ? rule.after(t, r, sum) : sum;
        }
      }
    });
  };
}

namespace {

void offer_decode(const Case& c, Sink& out) {
  const tensor::TensorView& view = matrix_of(c);
  LinearRule rule = right_linear(c);
  for (const DecodeFault& fault : decode_faults()) {
    if (!fault.applies(view.dtype)) continue;
    rule.row = [&view, &fault](int64_t r, double* w) { wrong_weight_row(fault, view, r, w); };
    out.begin(fault.id, fault.faults);
    out.add(decode_text(fault, view.dtype), linear_with(c, rule));
  }
}

void offer_bias(const Case& c, Sink& out) {
  const LinearRule right = right_linear(c);
  const auto with = [&](std::string text, std::vector<double> bias) {
    LinearRule rule = right;
    rule.bias = std::move(bias);
    out.add(std::move(text), linear_with(c, std::move(rule)));
  };
  const auto times = [&](double factor) {
    std::vector<double> bias = right.bias;
    for (double& x : bias) x *= factor;
    return bias;
  };
  if (!right.bias.empty()) {
    with("the bias is dropped", {});
    with("the bias is added twice", times(2));
    with("the bias is subtracted", times(-1));
  }
  for (const ops::Op& other : c.plan.ops) {
    const auto* linear = other.as<ops::Linear>();
    if (linear == nullptr || linear->bias == ops::kNone || &other == &c.op()) continue;
    if (c.view(linear->bias).shape.elements() != c.failed.width) continue;
    with(fmt::format("the bias {} is added", c.weight_name(linear->bias)), c.vector(linear->bias));
  }
}

void offer_activations(const Case& c, Sink& out) {
  LinearRule rule = right_linear(c);
  const std::string declared =
      declared_block(c) == 0 ? std::string("floats")
                             : fmt::format("{} bits in blocks of {}", c.declared.activation_bits, declared_block(c));
  for (const int bits : {8, 15}) {
    for (const int64_t block : {32, 256}) {
      if (depth_of(c) % block != 0 || (block == declared_block(c) && bits == c.declared.activation_bits)) continue;
      rule.x = quantised_inputs(c, bits, block);
      out.add(fmt::format("activations are taken with {} bits in blocks of {}; declared: {}", bits, block, declared),
              linear_with(c, rule));
    }
  }
  for (const bool half : {true, false}) {
    rule.x = changed_inputs(quantised_inputs(c, 0, 0), half ? as_f16 : as_bf16);
    out.add(fmt::format("activations are rounded to {}; declared: {}", half ? "f16 (infinite above 65504)" : "bf16",
                        declared),
            linear_with(c, rule));
  }
}

// The scales of the activations' blocks: applied twice, not at all, or that of the first block for
// all.
void offer_activation_scale(const Case& c, Sink& out) {
  const int64_t block = declared_block(c) == 0 ? 32 : declared_block(c);
  if (depth_of(c) % block != 0) return;
  const int planes = c.declared.activation_bits > 8 ? 2 : 1;
  const auto p = std::make_shared<const Planes>(
      make_planes(c, block == 256 ? quant::Activation::a256 : quant::Activation::a32, planes));
  using Scale = double (*)(const quant::Activations& x, int64_t t, int64_t j);
  const auto with = [&](const char* text, Scale scale) {
    auto values = std::make_shared<std::vector<double>>();
    for (int64_t t = 0; t < c.failed.n_rows; ++t) {
      for (int64_t j = 0; j < depth_of(c); ++j) values->push_back(scale(p->x, t, j) * plane_value(p->x, t, j));
    }
    LinearRule rule = right_linear(c);
    rule.x = values;
    out.add(text, linear_with(c, std::move(rule)));
  };
  with("the activations' scales are applied twice",
       [](const auto& x, int64_t t, int64_t j) { return plane_scale(x, t, j) * plane_scale(x, t, j); });
  with("the activations' scales are not applied", [](const auto&, int64_t, int64_t) { return 1.0; });
  with("every block takes the scale of the row's first block of activations",
       [](const auto& x, int64_t t, int64_t) { return plane_scale(x, t, 0); });
  with("every token takes the first token's scales of activations",
       [](const auto& x, int64_t, int64_t j) { return plane_scale(x, 0, j); });
  if (planes == 2) {
    LinearRule rule = right_linear(c);
    auto values = std::make_shared<std::vector<double>>();
    for (int64_t t = 0; t < c.failed.n_rows; ++t) {
      for (int64_t j = 0; j < depth_of(c); ++j) {
        const auto q = static_cast<double>(p->x.q[t * depth_of(c) + j]);
        values->push_back(plane_scale(p->x, t, j) * (2 * q - plane_value(p->x, t, j)));
      }
    }
    rule.x = values;
    out.add("the second plane of the activations is subtracted; it is added", linear_with(c, std::move(rule)));
  }
}

// Q8_0 through 8-bit instructions: the integer sums of the first plane as they come out wrong.
// term(w, q) of two neighbours.
using PairSum = int (*)(const int8_t* w, const int8_t* q);

int saturated_pair(const int8_t* w,
                   const int8_t* q) {  // weights + 128 as unsigned bytes, two products added in int16
  const int sum = (w[0] + 128) * q[0] + (w[1] + 128) * q[1];
  return std::clamp(sum, -32768, 32767) - 128 * (q[0] + q[1]);
}
int wrong_sign_pair(const int8_t* w,
                    const int8_t* q) {  // the sign of q moved onto a weight of -128, whose negative is -128 again
  int sum = 0;
  for (int i = 0; i < 2; ++i) sum += w[i] == -128 && q[i] < 0 ? -w[i] * q[i] : w[i] * q[i];
  return sum;
}

SampleFunction pairwise(const Case& c, PairSum pair_sum) {
  const auto p =
      std::make_shared<const Planes>(make_planes(c, quant::Activation::a32, c.declared.activation_bits > 8 ? 2 : 1));
  return [&c, p, pair_sum](const Sample& sample, double* y) {
    const tensor::TensorView& view = matrix_of(c);
    const int64_t k = depth_of(c), n_columns = static_cast<int64_t>(sample.columns.size());
    c.pool.run(n_columns, [&](int64_t i, int) {
      const std::byte* bytes = view.row(sample.columns[static_cast<size_t>(i)]);
      for (size_t s = 0; s < sample.rows.size(); ++s) {
        const int64_t t = sample.rows[s];
        double sum = 0;
        for (int64_t j = 0; j < k; j += 32) {
          const std::byte* block = bytes + j / 32 * tensor::traits(view.dtype).block_bytes;
          const auto* w = static_cast<const int8_t*>(static_cast<const void*>(block + 2));
          double inner = 0;
          for (int64_t e = 0; e < 32; e += 2) inner += pair_sum(w + e, p->x.q + t * k + j + e);
          for (int64_t e = 0; p->x.planes == 2 && e < 32; ++e) inner += w[e] * p->x.l[t * k + j + e] / 128.0;
          sum += static_cast<double>(format_of(c).scales(block).d) * plane_scale(p->x, t, j) * inner;
        }
        y[static_cast<int64_t>(s) * n_columns + i] = sum;
      }
    });
  };
}

void offer_saturation(const Case& c, Sink& out) {
  const bool fits = matrix_of(c).dtype == tensor::DType::Q8_0 && declared_block(c) == 32 && depth_of(c) % 32 == 0;
  if (!fits || c.record<ops::Linear>().bias != ops::kNone) return;
  out.add("two products of bytes are added in 16 bits and saturate (maddubs with weights + 128)",
          pairwise(c, saturated_pair));
}

void offer_sign_trick(const Case& c, Sink& out) {
  const bool fits = matrix_of(c).dtype == tensor::DType::Q8_0 && declared_block(c) == 32 && depth_of(c) % 32 == 0;
  if (!fits || c.record<ops::Linear>().bias != ops::kNone) return;
  out.add(
      "products of weights of -128 with negative activations have the wrong sign (sign_epi8 cannot "
      "turn -128)",
      pairwise(c, wrong_sign_pair));
}

// Sums of 32 activations kept in f16 for the formats with a minimum.
void offer_half_sums(const Case& c, Sink& out) {
  if (!format_of(c).has_min || depth_of(c) % 32 != 0) return;
  LinearRule rule = right_linear(c);
  rule.after = [&c, x = rule.x](int64_t t, int64_t, double y) {
    const double* row = x->data() + t * depth_of(c);
    for (int64_t j = 0; j < depth_of(c); j += 32) {
      double sum = 0;
      for (int64_t i = 0; i < 32; ++i) sum += row[j + i];
      if (!std::isfinite(as_f16(sum))) return std::numeric_limits<double>::quiet_NaN();
    }
    return y;
  };
  out.add(
      "a sum of 32 activations does not fit f16 (above 65504) and turns the product into no "
      "number; it needs f32",
      linear_with(c, std::move(rule)));
}

void offer_softcap(const Case& c, Sink& out) {
  if (c.record<ops::Linear>().y != c.plan.logits) return;
  for (const double cap : {30.0, 50.0, 15.0}) {
    LinearRule rule = right_linear(c);
    rule.after = [cap](int64_t, int64_t, double y) { return cap * num::tanh64(y / cap); };
    out.add(fmt::format("logits are capped at {:g} (cap * tanh(y / cap)), which the file does not ask for", cap),
            linear_with(c, rule));
    rule.after = [cap](int64_t, int64_t, double y) { return y * num::tanh64(y / cap); };
    out.add(fmt::format("logits are multiplied by tanh(y / {:g}), which the file does not ask for", cap),
            linear_with(c, rule));
  }
}

constexpr Entry kEntries[] = {
    {"linear_bias", "", offer_bias},
    {"decode", "", offer_decode},
    {"activation_bits", "C43", offer_activations},
    {"activation_scale", "C28", offer_activation_scale},
    {"int16_saturation", "C35", offer_saturation},
    {"sign_of_minus_128", "C36", offer_sign_trick},
    {"half_block_sum", "C37", offer_half_sums},
    {"logits_softcap", "C52", offer_softcap},
};

}  // namespace

std::span<const Entry> linear_entries() noexcept { return kEntries; }

}  // namespace assay::faults::dictionary
