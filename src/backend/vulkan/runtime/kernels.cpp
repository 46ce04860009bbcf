// See kernels.h. Each push struct is the one of its shader.
#include "backend/vulkan/runtime/kernels.h"

#include <algorithm>
#include <array>
#include <string>

#include "assay/error.h"
#include "ops/attention/attention.h"
#include "ops/attention/kv_store.h"
#include "ops/attention/rope.h"
#include "ops/linear/expert_linear.h"
#include "ops/linear/linear.h"
#include "ops/plan/op_values.h"
#include "ops/rows/activate.h"
#include "ops/rows/add.h"
#include "ops/rows/add_columns.h"
#include "ops/rows/embed.h"
#include "ops/rows/gate.h"
#include "ops/rows/rms_norm.h"
#include "ops/rows/scale.h"
#include "ops/rows/scale_columns.h"
#include "ops/rows/select_outputs.h"
#include "ops/rows/slice.h"
#include "ops/rows/softcap.h"

namespace assay::backend::vulkan {
namespace {

using ops::kNone;
using Address = VkDeviceAddress;
using tensor::DType;

constexpr int64_t kTokensTogether = 4;  // of a prefill, by one invocation
constexpr int64_t kElementsThreads = 64, kElementsGroupsMax = 4096, kRunGroupsMax = 4096;
constexpr int64_t kAttentionThreads = 128, kValueDimMax = 512;
constexpr int64_t kMatrixBytesMax = (int64_t{1} << 32) - 1024;  // shaders count a matrix's bytes in 32 bits

uint32_t u32(int64_t n) { return static_cast<uint32_t>(n); }

// As linear/formats.glsl numbers them; those it has not are borrowed.
constexpr std::array<DType, 11> kFormats = {DType::F32,  DType::F16,  DType::BF16, DType::Q4_0,
                                            DType::Q4_1, DType::Q5_0, DType::Q5_1, DType::Q8_0,
                                            DType::Q4_K, DType::Q5_K, DType::Q6_K};
bool has_format(const tensor::TensorView& view) {
  return std::find(kFormats.begin(), kFormats.end(), view.dtype) != kFormats.end() &&
         static_cast<int64_t>(view.data.size()) <= kMatrixBytesMax;
}
uint32_t number_of(DType dtype) {
  return static_cast<uint32_t>(std::find(kFormats.begin(), kFormats.end(), dtype) - kFormats.begin());
}

const tensor::TensorView& view_of(const ops::Plan& plan, ops::WeightId id) {
  return plan.weights[static_cast<size_t>(id)].view;
}

bool as_floats(const ops::Plan& plan, const ops::ExecutorOptions& options, ops::WeightId id) {
  return options.weights_as_f32 || quant::find_format(view_of(plan, id).dtype)->activation == quant::Activation::f32;
}

// ---- Products

struct Experts {  // linear/experts.glsl
  Address routes = 0;
  uint32_t n_used = 0, has_routes = 0, rows_per_expert = 0, first_row = 0, x_of_pairs = 0, padding = 0;
};

// A product as its shader sees it: of experts a token is a pair of a token and an expert.
struct Product {
  ops::ValueId x, y;
  ops::WeightId w, bias;
  int64_t n_rows, n_cols, n_tokens;
  Experts experts = {};
};

Product product_of(const DeviceState& s, const ops::Linear& r) {
  return {r.x, r.y, r.w, r.bias, s.width(r.y), s.width(r.x), s.n_rows(r.y)};
}
Product product_of(const DeviceState& s, const ops::ExpertLinear& r) {
  Product p = {r.x, r.y, r.w, r.bias, r.d_out, r.d_in, s.n_rows(r.y) * r.n_used};
  p.experts.routes = r.routes == kNone ? 0 : s.value(r.routes);
  p.experts.n_used = u32(r.n_used);
  p.experts.has_routes = r.routes == kNone ? 0u : 1u;
  p.experts.rows_per_expert = u32(r.row_of(1) - r.row_of(0));
  p.experts.first_row = u32(r.first_row);
  p.experts.x_of_pairs = s.width(r.x) == r.d_in ? 0u : 1u;
  return p;
}

template <class R, bool of_floats>
bool serves_product(const ops::Plan& plan, const ops::ExecutorOptions& options, const ops::Op& op) {
  const auto& r = op.get<R>();
  return has_format(view_of(plan, r.w)) && as_floats(plan, options, r.w) == of_floats;
}

template <class R, int64_t n_together>
void run_floats(DeviceState& s, const ops::Op& op) {
  struct Push {
    Address w, x, bias, y;
    Experts experts;
    uint32_t n_rows, n_cols, n_tokens, row_bytes, has_bias;
  };
  static_assert(sizeof(Push) <= 128);
  const Product p = product_of(s, op.get<R>());
  const tensor::TensorView& w = view_of(s.plan, p.w);
  const Push push = {s.matrix(p.w), s.value(p.x),  s.small(p.bias), s.value(p.y),       p.experts,
                     u32(p.n_rows), u32(p.n_cols), u32(p.n_tokens), u32(w.row_bytes()), p.bias == kNone ? 0u : 1u};
  s.device.dispatch("linear_float", {number_of(w.dtype), u32(n_together)}, push, p.n_rows,
                    (p.n_tokens + n_together - 1) / n_together);
}

template <class R, int64_t n_together>
void run_integers(DeviceState& s, const ops::Op& op) {
  struct Push {
    Address w, q, l, d, sums_q, sums_l, bias, y;
    Experts experts;
    uint32_t n_rows, n_cols, n_tokens, row_bytes, has_bias;
  };
  static_assert(sizeof(Push) <= 128);
  const Product p = product_of(s, op.get<R>());
  const tensor::TensorView& w = view_of(s.plan, p.w);
  const QuantisedRows x = s.quantised(p.x, quant::find_format(w.dtype)->activation);
  const Push push = {s.matrix(p.w),
                     x.q,
                     x.l,
                     x.d,
                     x.sums_q,
                     x.sums_l,
                     s.small(p.bias),
                     s.value(p.y),
                     p.experts,
                     u32(p.n_rows),
                     u32(p.n_cols),
                     u32(p.n_tokens),
                     u32(w.row_bytes()),
                     p.bias == kNone ? 0u : 1u};
  s.device.dispatch("linear_quantised", {number_of(w.dtype), u32(n_together), u32(s.options.planes)}, push,
                    (p.n_rows + 7) / 8, (p.n_tokens + n_together - 1) / n_together);
}

bool serves_embed(const ops::Plan& plan, const ops::ExecutorOptions&, const ops::Op& op) {
  return has_format(view_of(plan, op.get<ops::Embed>().table));
}
void run_embed(DeviceState& s, const ops::Op& op) {
  struct Push {
    Address table, tokens, y;
    uint32_t n_cols, row_bytes;
    float scale;
  };
  const auto& r = op.get<ops::Embed>();
  const tensor::TensorView& table = view_of(s.plan, r.table);
  const Push push = {s.matrix(r.table),          s.tokens(), s.value(r.y), u32(s.width(r.y)), u32(table.row_bytes()),
                     static_cast<float>(r.scale)};
  s.device.dispatch("embed", {number_of(table.dtype)}, push, s.n_rows(r.y));
}

// ---- Rows

void run_rms_norm(DeviceState& s, const ops::Op& op) {
  struct Push {
    Address x, w, y;
    uint32_t d, has_weights, n_runs;
    float eps;
  };
  const auto& r = op.get<ops::RmsNorm>();
  const int64_t n_runs = s.n_rows(r.y) * (s.width(r.y) / r.d);
  const Push push = {s.value(r.x), s.small(r.w), s.value(r.y), u32(r.d), r.w == kNone ? 0u : 1u, u32(n_runs), r.eps};
  s.device.dispatch("rms_norm", {}, push, std::min(n_runs, kRunGroupsMax));
}

enum class Element : uint32_t {
  add,
  gate,
  activate,
  scale,
  softcap,
  add_columns,
  scale_columns
};  // as elements.comp has them

void run_elements(DeviceState& s, Element element, uint32_t activation, Address a, Address b, ops::ValueId y,
                  int64_t width, double factor) {
  struct Push {
    Address a, b, y;
    uint32_t n, width;
    float factor;
  };
  const int64_t n = s.n_rows(y) * s.width(y);
  const Push push = {a, b, s.value(y), u32(n), u32(width), static_cast<float>(factor)};
  s.device.dispatch("elements_" + std::to_string(static_cast<uint32_t>(element)), {activation}, push,
                    std::min((n + kElementsThreads - 1) / kElementsThreads, kElementsGroupsMax));
}

bool has_activation(ops::ActivationFunction function) {
  return function != ops::ActivationFunction::gelu_erf && function != ops::ActivationFunction::softplus;
}
bool serves_gate(const ops::Plan&, const ops::ExecutorOptions&, const ops::Op& op) {
  return has_activation(op.get<ops::Gate>().activation);
}
bool serves_activate(const ops::Plan&, const ops::ExecutorOptions&, const ops::Op& op) {
  return has_activation(op.get<ops::Activate>().activation);
}

void run_add(DeviceState& s, const ops::Op& op) {
  const auto& r = op.get<ops::Add>();
  run_elements(s, Element::add, 0, s.value(r.a), s.value(r.b), r.y, 1, 0);
}
void run_gate(DeviceState& s, const ops::Op& op) {
  const auto& r = op.get<ops::Gate>();
  run_elements(s, Element::gate, static_cast<uint32_t>(r.activation), s.value(r.gate), s.value(r.up), r.y,
               s.width(r.y) / s.width(r.gate), 0);
}
void run_activate(DeviceState& s, const ops::Op& op) {
  const auto& r = op.get<ops::Activate>();
  run_elements(s, Element::activate, static_cast<uint32_t>(r.activation), s.value(r.x), 0, r.y, 1, 0);
}
void run_scale(DeviceState& s, const ops::Op& op) {
  const auto& r = op.get<ops::Scale>();
  run_elements(s, Element::scale, 0, s.value(r.x), 0, r.y, 1, r.factor);
}
void run_softcap(DeviceState& s, const ops::Op& op) {
  const auto& r = op.get<ops::Softcap>();
  run_elements(s, Element::softcap, 0, s.value(r.x), 0, r.y, 1, r.cap);
}
void run_add_columns(DeviceState& s, const ops::Op& op) {
  const auto& r = op.get<ops::AddColumns>();
  run_elements(s, Element::add_columns, 0, s.value(r.x), s.small(r.w), r.y, s.width(r.y), 0);
}
void run_scale_columns(DeviceState& s, const ops::Op& op) {
  const auto& r = op.get<ops::ScaleColumns>();
  run_elements(s, Element::scale_columns, 0, s.value(r.x), s.small(r.w), r.y, s.width(r.y), 0);
}

void run_rope(DeviceState& s, const ops::Op& op) {
  struct Push {
    Address x, table, y, positions;
    uint32_t n_heads, head_dim, dim, interleaved;
  };
  const auto& r = op.get<ops::Rope>();
  const ops::RopeSpec& spec = s.plan.ropes[static_cast<size_t>(r.rope)];
  const Push push = {s.value(r.x),   s.rope(r.rope),  s.value(r.y),  s.positions(),
                     u32(r.n_heads), u32(r.head_dim), u32(spec.dim), spec.interleaved ? 1u : 0u};
  s.device.dispatch("rope", {}, push, s.n_rows(r.y));
}
// Positions are those of tokens; pairs of halves need an even head.
bool serves_rope(const ops::Plan& plan, const ops::ExecutorOptions&, const ops::Op& op) {
  const auto& r = op.get<ops::Rope>();
  return plan.values[static_cast<size_t>(r.y)].domain == ops::RowDomain::tokens &&
         (r.head_dim % 2 == 0 && (plan.ropes[static_cast<size_t>(r.rope)].interleaved ||
                                  plan.ropes[static_cast<size_t>(r.rope)].dim == r.head_dim));
}

struct SelectPush {
  Address x, y, rows;
  uint32_t x_cols, first_col, y_cols, all_rows;
};
void run_select(DeviceState& s, const ops::Op& op) {
  const auto& r = op.get<ops::SelectOutputs>();
  const SelectPush push = {s.value(r.x), s.value(r.y), s.selected(), u32(s.width(r.x)), 0, u32(s.width(r.y)), 0};
  s.device.dispatch("select", {}, push, s.n_rows(r.y));
}
void run_slice(DeviceState& s, const ops::Op& op) {
  const auto& r = op.get<ops::Slice>();
  const SelectPush push = {
      s.value(r.x), s.value(r.y), 0, u32(s.width(r.x) / r.n_runs), u32(r.first), u32(s.width(r.y) / r.n_runs), 1};
  s.device.dispatch("select", {}, push, s.n_rows(r.y) * r.n_runs);
}

// ---- Attention

uint32_t number_of(ops::CacheType type) { return static_cast<uint32_t>(type); }  // as attention/cache.glsl has them

bool serves_store(const ops::Plan& plan, const ops::ExecutorOptions& options, const ops::Op& op) {
  const ops::CacheLayer& layer = plan.cache_layers[static_cast<size_t>(op.get<ops::KvStore>().layer)];
  const auto in_words = [](ops::CacheType type, int64_t width) {  // of a position: whole words, of q8_0 pairs of blocks
    return type == ops::CacheType::f32 || width % (type == ops::CacheType::f16 ? 2 : 64) == 0;
  };
  return in_words(options.cache_k, layer.n_kv_heads * layer.head_dim) &&
         in_words(options.cache_v, layer.n_kv_heads * layer.stored_v_dim());
}
void run_store(DeviceState& s, const ops::Op& op) {
  struct Push {
    Address x, cache, positions, sequences;
    uint32_t n_ctx, width;
  };
  const auto& r = op.get<ops::KvStore>();
  const auto store = [&](ops::ValueId x, const CacheRows& rows) {
    const Push push = {s.value(x),    rows.memory.address(), s.positions(),
                       s.sequences(), u32(s.options.n_ctx),  u32(s.width(x))};
    s.device.dispatch("kv_store", {number_of(rows.type)}, push, s.n_rows(x));
  };
  store(r.k, s.cache.keys(r.layer));
  if (r.v != kNone) store(r.v, s.cache.values(r.layer));
}

bool serves_attention(const ops::Plan& plan, const ops::ExecutorOptions& options, const ops::Op& op) {
  const ops::CacheLayer& layer = plan.cache_layers[static_cast<size_t>(op.get<ops::Attention>().layer)];
  const auto is_even = [](ops::CacheType type, int64_t dim) { return type == ops::CacheType::f32 || dim % 2 == 0; };
  return layer.v_dim() <= kValueDimMax && is_even(options.cache_k, layer.head_dim) &&
         is_even(options.cache_v, layer.v_dim());
}
void run_attention(DeviceState& s, const ops::Op& op) {
  struct Push {
    Address q, k, v, sinks, y, positions, sequences, n_positions;
    uint32_t n_heads, n_kv_heads, head_dim, v_dim, v_row_dim, n_ctx, window, chunk, flags;
    float scale, softcap;
  };
  static_assert(sizeof(Push) <= 128);
  const auto& r = op.get<ops::Attention>();
  const CacheRows& k = s.cache.keys(r.layer);
  const CacheRows& v = s.cache.values(r.layer);
  const int64_t v_dim = s.cache.layer(r.layer).v_dim();
  const Push push = {s.value(r.q),
                     k.memory.address(),
                     v.memory.address(),
                     s.small(r.sinks),
                     s.value(r.y),
                     s.positions(),
                     s.sequences(),
                     s.n_positions(),
                     u32(r.n_heads),
                     u32(r.n_kv_heads),
                     u32(r.head_dim),
                     u32(v_dim),
                     u32(v.dim),
                     u32(s.options.n_ctx),
                     u32(r.window),
                     u32(r.chunk),
                     (r.causal ? 1u : 0u) | (r.sinks == kNone ? 0u : 2u),
                     static_cast<float>(r.scale),
                     static_cast<float>(r.softcap)};
  const auto n_elements = u32((v_dim + kAttentionThreads - 1) / kAttentionThreads);
  s.device.dispatch("attention", {number_of(k.type), number_of(v.type), n_elements, r.softcap > 0 ? 1u : 0u}, push,
                    r.n_heads, s.n_rows(r.y));
}

const std::array kTable = {
    Kernel{"linear_quantised, 1 token", ops::Record::type_of<ops::Linear>(), 1, 1, serves_product<ops::Linear, false>,
           run_integers<ops::Linear, 1>},
    Kernel{"linear_quantised, 4 tokens", ops::Record::type_of<ops::Linear>(), 2, 0, serves_product<ops::Linear, false>,
           run_integers<ops::Linear, kTokensTogether>},
    Kernel{"linear_float, 1 token", ops::Record::type_of<ops::Linear>(), 1, 1, serves_product<ops::Linear, true>,
           run_floats<ops::Linear, 1>},
    Kernel{"linear_float, 4 tokens", ops::Record::type_of<ops::Linear>(), 2, 0, serves_product<ops::Linear, true>,
           run_floats<ops::Linear, kTokensTogether>},
    Kernel{"linear_quantised, experts", ops::Record::type_of<ops::ExpertLinear>(), 1, 0,
           serves_product<ops::ExpertLinear, false>, run_integers<ops::ExpertLinear, 1>},
    Kernel{"linear_float, experts", ops::Record::type_of<ops::ExpertLinear>(), 1, 0,
           serves_product<ops::ExpertLinear, true>, run_floats<ops::ExpertLinear, 1>},
    Kernel{"embed", ops::Record::type_of<ops::Embed>(), 1, 0, serves_embed, run_embed},
    Kernel{"rms_norm", ops::Record::type_of<ops::RmsNorm>(), 1, 0, nullptr, run_rms_norm},
    Kernel{"elements, add", ops::Record::type_of<ops::Add>(), 1, 0, nullptr, run_add},
    Kernel{"elements, gate", ops::Record::type_of<ops::Gate>(), 1, 0, serves_gate, run_gate},
    Kernel{"elements, activate", ops::Record::type_of<ops::Activate>(), 1, 0, serves_activate, run_activate},
    Kernel{"elements, scale", ops::Record::type_of<ops::Scale>(), 1, 0, nullptr, run_scale},
    Kernel{"elements, softcap", ops::Record::type_of<ops::Softcap>(), 1, 0, nullptr, run_softcap},
    Kernel{"elements, add_columns", ops::Record::type_of<ops::AddColumns>(), 1, 0, nullptr, run_add_columns},
    Kernel{"elements, scale_columns", ops::Record::type_of<ops::ScaleColumns>(), 1, 0, nullptr, run_scale_columns},
    Kernel{"rope", ops::Record::type_of<ops::Rope>(), 1, 0, serves_rope, run_rope},
    Kernel{"select, outputs", ops::Record::type_of<ops::SelectOutputs>(), 1, 0, nullptr, run_select},
    Kernel{"select, slice", ops::Record::type_of<ops::Slice>(), 1, 0, nullptr, run_slice},
    Kernel{"kv_store", ops::Record::type_of<ops::KvStore>(), 1, 0, serves_store, run_store},
    Kernel{"attention", ops::Record::type_of<ops::Attention>(), 1, 0, serves_attention, run_attention},
};

}  // namespace

std::span<const Kernel> kernels() noexcept { return kTable; }

std::vector<const Kernel*> kernels_for(const ops::Plan& plan, const ops::ExecutorOptions& options, const ops::Op& op) {
  std::vector<const Kernel*> rows;
  for (const Kernel& kernel : kTable) {
    if (kernel.op == op.record.type() && (kernel.serves == nullptr || kernel.serves(plan, options, op)))
      rows.push_back(&kernel);
  }
  return rows;
}

}  // namespace assay::backend::vulkan
