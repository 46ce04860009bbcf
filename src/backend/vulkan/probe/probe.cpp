// See probe.h.
#include "backend/vulkan/probe/probe.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "num/activations.h"
#include "num/f16.h"
#include "num/math.h"

namespace assay::backend::vulkan {
namespace {

constexpr int kSamples = 4096;

constexpr std::array<std::string_view, kNProbeOperations> kNames = {
    "add",          "multiply",      "fma",           "divide",       "square root", "integer to float",
    "dot of bytes", "half to float", "float to half", "comparison",   "exp",         "tanh",
    "SiLU",         "GELU",          "sigmoid",       "squared ReLU", "softcap"};

uint64_t next(uint64_t& state) {  // splitmix64
  uint64_t z = (state += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

float as_float(uint32_t bits) { return std::bit_cast<float>(bits); }
uint32_t as_bits(float x) { return std::bit_cast<uint32_t>(x); }
bool is_subnormal(uint32_t bits) { return (bits & 0x7FFFFFFFu) != 0 && (bits & 0x7F800000u) == 0; }
bool is_nan(uint32_t bits) { return (bits & 0x7FFFFFFFu) > 0x7F800000u; }

bool gives_integer(ProbeOperation operation) {
  return operation == ProbeOperation::integer_dot || operation == ProbeOperation::float_to_half ||
         operation == ProbeOperation::is_greater;
}
bool takes_integers(ProbeOperation operation) {
  return operation == ProbeOperation::integer_to_float || operation == ProbeOperation::integer_dot ||
         operation == ProbeOperation::half_to_float;
}

int8_t byte_of(uint32_t bits, int i) { return static_cast<int8_t>(bits >> (8 * i)); }

uint32_t result_of(ProbeOperation operation, uint32_t of_a, uint32_t of_b, uint32_t of_c) {
  const float a = as_float(of_a), b = as_float(of_b), c = as_float(of_c);
  switch (operation) {
    case ProbeOperation::add: return as_bits(a + b);
    case ProbeOperation::multiply: return as_bits(a * b);
    case ProbeOperation::fused: return as_bits(num::fma(a, b, c));
    case ProbeOperation::divide: return as_bits(a / b);
    case ProbeOperation::root: return as_bits(std::sqrt(a));
    case ProbeOperation::integer_to_float: return as_bits(static_cast<float>(static_cast<int32_t>(of_a)));
    case ProbeOperation::integer_dot:
      return static_cast<uint32_t>(byte_of(of_a, 0) * byte_of(of_b, 0) + byte_of(of_a, 1) * byte_of(of_b, 1) +
                                   byte_of(of_a, 2) * byte_of(of_b, 2) + byte_of(of_a, 3) * byte_of(of_b, 3));
    case ProbeOperation::half_to_float: return as_bits(num::half_to_float(static_cast<uint16_t>(of_a)));
    case ProbeOperation::float_to_half: return num::float_to_half(a);
    case ProbeOperation::exponential: return as_bits(num::exp(a));
    case ProbeOperation::tanh: return as_bits(num::tanh(a));
    case ProbeOperation::silu: return as_bits(num::silu(a));
    case ProbeOperation::gelu_tanh: return as_bits(num::gelu_tanh(a));
    case ProbeOperation::sigmoid: return as_bits(num::sigmoid(a));
    case ProbeOperation::relu_squared: return as_bits(num::relu_squared(a));
    case ProbeOperation::softcap: return as_bits(num::softcap(a, 30.0f));
    case ProbeOperation::is_greater: return a > b ? 1 : 0;
    case ProbeOperation::n_operations: break;
  }
  return 0;
}

constexpr uint32_t kSpecials[] = {0x00000000u, 0x80000000u, 0x3F800000u, 0xBF800000u, 0x7F800000u, 0xFF800000u,
                                  0x7FC00000u, 0x7F7FFFFFu, 0xFF7FFFFFu, 0x00800000u, 0x80800000u, 0x00800001u,
                                  0x34000000u, 0x4B800000u, 0x42B00000u, 0xC2AE0000u, 0x3F7FFFFFu, 0x00000001u,
                                  0x80000001u, 0x007FFFFFu, 0x807FFFFFu, 0x00400000u};  // the last five are subnormal
constexpr size_t kNSpecials = std::size(kSpecials), kNSubnormals = 5;

struct Triple {
  uint32_t a, b, c;
};

Triple make_triple(int i, bool with_subnormals, uint64_t& state) {
  const size_t n_specials = with_subnormals ? kNSpecials : kNSpecials - kNSubnormals;
  const uint64_t r = next(state), s = next(state);
  Triple t = {static_cast<uint32_t>(r), static_cast<uint32_t>(r >> 32), static_cast<uint32_t>(s)};
  switch (i % 5) {
    case 0: break;  // any bits
    case 1:         // of middling size, as a model's numbers are
      for (uint32_t* x : {&t.a, &t.b, &t.c}) *x = (*x & 0x807FFFFFu) | ((112 + (*x >> 23) % 24) << 23);
      break;
    case 2: {  // a sum that cancels, all but a few places
      const float product =
          as_float(t.a = (t.a & 0x807FFFFFu) | 0x3F800000u) * as_float(t.b = (t.b & 0x807FFFFFu) | 0x3F000000u);
      t.c = (as_bits(product) ^ 0x80000000u) + static_cast<uint32_t>((s >> 32) % 5) - 2;
      break;
    }
    case 3:  // results about the smallest normal number
      t.a = (t.a & 0x807FFFFFu) | ((1 + (t.a >> 23) % 126) << 23);
      t.b = (t.b & 0x807FFFFFu) | ((127 + (t.b >> 23) % 24 - ((t.a >> 23) & 0xFFu)) << 23);
      t.c = (t.c & 0x807FFFFFu) | ((1 + (t.c >> 23) % 30) << 23);
      break;
    default:
      t.a = kSpecials[t.a % n_specials];
      t.b = kSpecials[t.b % n_specials];
      t.c = kSpecials[t.c % n_specials];
  }
  return t;
}

}  // namespace

std::string_view name(ProbeOperation operation) noexcept { return kNames[static_cast<size_t>(operation)]; }

Operands probe_operands(ProbeOperation operation, int n, bool with_subnormals, uint64_t seed) {
  Operands operands;
  uint64_t state = seed * 1000 + static_cast<uint64_t>(operation);
  for (int i = 0; operands.a.size() < static_cast<size_t>(n); ++i) {
    const Triple t = make_triple(i, with_subnormals, state);
    if (!with_subnormals && !takes_integers(operation)) {
      const uint32_t y = result_of(operation, t.a, t.b, t.c);
      const bool is_tiny = !gives_integer(operation) && (is_subnormal(y) || (y & 0x7FFFFFFFu) == 0x00800000u);
      if (is_subnormal(t.a) || is_subnormal(t.b) || is_subnormal(t.c) || is_tiny) continue;
    }
    operands.a.push_back(t.a);
    operands.b.push_back(t.b);
    operands.c.push_back(t.c);
  }
  return operands;
}

std::vector<uint32_t> expected_bits(ProbeOperation operation, const Operands& operands) {
  std::vector<uint32_t> bits;
  for (size_t i = 0; i < operands.a.size(); ++i)
    bits.push_back(result_of(operation, operands.a[i], operands.b[i], operands.c[i]));
  return bits;
}

std::vector<uint32_t> device_bits(Device& device, ProbeOperation operation, bool ours, const Operands& operands) {
  struct Push {
    VkDeviceAddress a, b, c, y;
    uint32_t n, operation;
  };
  const size_t n = operands.a.size(), bytes = n * sizeof(uint32_t);
  const Buffer memory = device.allocate(4 * bytes, Device::Place::host, "the probe");
  std::memcpy(memory.mapped(), operands.a.data(), bytes);
  std::memcpy(memory.mapped() + bytes, operands.b.data(), bytes);
  std::memcpy(memory.mapped() + 2 * bytes, operands.c.data(), bytes);
  const Push push = {memory.address(),
                     memory.address() + bytes,
                     memory.address() + 2 * bytes,
                     memory.address() + 3 * bytes,
                     static_cast<uint32_t>(n),
                     static_cast<uint32_t>(operation)};
  const std::string own = operation == ProbeOperation::integer_dot ? "probe_dot_1" : "probe_own";
  device.dispatch(ours ? "probe_" + std::to_string(push.operation) : own, {}, push,
                  static_cast<int64_t>((n + 63) / 64));
  device.finish();
  std::vector<uint32_t> found(n);
  std::memcpy(found.data(), memory.mapped() + 3 * bytes, bytes);
  return found;
}

int64_t n_wrong_of_matrices(Device& device) {
  struct Push {
    VkDeviceAddress bytes, scales, factors, terms, y;
  };
  constexpr size_t kSide = 16, kDepth = 32, kOutputs = kSide * kSide;
  struct Samples {
    std::array<int8_t, 2 * kSide * kDepth> bytes;  // of rows, of columns
    std::array<int32_t, kSide> scales;
    std::array<float, kSide> factors, terms;
    std::array<uint32_t, kOutputs> y;
  };
  const Buffer memory = device.allocate(sizeof(Samples), Device::Place::host, "the probe");
  auto& samples = *memory.as<Samples>();
  int64_t n_wrong = 0;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    uint64_t state = seed;
    for (int8_t& byte : samples.bytes) byte = static_cast<int8_t>(next(state));
    for (int32_t& scale : samples.scales) scale = static_cast<int32_t>(next(state) % 256) - 128;
    const auto any = [&state](uint32_t exponent) { return as_float((next(state) & 0x807FFFFFu) | (exponent << 23)); };
    for (float& factor : samples.factors) factor = any(120 + static_cast<uint32_t>(next(state) % 8));
    for (float& term : samples.terms) term = any(137 + static_cast<uint32_t>(next(state) % 8));
    const VkDeviceAddress at = memory.address();
    const Push push = {at, at + offsetof(Samples, scales), at + offsetof(Samples, factors),
                       at + offsetof(Samples, terms), at + offsetof(Samples, y)};
    device.dispatch(device.facts().matrix_depth > 0 ? "probe_matrix_4" : "probe_matrix_0", {device.matrix_depth()},
                    push, 1);
    device.finish();
    for (size_t i = 0; i < kOutputs; ++i) {
      const size_t row = i % kSide, column = i / kSide;
      int32_t dot = 0;
      for (size_t j = 0; j < kDepth; ++j)
        dot += samples.bytes[row * kDepth + j] * samples.bytes[(kSide + column) * kDepth + j];
      const float y =
          num::fma(static_cast<float>(samples.scales[row] * dot), samples.factors[row], samples.terms[column]);
      n_wrong += samples.y[i] == as_bits(y) ? 0 : 1;
    }
  }
  return n_wrong;
}

int64_t n_different(ProbeOperation operation, std::span<const uint32_t> found, std::span<const uint32_t> expected) {
  int64_t n = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (found[i] == expected[i]) continue;
    if (!gives_integer(operation) && is_nan(found[i]) && is_nan(expected[i])) continue;
    ++n;
  }
  return n;
}

Probe probe(Device& device) {
  const auto agrees = [&](ProbeOperation operation, bool ours, bool with_subnormals) {
    const Operands operands = probe_operands(operation, kSamples, with_subnormals, 1);
    return n_different(operation, device_bits(device, operation, ours, operands), expected_bits(operation, operands)) ==
           0;
  };
  Probe result;
  Arithmetic& chosen = result.arithmetic;
  for (const ProbeOperation operation :
       {ProbeOperation::add, ProbeOperation::multiply}) {  // there is nothing to take their place
    if (agrees(operation, false, false)) continue;
    result.refused = "its operation \"" + std::string(name(operation)) +
                     "\" is not rounded as IEEE 754 says, and everything else is built on it";
    return result;
  }
  chosen.flushes = !agrees(ProbeOperation::add, false, true) || !agrees(ProbeOperation::multiply, false, true);
  const bool with_subnormals = !chosen.flushes;
  chosen.own_quotient = !agrees(ProbeOperation::divide, false, with_subnormals);
  chosen.own_root = !agrees(ProbeOperation::root, false, with_subnormals);
  if (agrees(ProbeOperation::fused, false, with_subnormals)) {
    chosen.fused = Arithmetic::Fused::own;
  } else if (device.facts().has_float64 && !chosen.flushes) {
    chosen.fused = Arithmetic::Fused::by_float64;
  }
  chosen.own_halves = !agrees(ProbeOperation::half_to_float, false, true);
  device.set_arithmetic(chosen);
  if (chosen.fused == Arithmetic::Fused::by_float64 && !agrees(ProbeOperation::fused, true, true)) {
    chosen.fused = Arithmetic::Fused::by_integers;
    device.set_arithmetic(chosen);
  }
  device.set_uses_dots(device.uses_dots() && agrees(ProbeOperation::integer_dot, false, true));
  if (device.matrix_depth() > 0 && n_wrong_of_matrices(device) > 0) device.set_matrix_depth(0);
  const auto say = [&](bool is_so, std::string_view what) {
    if (is_so) result.text += (result.text.empty() ? "" : ", ") + std::string(what);
  };
  say(chosen.fused == Arithmetic::Fused::by_float64, "fma by float64");
  say(chosen.fused == Arithmetic::Fused::by_integers, "fma by integers");
  say(chosen.own_quotient, "division by integers");
  say(chosen.own_root, "square root by integers");
  say(chosen.own_halves, "halves by integers");
  say(chosen.flushes, "subnormals by integers");
  say(!device.uses_dots(), "dots of bytes by shifts");
  say(result.text.empty(), "all operations the device's own");
  say(device.matrix_depth() > 0, "cooperative matrices of bytes");
  say(device.facts().matrix_depth > 0 && device.matrix_depth() == 0, "its cooperative matrices are wrong and not used");
  if (const std::string& lack = device.facts().matrices_lack; !lack.empty())
    say(true, "no cooperative matrices, which lack " + lack);
  for (uint32_t i = 0; i < kNProbed; ++i) {
    const auto operation = static_cast<ProbeOperation>(i);
    if (agrees(operation, true, true)) continue;
    result.refused = "its operation \"" + std::string(name(operation)) + "\" has other bits than the contract's (" +
                     result.text + ")";
    break;
  }
  return result;
}

}  // namespace assay::backend::vulkan
