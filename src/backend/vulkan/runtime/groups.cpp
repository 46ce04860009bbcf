// See groups.h. Each push struct is the one of its shader.
#include "backend/vulkan/runtime/groups.h"

#include <algorithm>
#include <bit>
#include <string>

#include "backend/vulkan/rows/activation.h"
#include "base/index.h"
#include "ops/attention/attention.h"
#include "ops/attention/kv_store.h"
#include "ops/attention/rope.h"
#include "ops/rows/add.h"
#include "ops/rows/gate.h"
#include "ops/rows/rms_norm.h"

namespace assay::backend::vulkan {
namespace {

using ops::kNone;
using Address = VkDeviceAddress;
using Kind = lower::FusionGroup::Kind;

constexpr int64_t kPiece = 1024;           // elements of a row that a workgroup quantises
constexpr int64_t kNormSharedRest = 2048;  // bytes that rows/norm.comp takes besides the row
constexpr int64_t kHeadDimMax = 512;

uint32_t narrow(int64_t n) { return static_cast<uint32_t>(n); }

template <class R>
const R* record(const DeviceState& s, int32_t op) {
  return op == kNone ? nullptr : s.plan.ops[at(op)].as<R>();
}

struct TwinPush {  // linear/twin.comp
  Address x, up, y, twin;
  uint32_t k;
};

void record_twin(DeviceState& s, int32_t i_twin) {
  const TwinRows& twin = s.twin(i_twin);
  const ops::ValueId x = s.lowering.twins.list[at(i_twin)].x;
  const int64_t n_rows = s.n_rows(x) * (s.width(x) / twin.k);
  const TwinPush push = {s.value(x), 0, 0, twin.address, narrow(twin.k)};
  s.device.dispatch("twin_0", {twin.block(), narrow(s.options.planes), 0}, push, (twin.k + kPiece - 1) / kPiece,
                    n_rows);
}

void record_gate(DeviceState& s, const lower::FusionGroup& group) {
  const auto& r = s.plan.ops[at(group.ops.front())].get<ops::Gate>();
  const TwinRows& twin = s.twin(group.twin);
  const int64_t n_rows = s.n_rows(r.y) * (s.width(r.y) / twin.k);
  const TwinPush push = {s.value(r.gate), s.value(r.up), s.value(r.y), twin.address, narrow(twin.k)};
  s.device.dispatch("twin_1", {twin.block(), narrow(s.options.planes), number_in_shaders(r.activation).value()}, push,
                    (twin.k + kPiece - 1) / kPiece, n_rows);
}

void record_norm(DeviceState& s, const lower::FusionGroup& group) {
  struct Push {
    Address a = 0, b = 0, first_w = 0, w = 0, first_y = 0, x = 0, y = 0, twin = 0;
    float first_eps = 0, eps = 0;
  };
  const auto& norm = s.plan.ops[at(group.norm)].get<ops::RmsNorm>();
  const auto* sum = record<ops::Add>(s, group.add);
  const auto* first = record<ops::RmsNorm>(s, group.pre_norm);
  Push push;
  push.w = s.small(norm.w), push.y = s.value(norm.y), push.eps = norm.eps;
  push.a = s.value(sum == nullptr ? norm.x : sum->a);
  if (sum != nullptr) push.b = s.value(sum->b), push.x = s.value(sum->y);
  uint32_t normalised_first = 0;
  if (first != nullptr) {
    normalised_first = sum->a == first->y ? 1 : 2;
    (normalised_first == 1 ? push.a : push.b) = s.value(first->x);
    push.first_w = s.small(first->w), push.first_y = s.value(first->y), push.first_eps = first->eps;
  }
  const bool has_twin = group.twin != kNone && s.is_twin_read(group.twin);
  const bool makes_twin = has_twin && s.twin(group.twin).k == norm.d;
  if (makes_twin) push.twin = s.twin(group.twin).address;
  const int64_t n_threads = norm.d > 1024 && s.device.facts().n_invocations_max >= 512 ? 512 : 256;
  s.device.dispatch(
      "norm",
      {makes_twin ? s.twin(group.twin).block() : 0, narrow(s.options.planes), narrow(norm.d), sum == nullptr ? 0u : 1u,
       normalised_first, narrow(n_threads), narrow((norm.d + n_threads - 1) / n_threads)},
      push, s.n_rows(norm.y));
  if (has_twin && !makes_twin) record_twin(s, group.twin);
}

uint32_t bits_of(double x) { return std::bit_cast<uint32_t>(static_cast<float>(x)); }

// Of a group of heads what attention/heads.comp and attention/attention.comp are both told.
struct Heads {
  struct Addresses {
    Address q, k, v, q_y, k_y, cache_k, cache_v, table, q_w, k_w, q_norm, k_norm;
  };
  Heads(const DeviceState& s, const lower::FusionGroup& group)
      : q(s.plan.ops[at(group.q_rope)].get<ops::Rope>()), k(s.plan.ops[at(group.k_rope)].get<ops::Rope>()),
        store(s.plan.ops[at(group.store)].get<ops::KvStore>()), spec(s.plan.ropes[at(q.rope)]) {
    const auto* q_norm = record<ops::RmsNorm>(s, group.q_norm);
    const auto* k_norm = record<ops::RmsNorm>(s, group.k_norm);
    const CacheRows& keys = s.cache.keys(store.layer);
    const CacheRows& values = s.cache.values(store.layer);
    addresses = {s.value(q_norm == nullptr ? q.x : q_norm->x),
                 s.value(k_norm == nullptr ? k.x : k_norm->x),
                 s.value(store.v),
                 s.value(q.y),
                 s.value(k.y),
                 keys.memory.address(),
                 values.memory.address(),
                 s.rope(q.rope),
                 q_norm == nullptr ? 0 : s.small(q_norm->w),
                 k_norm == nullptr ? 0 : s.small(k_norm->w),
                 q_norm == nullptr ? 0 : s.value(q_norm->y),
                 k_norm == nullptr ? 0 : s.value(k_norm->y)};
    type_k = static_cast<uint32_t>(keys.type), type_v = static_cast<uint32_t>(values.type);
    norms = (q_norm == nullptr ? 0u : 1u) | (k_norm == nullptr ? 0u : 2u);
    q_eps = bits_of(q_norm == nullptr ? 0.0f : q_norm->eps), k_eps = bits_of(k_norm == nullptr ? 0.0f : k_norm->eps);
    sequences_at = narrow(static_cast<int64_t>((s.sequences() - s.positions()) / sizeof(int32_t)));
  }
  const ops::Rope &q, &k;
  const ops::KvStore& store;
  const ops::RopeSpec& spec;
  Addresses addresses;
  uint32_t type_k, type_v;
  uint32_t norms;         // bit 0: of queries, bit 1: of keys
  uint32_t q_eps, k_eps;  // bits
  uint32_t sequences_at;  // words behind the positions
};

void record_heads(DeviceState& s, const lower::FusionGroup& group) {
  struct Push {
    Heads::Addresses heads;
    Address positions;
    uint32_t sequences, n_heads, n_kv_heads, n_ctx;
  };
  static_assert(sizeof(Push) <= 128);
  const Heads heads(s, group);
  const int64_t n_heads = heads.q.n_heads, n_kv_heads = heads.k.n_heads;
  const Push push = {heads.addresses, s.positions(),      heads.sequences_at,
                     narrow(n_heads), narrow(n_kv_heads), narrow(s.options.n_ctx)};
  s.device.dispatch("heads",
                    {heads.type_k, heads.type_v, narrow(heads.q.head_dim), narrow(heads.spec.dim),
                     heads.spec.interleaved ? 1u : 0u, heads.norms, heads.q_eps, heads.k_eps},
                    push, n_heads + n_kv_heads, s.n_tokens());
}

constexpr int64_t kThreadsOfHead = 128;  // in attention.comp

// Whether rotations and the cache are such as attention/heads.comp takes: rows of tokens, heads of whole words.
bool takes_heads(const ops::Plan& plan, const ops::ExecutorOptions& options) {
  const auto in_words = [](ops::CacheType type, int64_t dim) {
    return type == ops::CacheType::f32 || dim % (type == ops::CacheType::f16 ? 2 : 64) == 0;
  };
  for (const ops::CacheLayer& layer : plan.cache_layers) {
    if (!in_words(options.cache_k, layer.head_dim) || !in_words(options.cache_v, layer.stored_v_dim())) return false;
  }
  return std::ranges::all_of(plan.ops, [&](const ops::Op& op) {
    const auto* rope = op.as<ops::Rope>();
    return rope == nullptr || plan.values[at(rope->y)].domain == ops::RowDomain::tokens;
  });
}

}  // namespace

lower::DeviceLimits limits_for(const ops::Plan& plan, const ops::ExecutorOptions& options, const Facts& device,
                               bool borrows_all) {
  lower::DeviceLimits limits;
  limits.has_kernel = [&plan, options, borrows_all, most = device.piece_bytes_max](const ops::Op& op) {
    return !borrows_all && !kernels_for(plan, options, op, {.matrix_bytes_max = most}).empty();
  };
  limits.products_max = plan.ops.size();
  if (borrows_all) return limits;
  limits.norm_width_max =
      (static_cast<int64_t>(device.shared_bytes) - kNormSharedRest) / static_cast<int64_t>(sizeof(float));
  limits.head_dim_max = takes_heads(plan, options) ? kHeadDimMax : 0;
  limits.gate_makes_twin = [&plan](const ops::Gate& gate) {
    const auto width = [&plan](ops::ValueId id) { return plan.values[at(id)].width; };
    return number_in_shaders(gate.activation) && width(gate.gate) == width(gate.y);
  };
  return limits;
}

bool takes_attention(const ops::Plan& plan, const lower::FusionGroup& heads, int32_t attention) {
  const auto* r = plan.ops[at(attention)].as<ops::Attention>();
  if (heads.kind != Kind::heads || r == nullptr || !r->causal) return false;
  const auto& q = plan.ops[at(heads.q_rope)].get<ops::Rope>();
  const auto& store = plan.ops[at(heads.store)].get<ops::KvStore>();
  return r->q == q.y && r->layer == store.layer && r->head_dim == q.head_dim && r->n_heads == q.n_heads &&
         plan.cache_layers[at(store.layer)].v_dim() == q.head_dim;
}

void record_heads_and_attention(DeviceState& s, const lower::FusionGroup& group, int32_t attention) {
  struct Push {
    Heads::Addresses heads;
    Address sinks, y, positions;
  };
  static_assert(sizeof(Push) <= 128);
  const auto& r = s.plan.ops[at(attention)].get<ops::Attention>();
  const Heads heads(s, group);
  const Push push = {heads.addresses, s.small(r.sinks), s.value(r.y), s.positions()};
  const Constants constants = {heads.type_k,
                               heads.type_v,
                               narrow((heads.q.head_dim + kThreadsOfHead - 1) / kThreadsOfHead),
                               r.softcap > 0 ? 1u : 0u,
                               narrow(heads.q.head_dim),
                               narrow(heads.spec.dim),
                               heads.spec.interleaved ? 1u : 0u,
                               heads.norms,
                               heads.q_eps,
                               heads.k_eps,
                               narrow(r.n_heads),
                               narrow(r.n_kv_heads),
                               narrow(s.options.n_ctx),
                               narrow(r.window),
                               narrow(r.chunk),
                               1u | (r.sinks == kNone ? 0u : 2u),
                               bits_of(r.scale),
                               bits_of(r.softcap),
                               heads.sequences_at};
  s.device.dispatch("attention_3", constants, push, r.n_heads);
}

std::string_view kernel_of(const DeviceState& s, const lower::FusionGroup& group) noexcept {
  switch (group.kind) {
    case Kind::quantise: return "twin";
    case Kind::norm: return "norm";
    case Kind::heads: return "heads";
    case Kind::gate: return s.is_twin_read(group.twin) ? "gate, twin" : "";
    default: return {};
  }
}

void record_group(DeviceState& s, const lower::FusionGroup& group) {
  const ops::ValueId shown = group.kind == Kind::quantise
                                 ? s.lowering.twins.list[at(group.twin)].x
                                 : s.lowering.links.output(group.kind == Kind::heads ? group.q_rope : group.ops.back());
  if (s.n_rows(shown) == 0) return;
  switch (group.kind) {
    case Kind::quantise:
      if (s.is_twin_read(group.twin)) record_twin(s, group.twin);
      break;
    case Kind::norm: record_norm(s, group); break;
    case Kind::heads: record_heads(s, group); break;
    default: record_gate(s, group);
  }
}

}  // namespace assay::backend::vulkan
