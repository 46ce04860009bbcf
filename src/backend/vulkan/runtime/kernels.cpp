// See kernels.h. Each push struct is the one of its shader.
#include "backend/vulkan/runtime/kernels.h"

#include <algorithm>
#include <array>
#include <string>

#include "assay/error.h"
#include "backend/vulkan/linear/matrices.h"
#include "backend/vulkan/rows/activation.h"
#include "ops/attention/attention.h"
#include "ops/attention/kv_store.h"
#include "ops/attention/rope.h"
#include "ops/embed/embed.h"
#include "ops/linear/expert_linear.h"
#include "ops/linear/linear.h"
#include "ops/plan/op_values.h"
#include "ops/rows/activate.h"
#include "ops/rows/add.h"
#include "ops/rows/add_columns.h"
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

constexpr int64_t kTokensTogether = 4;  // of float weights, by one invocation
constexpr int64_t kRowsTokensMax = 8;   // tokens from which on tiles are faster
constexpr int64_t kTilesTokensMax =
    256;  // up to which cooperative matrices leave too many multiprocessors without work
constexpr int64_t kElementsThreads = 64, kElementsGroupsMax = 4096, kRunGroupsMax = 4096;
constexpr int64_t kAttentionThreads = 128, kValueDimMax = 512, kKeyDimMax = 1024;
constexpr int64_t kAttentionTokensMax = 64;  // up to which tiles leave too many multiprocessors without work
constexpr int64_t kMatrixBytesMax = (int64_t{1} << 32) - 1024;  // shaders count a matrix's bytes in 32 bits
constexpr int64_t kRowsThreads = 128;                           // of a workgroup
constexpr int64_t kRowsSharedBytes = 15 << 10;                  // of the 16 KiB that every device has

uint32_t u32(int64_t n) { return static_cast<uint32_t>(n); }

bool has_format(const tensor::TensorView& view) {
  return number_of_format(view.dtype) >= 0 && device_bytes(view) <= kMatrixBytesMax;
}
uint32_t number_of(DType dtype) { return u32(number_of_format(dtype)); }

const tensor::TensorView& view_of(const ops::Plan& plan, ops::WeightId id) {
  return plan.weights[static_cast<size_t>(id)].view;
}

bool as_floats(const ops::Plan& plan, const ops::ExecutorOptions& options, ops::WeightId id) {
  return options.weights_as_f32 || quant::find_format(view_of(plan, id).dtype)->activation == quant::Activation::f32;
}

const ops::Op& op_at(const DeviceState& s, int32_t i) { return s.plan.ops[static_cast<size_t>(i)]; }
template <class R>
const R& only(const DeviceState& s, std::span<const int32_t> ops) {
  return op_at(s, ops.front()).get<R>();
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
  Product p = {r.x, r.y, r.w, r.bias, r.d_out, r.d_in, r.n_pairs(s.n_rows(r.y))};
  p.experts.routes = r.routes == kNone ? 0 : s.value(r.routes);
  p.experts.n_used = u32(r.n_used);
  p.experts.has_routes = r.routes == kNone ? 0u : 1u;
  p.experts.rows_per_expert = u32(r.row_of(1) - r.row_of(0));
  p.experts.first_row = u32(r.first_row);
  p.experts.x_of_pairs = r.has_own_inputs(s.plan.values[static_cast<size_t>(r.x)]) ? 1u : 0u;
  return p;
}

// How a team of linear/linear_rows.comp shares out rows of so many blocks: as many outputs as shared memory holds.
struct RowsShape {
  int64_t lanes = 32, teams = 0, rows = 0, tokens = 0, blocks = 0, segment = 1;
  int64_t n_outputs() const { return teams * rows * tokens; }
  int64_t bytes() const { return n_outputs() * (blocks * 4 + segment * 72 + 32) + tokens * blocks * 4; }
};
RowsShape rows_shape(const tensor::TensorView& w, int64_t n_tokens) {
  RowsShape shape;
  const int64_t elements = tensor::traits(w.dtype).block_elements;
  shape.blocks = w.shape.cols() / elements;
  shape.segment = elements == 256 ? std::min<int64_t>(shape.blocks, 32) : 1;
  shape.tokens = n_tokens > 2 ? 4 : n_tokens;  // few different pipelines
  const Team team = team_for(w, n_tokens);
  shape.lanes = team.lanes, shape.teams = kRowsThreads / team.lanes, shape.rows = team.rows;
  while (shape.bytes() > kRowsSharedBytes && shape.segment > 8) shape.segment /= 2;
  for (int64_t* n : {&shape.teams, &shape.rows, &shape.tokens}) {
    while (shape.bytes() > kRowsSharedBytes && *n > 1) *n /= 2;
  }
  return shape;
}

template <class R, bool of_floats>
bool serves_product(const ops::Plan& plan, const ops::ExecutorOptions& options, const ops::Op& op) {
  const auto& r = op.get<R>();
  const tensor::TensorView& w = view_of(plan, r.w);
  return has_format(w) && as_floats(plan, options, r.w) == of_floats &&
         (of_floats || rows_shape(w, 1).bytes() <= kRowsSharedBytes);
}

template <class R, int64_t n_together>
void run_floats(DeviceState& s, std::span<const int32_t> ops) {
  struct Push {
    Address w, x, bias, y;
    Experts experts;
    uint32_t n_rows, n_cols, n_tokens, row_bytes, has_bias;
  };
  static_assert(sizeof(Push) <= 128);
  for (const int32_t i : ops) {
    const Product p = product_of(s, op_at(s, i).get<R>());
    const tensor::TensorView& w = view_of(s.plan, p.w);
    const Push push = {s.matrix(p.w),
                       s.value(p.x),
                       s.small(p.bias),
                       s.value(p.y),
                       p.experts,
                       u32(p.n_rows),
                       u32(p.n_cols),
                       u32(p.n_tokens),
                       u32(device_row_bytes(w)),
                       p.bias == kNone ? 0u : 1u};
    s.device.dispatch("linear_float", {number_of(w.dtype), u32(n_together)}, push, p.n_rows,
                      (p.n_tokens + n_together - 1) / n_together);
  }
}

struct ProductPush {  // linear/products.glsl
  Address w = 0, bias = 0, y = 0;
  uint32_t n_rows = 0, has_bias = 0;
};
ProductPush push_of(const DeviceState& s, const Product& p) {
  return {s.matrix(p.w), s.small(p.bias), s.value(p.y), u32(p.n_rows), p.bias == kNone ? 0u : 1u};
}
// Of a shader for products: with the device's dots of bytes, and for experts.
std::string shader_of(const DeviceState& s, const char* name, bool for_experts) {
  return std::string(name) + "_" + std::to_string((s.device.uses_dots() ? 1 : 0) + (for_experts ? 2 : 0));
}
const TwinRows& twin_of(const DeviceState& s, int32_t op) {
  return s.twin(s.lowering.twins.read_by_op[static_cast<size_t>(op)]);
}

struct LinearsPush {
  Address x = 0;
  ProductPush products[kProductsMax];
  uint32_t n_tokens = 0, row_bytes = 0;
};
static_assert(sizeof(LinearsPush) <= 128);

// rows_together: of a workgroup, which has rows of one product.
LinearsPush linears_push(const DeviceState& s, std::span<const int32_t> ops, int64_t rows_together, int64_t& n_groups) {
  LinearsPush push;
  push.x = twin_of(s, ops.front()).address;
  n_groups = 0;
  for (size_t i = 0; i < ops.size(); ++i) {
    const Product p = product_of(s, op_at(s, ops[i]).get<ops::Linear>());
    push.products[i] = push_of(s, p);
    push.n_tokens = u32(p.n_tokens);
    push.row_bytes = u32(device_row_bytes(view_of(s.plan, p.w)));
    n_groups += (p.n_rows + rows_together - 1) / rows_together;
  }
  return push;
}

Constants rows_constants(const DeviceState& s, DType dtype, const RowsShape& shape) {
  const int64_t n = shape.n_outputs();
  return {number_of(dtype),  u32(shape.tokens),  u32(s.options.planes), u32(shape.teams),           u32(shape.rows),
          u32(shape.blocks), u32(shape.segment), u32(n * shape.blocks), u32(n * shape.segment * 4), u32(n * 8),
          u32(shape.lanes)};
}

// Rows of superblocks, where invocations hand sums to one another.
void run_chunks(DeviceState& s, std::span<const int32_t> ops) {
  constexpr int64_t kLanes = 32, kTeams = kRowsThreads / kLanes, kManyRows = 8192;
  const auto& first = only<ops::Linear>(s, ops);
  const tensor::TensorView& w = view_of(s.plan, first.w);
  const int64_t n_tokens = s.n_rows(first.y), tokens = n_tokens > 2 ? 4 : n_tokens;  // few different pipelines
  const int64_t rows = tokens == 1 && w.shape.rows() >= kManyRows ? 4 : 2;
  int64_t n_groups = 0;
  const LinearsPush push = linears_push(s, ops, kTeams * rows, n_groups);
  s.device.dispatch(s.device.uses_dots() ? "linear_rows_5" : "linear_rows_4",
                    {number_of(w.dtype), u32(tokens), u32(s.options.planes), u32(kTeams), u32(rows),
                     u32(w.shape.cols() / 256), 0, 0, 0, u32(kTeams * rows * tokens * 8), u32(kLanes)},
                    push, n_groups, (n_tokens + tokens - 1) / tokens);
}

void run_rows(DeviceState& s, std::span<const int32_t> ops) {
  const auto& first = only<ops::Linear>(s, ops);
  const tensor::TensorView& w = view_of(s.plan, first.w);
  const int64_t n_tokens = s.n_rows(first.y);
  if (s.device.uses_shuffles() && tensor::traits(w.dtype).block_elements == 256) return run_chunks(s, ops);
  const RowsShape shape = rows_shape(w, n_tokens);
  int64_t n_groups = 0;
  const LinearsPush push = linears_push(s, ops, shape.teams * shape.rows, n_groups);
  s.device.dispatch(shader_of(s, "linear_rows", false), rows_constants(s, w.dtype, shape), push, n_groups,
                    (n_tokens + shape.tokens - 1) / shape.tokens);
}

void run_tiles(DeviceState& s, std::span<const int32_t> ops) {
  const auto& first = only<ops::Linear>(s, ops);
  const tensor::TensorView& w = view_of(s.plan, first.w);
  const int64_t per = s.device.tile_side(), n_tokens = s.n_rows(first.y);
  int64_t n_groups = 0;
  const LinearsPush push = linears_push(s, ops, 8 * per, n_groups);
  const int64_t n_blocks = w.shape.cols() / tensor::traits(w.dtype).block_elements;
  s.device.dispatch(shader_of(s, "linear_tile", false),
                    {number_of(w.dtype), u32(per), u32(s.options.planes), 0, 0, u32(n_blocks), u32(per * per)}, push,
                    n_groups, (n_tokens + 16 * per - 1) / (16 * per));
}

bool serves_matrix(const ops::Plan& plan, const ops::ExecutorOptions& options, const ops::Op& op) {
  return serves_product<ops::Linear, false>(plan, options, op) &&
         tensor::traits(view_of(plan, op.get<ops::Linear>().w).dtype).block_elements == 256;
}
void run_matrices(DeviceState& s, std::span<const int32_t> ops) {
  constexpr int64_t kColumnFragments = 2, kRowFragments = 2, kElements = 8;  // as linear_matrix.comp has them
  const bool is_own = s.device.facts().matrix_depth > 0;
  const auto& first = only<ops::Linear>(s, ops);
  const tensor::TensorView& w = view_of(s.plan, first.w);
  const int64_t n_tokens = s.n_rows(first.y), planes = s.options.planes, tokens = 32 * kColumnFragments / planes;
  int64_t n_groups = 0;
  const LinearsPush push = linears_push(s, ops, is_own ? 128 : 64, n_groups);
  const int64_t n_blocks = w.shape.cols() / tensor::traits(w.dtype).block_elements;
  s.device.dispatch(
      is_own ? "linear_matrix_4" : "linear_matrix_0",
      {number_of(w.dtype), u32(kColumnFragments), u32(planes), u32(kRowFragments * kColumnFragments),
       u32(3 * kRowFragments * kColumnFragments / planes * kElements), u32(n_blocks), s.device.matrix_depth()},
      push, n_groups, (n_tokens + tokens - 1) / tokens);
}

void run_experts(DeviceState& s, std::span<const int32_t> ops) {
  struct Push {
    Address x;
    ProductPush product;
    Experts experts;
    uint32_t n_tokens, row_bytes;
  };
  static_assert(sizeof(Push) <= 128);
  const Product p = product_of(s, only<ops::ExpertLinear>(s, ops));
  const tensor::TensorView& w = view_of(s.plan, p.w);
  const RowsShape shape = rows_shape(w, 1);
  const Push push = {twin_of(s, ops.front()).address, push_of(s, p), p.experts, u32(p.n_tokens),
                     u32(device_row_bytes(w))};
  s.device.dispatch(shader_of(s, "linear_rows", true), rows_constants(s, w.dtype, shape), push,
                    (p.n_rows + shape.teams * shape.rows - 1) / (shape.teams * shape.rows), p.n_tokens);
}

bool serves_embed(const ops::Plan& plan, const ops::ExecutorOptions&, const ops::Op& op) {
  return has_format(view_of(plan, op.get<ops::Embed>().table));
}
void run_embed(DeviceState& s, std::span<const int32_t> ops) {
  struct Push {
    Address table, tokens, y;
    uint32_t n_cols, row_bytes;
    float scale;
  };
  const auto& r = only<ops::Embed>(s, ops);
  const tensor::TensorView& table = view_of(s.plan, r.table);
  const Push push = {
      s.matrix(r.table),          s.tokens(), s.value(r.y), u32(s.width(r.y)), u32(device_row_bytes(table)),
      static_cast<float>(r.scale)};
  s.device.dispatch("embed", {number_of(table.dtype)}, push, s.n_rows(r.y), (s.width(r.y) + 63) / 64);
}

// ---- Rows

void run_rms_norm(DeviceState& s, std::span<const int32_t> ops) {
  struct Push {
    Address x, w, y;
    uint32_t d, has_weights, n_runs;
    float eps;
  };
  const auto& r = only<ops::RmsNorm>(s, ops);
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

bool serves_gate(const ops::Plan&, const ops::ExecutorOptions&, const ops::Op& op) {
  return number_in_shaders(op.get<ops::Gate>().activation).has_value();
}
bool serves_activate(const ops::Plan&, const ops::ExecutorOptions&, const ops::Op& op) {
  return number_in_shaders(op.get<ops::Activate>().activation).has_value();
}

void run_add(DeviceState& s, std::span<const int32_t> ops) {
  const auto& r = only<ops::Add>(s, ops);
  run_elements(s, Element::add, 0, s.value(r.a), s.value(r.b), r.y, 1, 0);
}
void run_gate(DeviceState& s, std::span<const int32_t> ops) {
  const auto& r = only<ops::Gate>(s, ops);
  run_elements(s, Element::gate, number_in_shaders(r.activation).value(), s.value(r.gate), s.value(r.up), r.y,
               s.width(r.y) / s.width(r.gate), 0);
}
void run_activate(DeviceState& s, std::span<const int32_t> ops) {
  const auto& r = only<ops::Activate>(s, ops);
  run_elements(s, Element::activate, number_in_shaders(r.activation).value(), s.value(r.x), 0, r.y, 1, 0);
}
void run_scale(DeviceState& s, std::span<const int32_t> ops) {
  const auto& r = only<ops::Scale>(s, ops);
  run_elements(s, Element::scale, 0, s.value(r.x), 0, r.y, 1, r.factor);
}
void run_softcap(DeviceState& s, std::span<const int32_t> ops) {
  const auto& r = only<ops::Softcap>(s, ops);
  run_elements(s, Element::softcap, 0, s.value(r.x), 0, r.y, 1, r.cap);
}
void run_add_columns(DeviceState& s, std::span<const int32_t> ops) {
  const auto& r = only<ops::AddColumns>(s, ops);
  run_elements(s, Element::add_columns, 0, s.value(r.x), s.small(r.w), r.y, s.width(r.y), 0);
}
// A factor for each column; one for a run of them is spread by the reference.
bool serves_scale_columns(const ops::Plan& plan, const ops::ExecutorOptions&, const ops::Op& op) {
  const auto& r = op.get<ops::ScaleColumns>();
  return view_of(plan, r.w).shape.elements() == plan.values[static_cast<size_t>(r.y)].width;
}
void run_scale_columns(DeviceState& s, std::span<const int32_t> ops) {
  const auto& r = only<ops::ScaleColumns>(s, ops);
  run_elements(s, Element::scale_columns, 0, s.value(r.x), s.small(r.w), r.y, s.width(r.y), 0);
}

void run_rope(DeviceState& s, std::span<const int32_t> ops) {
  struct Push {
    Address x, table, y, positions;
    uint32_t n_heads, head_dim, dim, interleaved;
  };
  const auto& r = only<ops::Rope>(s, ops);
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
  uint32_t x_cols, first_col, y_cols, n_rows, all_rows;
};
void dispatch_select(DeviceState& s, const SelectPush& push) {
  s.device.dispatch("select", {}, push, push.n_rows, (int64_t{push.y_cols} + 255) / 256);
}
void run_select(DeviceState& s, std::span<const int32_t> ops) {
  const auto& r = only<ops::SelectOutputs>(s, ops);
  dispatch_select(
      s, {s.value(r.x), s.value(r.y), s.selected(), u32(s.width(r.x)), 0, u32(s.width(r.y)), u32(s.n_rows(r.y)), 0});
}
void run_slice(DeviceState& s, std::span<const int32_t> ops) {
  const auto& r = only<ops::Slice>(s, ops);
  dispatch_select(s, {s.value(r.x), s.value(r.y), 0, u32(s.width(r.x) / r.n_runs), u32(r.first),
                      u32(s.width(r.y) / r.n_runs), u32(s.n_rows(r.y) * r.n_runs), 1});
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
void run_store(DeviceState& s, std::span<const int32_t> ops) {
  struct Push {
    Address x, cache, positions, sequences;
    uint32_t n_ctx, width;
  };
  const auto& r = only<ops::KvStore>(s, ops);
  s.device.set_together(true);
  const auto store = [&](ops::ValueId x, const CacheRows& rows) {
    const Push push = {s.value(x),    rows.memory.address(), s.positions(),
                       s.sequences(), u32(s.options.n_ctx),  u32(s.width(x))};
    s.device.dispatch("kv_store", {number_of(rows.type)}, push, s.n_rows(x));
  };
  store(r.k, s.cache.keys(r.layer));
  if (r.v != kNone) store(r.v, s.cache.values(r.layer));
  s.device.set_together(false);
}

bool serves_attention(const ops::Plan& plan, const ops::ExecutorOptions& options, const ops::Op& op) {
  const ops::CacheLayer& layer = plan.cache_layers[static_cast<size_t>(op.get<ops::Attention>().layer)];
  const auto is_even = [](ops::CacheType type, int64_t dim) { return type == ops::CacheType::f32 || dim % 2 == 0; };
  return layer.v_dim() <= kValueDimMax && layer.head_dim <= kKeyDimMax && is_even(options.cache_k, layer.head_dim) &&
         is_even(options.cache_v, layer.v_dim());
}
struct AttentionPush {  // attention/attention.comp
  Address q, k, v, sinks, y, positions, sequences, n_positions;
  uint32_t n_heads, n_kv_heads, v_dim, v_row_dim, n_ctx, window, chunk, flags;
  float scale, softcap;
  uint32_t n_tokens = 0, heads_log2 = 0;  // of tiles, and their marks
  Address marks = 0;
};
static_assert(sizeof(AttentionPush) <= 128);

AttentionPush push_of(const DeviceState& s, const ops::Attention& r) {
  return {s.value(r.q),
          s.cache.keys(r.layer).memory.address(),
          s.cache.values(r.layer).memory.address(),
          s.small(r.sinks),
          s.value(r.y),
          s.positions(),
          s.sequences(),
          s.n_positions(),
          u32(r.n_heads),
          u32(r.n_kv_heads),
          u32(s.cache.layer(r.layer).v_dim()),
          u32(s.cache.values(r.layer).dim),
          u32(s.options.n_ctx),
          u32(r.window),
          u32(r.chunk),
          (r.causal ? 1u : 0u) | (r.sinks == kNone ? 0u : 2u),
          static_cast<float>(r.scale),
          static_cast<float>(r.softcap)};
}

Constants attention_constants(const DeviceState& s, const ops::Attention& r) {
  return {number_of(s.cache.keys(r.layer).type), number_of(s.cache.values(r.layer).type),
          u32((s.cache.layer(r.layer).v_dim() + kAttentionThreads - 1) / kAttentionThreads), r.softcap > 0 ? 1u : 0u,
          u32(r.head_dim)};
}

void run_attention(DeviceState& s, std::span<const int32_t> ops) {
  const auto& r = only<ops::Attention>(s, ops);
  const int64_t n_segments =
      s.n_rows(r.y) == s.n_tokens() && r.n_heads * s.n_segments() <= kGroupsMax ? s.n_segments() : 0;
  AttentionPush push = push_of(s, r);
  const Constants constants = attention_constants(s, r);
  if (n_segments == 0) return s.device.dispatch("attention_0", constants, push, r.n_heads, s.n_rows(r.y));
  push.y = s.segments();
  s.device.dispatch("attention_1", constants, push, r.n_heads * n_segments, s.n_rows(r.y));
  push.y = s.value(r.y);
  push.v = s.segments();
  push.n_ctx = u32(n_segments);
  s.device.dispatch("attention_2", constants, push, r.n_heads, s.n_rows(r.y));
}

bool serves_attention_tiles(const ops::Plan& plan, const ops::ExecutorOptions& options, const ops::Op& op) {
  constexpr double kScaleMin = 0x1p-20, kScaleMax = 0x1p20;  // what scores may become by it
  const auto& r = op.get<ops::Attention>();
  const ops::CacheLayer& layer = plan.cache_layers[static_cast<size_t>(r.layer)];
  return (r.head_dim == 64 || r.head_dim == 128 || r.head_dim == 256) && layer.v_dim() == r.head_dim &&
         layer.stored_v_dim() == r.head_dim && !layer.values_in_keys && r.softcap == 0 && r.scale >= kScaleMin &&
         r.scale <= kScaleMax && options.cache_k != ops::CacheType::f32 && options.cache_v != ops::CacheType::f32;
}

void run_attention_tiles(DeviceState& s, std::span<const int32_t> ops) {
  constexpr uint32_t kHeadsLog2Max = 3;
  const auto& r = only<ops::Attention>(s, ops);
  const int64_t n_queries =
      s.device.facts().shared_bytes >= attention_tile_bytes(kTileQueriesMax) ? kTileQueriesMax : kTileQueriesMin;
  AttentionPush push = push_of(s, r);
  push.n_tokens = u32(s.n_rows(r.y));
  push.marks = s.marks();
  while (push.heads_log2 < kHeadsLog2Max && r.n_heads / r.n_kv_heads % (int64_t{2} << push.heads_log2) == 0)
    ++push.heads_log2;
  const int64_t n_tokens = n_queries >> push.heads_log2, n_heads = r.n_heads >> push.heads_log2,
                n_tiles = (push.n_tokens + n_tokens - 1) / n_tokens;
  Constants constants = attention_constants(s, r);
  constants.push_back(u32(n_queries));
  s.device.dispatch("attention_tile", {constants[0], constants[1], u32(n_queries), u32(4 * n_queries), u32(r.head_dim)},
                    push, n_heads, n_tiles);
  s.device.dispatch("attention_4", constants, push, n_heads, n_tiles);
}

class LargestMatrix final : public ops::FieldVisitor {
 public:
  explicit LargestMatrix(const ops::Plan& plan) : plan_(plan) {}
  int64_t bytes = 0;  // on the device
  void matrix(ops::WeightId& id) override {
    if (id != kNone) bytes = std::max(bytes, device_bytes(view_of(plan_, id)));
  }

 private:
  const ops::Plan& plan_;
};

const std::array kTable = {
    Kernel{"linear_rows", ops::Record::type_of<ops::Linear>(), 1, kRowsTokensMax, serves_product<ops::Linear, false>,
           run_rows},
    Kernel{"linear_tile", ops::Record::type_of<ops::Linear>(), kRowsTokensMax + 1, kTilesTokensMax,
           serves_product<ops::Linear, false>, run_tiles},
    Kernel{"linear_matrix", ops::Record::type_of<ops::Linear>(), kTilesTokensMax + 1, 0, serves_matrix, run_matrices,
           true},
    Kernel{"linear_tile", ops::Record::type_of<ops::Linear>(), kTilesTokensMax + 1, 0,
           serves_product<ops::Linear, false>, run_tiles},
    Kernel{"linear_float, 1 token", ops::Record::type_of<ops::Linear>(), 1, 1, serves_product<ops::Linear, true>,
           run_floats<ops::Linear, 1>},
    Kernel{"linear_float, 4 tokens", ops::Record::type_of<ops::Linear>(), 2, 0, serves_product<ops::Linear, true>,
           run_floats<ops::Linear, kTokensTogether>},
    Kernel{"linear_rows, experts", ops::Record::type_of<ops::ExpertLinear>(), 1, 0,
           serves_product<ops::ExpertLinear, false>, run_experts},
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
    Kernel{"elements, scale_columns", ops::Record::type_of<ops::ScaleColumns>(), 1, 0, serves_scale_columns,
           run_scale_columns},
    Kernel{"rope", ops::Record::type_of<ops::Rope>(), 1, 0, serves_rope, run_rope},
    Kernel{"select, outputs", ops::Record::type_of<ops::SelectOutputs>(), 1, 0, nullptr, run_select},
    Kernel{"select, slice", ops::Record::type_of<ops::Slice>(), 1, 0, nullptr, run_slice},
    Kernel{"kv_store", ops::Record::type_of<ops::KvStore>(), 1, 0, serves_store, run_store},
    Kernel{"attention", ops::Record::type_of<ops::Attention>(), 1, kAttentionTokensMax, serves_attention,
           run_attention},
    Kernel{"attention, tiles", ops::Record::type_of<ops::Attention>(), kAttentionTokensMax + 1, 0,
           serves_attention_tiles, run_attention_tiles, false, true},
    Kernel{"attention", ops::Record::type_of<ops::Attention>(), kAttentionTokensMax + 1, 0, serves_attention,
           run_attention},
};

}  // namespace

std::span<const Kernel> kernels() noexcept { return kTable; }

Team team_for(const tensor::TensorView& w, int64_t n_tokens) noexcept {
  constexpr int64_t kManyRows = 4096;
  const int64_t elements = tensor::traits(w.dtype).block_elements, blocks = w.shape.cols() / elements;
  const int64_t loads = elements == 256 ? 4 * blocks : blocks;  // of an invocation each
  Team team;
  team.lanes = loads <= 32 ? 32 : loads <= 64 ? 64 : 128;
  team.rows = n_tokens <= 2 && (team.lanes > 32 || w.shape.rows() >= kManyRows) ? 4 : 2;
  return team;
}

std::vector<const Kernel*> kernels_for(const ops::Plan& plan, const ops::ExecutorOptions& options, const ops::Op& op,
                                       const Offer& offer) {
  std::vector<const Kernel*> rows;
  LargestMatrix largest(plan);
  op.record.fields(largest);
  if (static_cast<uint64_t>(largest.bytes) > offer.matrix_bytes_max) return rows;
  for (const Kernel& kernel : kTable) {
    if (kernel.op != op.record.type() || (kernel.needs_matrices && !offer.has_matrices) ||
        (kernel.needs_tiles && !offer.has_tiles))
      continue;
    if (kernel.serves != nullptr && !kernel.serves(plan, options, op)) continue;
    rows.push_back(&kernel);
    if (kernel.tokens_max == 0) break;
  }
  return rows;
}

}  // namespace assay::backend::vulkan
