// See context_options.h.
#include "engine/context_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "assay/error.h"
#include "backend/cpu/linear/linear_table.h"
#include "backend/cpu/runtime/cpu_executor.h"
#include "backend/cuda/cuda.h"
#include "backend/oracle/oracle_executor.h"
#include "backend/vulkan/vulkan.h"
#include "engine/executors/placement.h"
#include "engine/executors/replay_executor.h"
#include "engine/executors/shard_executor.h"
#include "engine/executors/split_executor.h"
#include "engine/model_state.h"
#include "ops/plan/plan_shards.h"
#include "pages/page_tables.h"

namespace assay {
namespace {

template <class Enum, size_t n>
using Names = std::array<std::pair<Enum, std::string_view>, n>;

constexpr Names<Numerics, 4> kNumerics{
    {{Numerics::exact, "exact"}, {Numerics::f32, "f32"}, {Numerics::fast, "fast"}, {Numerics::oracle, "oracle"}}};
constexpr Names<KvType, 3> kKvTypes{{{KvType::f16, "f16"}, {KvType::q8_0, "q8_0"}, {KvType::f32, "f32"}}};
constexpr Names<Backend, 4> kBackends{
    {{Backend::automatic, "auto"}, {Backend::cpu, "cpu"}, {Backend::cuda, "cuda"}, {Backend::vulkan, "vulkan"}}};

template <class Enum, size_t n>
std::string_view name_in(const Names<Enum, n>& names, Enum wanted) noexcept {
  for (const auto& [value, text] : names) {
    if (value == wanted) return text;
  }
  return "?";
}

template <class Enum, size_t n>
Enum parse_in(const Names<Enum, n>& names, std::string_view what, std::string_view wanted) {
  std::string known;
  for (const auto& [value, text] : names) {
    if (text == wanted) return value;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", text);
  }
  throw Error(Errc::bad_request, fmt::format("{}: needs one of {}, found \"{}\"", what, known, wanted));
}

void require_range(std::string_view what, int64_t found, int64_t min, int64_t max) {
  if (found < min || found > max) {
    throw Error(Errc::bad_request, fmt::format("{}: needs a value from {} to {}, found {}", what, min, max, found));
  }
}

}  // namespace

std::string_view name(Numerics numerics) noexcept { return name_in(kNumerics, numerics); }
std::string_view name(KvType type) noexcept { return name_in(kKvTypes, type); }
std::string_view name(Backend backend) noexcept { return name_in(kBackends, backend); }
Numerics parse_numerics(std::string_view text) { return parse_in(kNumerics, "numerics", text); }
KvType parse_kv_type(std::string_view text) { return parse_in(kKvTypes, "cache type", text); }
Backend parse_backend(std::string_view text) { return parse_in(kBackends, "backend", text); }

void set_kernels(ContextOptions& options, std::string_view text) {
  KernelChoice choice = parse_kernel_choice(text);
  options.kernels = choice.set;
  options.kernel_row = std::move(choice.row);
}

std::optional<ContextOptions> with_mode(ContextOptions options, std::string_view mode) {
  if (mode == "exact" || mode == "exact/15" || mode == "exact/8") {
    options.numerics = Numerics::exact;
    options.activation_bits = mode == "exact/8" ? 8 : 15;
    return options;
  }
  for (const auto& [value, text] : kNumerics) {
    if (text != mode) continue;
    options.numerics = value;
    if (value == Numerics::oracle) options.backend = Backend::cpu;
    if (value == Numerics::fast) {
      options.backend = Backend::cuda;
      set_kernels(options, "auto");
    }
    return options;
  }
  for (const Kernels value : all_kernels()) {
    if (name(value) != mode || value == Kernels::best) continue;
    set_kernels(options, mode);
    options.backend = Backend::cpu;
    return options;
  }
  for (const auto& [value, text] : kBackends) {
    if (text != mode || value == Backend::automatic) continue;
    options.backend = value;
    if (value != Backend::cpu) set_kernels(options, "auto");
    return options;
  }
  return std::nullopt;
}

namespace engine {
namespace {

constexpr int64_t kContextDefault = 4096;
constexpr int64_t kContextMax = int64_t{1} << 20;  // where num::cos64 still has its accuracy
constexpr int64_t kOutputsBytesDefault = 16 << 20;

// Mode fast has no meaning on a CPU, and its bits are those of one device.
void check_fast(const ContextOptions& options, int64_t n_layers) {
  constexpr std::string_view kInstead = "; mode exact gives the same bits on every machine";
  if (options.backend == Backend::cpu || options.backend == Backend::vulkan || options.kernels != Kernels::best) {
    throw Error(
        Errc::bad_request,
        fmt::format("numerics fast: needs the tensor cores of a GPU (backend cuda), found backend {}, kernels {}{}",
                    name(options.backend), name(options.kernels), kInstead));
  }
  if (options.n_gpu_layers >= 0 && options.n_gpu_layers < n_layers) {
    throw Error(Errc::bad_request, fmt::format("numerics fast: needs all {} layers on the GPU, found -ngl {}{}",
                                               n_layers, options.n_gpu_layers, kInstead));
  }
  const backend::cuda::Devices devices = backend::cuda::find_devices();
  if (devices.list.empty())
    throw Error(Errc::device, fmt::format("numerics fast: needs a GPU: {}{}", devices.why_none, kInstead));
}

// The backend that runs: never automatic.
Backend choose_backend(const ContextOptions& options) {
  const bool needs_cpu =
      options.numerics == Numerics::oracle || options.kernels != Kernels::best || options.n_gpu_layers == 0;
  if (options.backend == Backend::cpu) return Backend::cpu;
  if (options.backend == Backend::automatic) {
    if (needs_cpu || backend::cuda::find_devices().list.empty()) return Backend::cpu;
  } else if (needs_cpu) {
    throw Error(
        Errc::bad_request,
        fmt::format(
            "backend {}: mode oracle, a named kernel set and -ngl 0 are the CPU's; found mode {}, kernels {}, -ngl {}",
            name(options.backend), name(options.numerics), name(options.kernels), options.n_gpu_layers));
  }
  return options.backend == Backend::vulkan ? Backend::vulkan : Backend::cuda;
}

void check_devices(const ContextOptions& options) {
  constexpr size_t kDevicesMax = 64;
  if (options.devices.size() > kDevicesMax) {
    throw Error(Errc::bad_request,
                fmt::format("devices: needs {} at most, found {}", kDevicesMax, options.devices.size()));
  }
  for (const int device : options.devices) require_range("device", device, 0, INT32_MAX);
  if (options.device_shares.empty()) return;
  const auto usable = [](float share) { return std::isfinite(share) && share >= 0; };
  if (options.device_shares.size() != options.devices.size() ||
      !std::all_of(options.device_shares.begin(), options.device_shares.end(), usable) ||
      *std::max_element(options.device_shares.begin(), options.device_shares.end()) <= 0) {
    throw Error(
        Errc::bad_request,
        fmt::format(
            "shares of the devices (--tensor-split): needs one for each of the {} devices, none negative and not "
            "all 0; found {}",
            options.devices.size(), fmt::join(options.device_shares, ",")));
  }
}

bool is_divided(const ContextOptions& options, const Model& model) noexcept {
  return options.devices.size() > 1 || (options.n_gpu_layers >= 0 && options.n_gpu_layers < model.n_layers());
}

// Of --split-mode tensor on GPUs.
void check_tensor_split(const ContextOptions& options, int64_t n_layers) {
  const auto n = static_cast<int64_t>(options.devices.size());
  if (n < 2 || n > ops::kShardsMax) {
    throw Error(Errc::bad_request,
                fmt::format("split mode tensor: needs 2 to {} devices (--device 0,1), found {}", ops::kShardsMax, n));
  }
  std::vector<int> devices = options.devices;
  std::sort(devices.begin(), devices.end());
  if (const auto twice = std::adjacent_find(devices.begin(), devices.end()); twice != devices.end()) {
    throw Error(Errc::bad_request,
                fmt::format("split mode tensor: needs different GPUs (--device 0,1), found GPU {} twice", *twice));
  }
  if (options.n_gpu_layers >= 0 && options.n_gpu_layers < n_layers) {
    throw Error(
        Errc::bad_request,
        fmt::format(
            "split mode tensor: needs all {} layers on the GPUs, found -ngl {}; split mode layer takes any number",
            n_layers, options.n_gpu_layers));
  }
  const std::vector<float>& shares = options.device_shares;
  if (std::adjacent_find(shares.begin(), shares.end(), std::not_equal_to<>()) != shares.end()) {
    throw Error(
        Errc::bad_request,
        fmt::format("split mode tensor: needs the same share for every device (--tensor-split), found {}; split "
                    "mode layer takes any",
                    fmt::join(shares, ",")));
  }
}

// Blocks of q8_0 have 32 elements of one head.
void check_cache_types(const ContextOptions& options, const Model& model) {
  const auto check = [](KvType type, int64_t n, std::string_view what, std::string_view flag) {
    if (type != KvType::q8_0 || n % 32 == 0) return;
    throw Error(
        Errc::bad_request,
        fmt::format(
            "cache type q8_0 for {} ({}): needs heads of a multiple of 32 elements, this model has {}; f16 takes any",
            what, flag, n));
  };
  for (const ops::CacheLayer& layer : model.state().built.plan.cache_layers) {
    check(options.cache_k, layer.head_dim, "keys", "-ctk");
    if (layer.stored_v_dim() > 0) check(options.cache_v, layer.stored_v_dim(), "values", "-ctv");
  }
}

}  // namespace

ops::CacheType cache_type(KvType type) {
  switch (type) {
    case KvType::f16: return ops::CacheType::f16;
    case KvType::q8_0: return ops::CacheType::q8_0;
    case KvType::f32: return ops::CacheType::f32;
  }
  throw Error(Errc::bad_request, "cache type: not one of f16, q8_0, f32");
}

Kernels runnable(Kernels kernels) {
  if (backend::cpu::can_run(kernels)) return backend::cpu::resolved(kernels);
  std::string known;
  for (const Kernels set : backend::cpu::kernel_sets())
    known += fmt::format("{}{}", known.empty() ? "" : ", ", name(set));
  throw Error(Errc::bad_request, fmt::format("kernels: this machine cannot run {}; it has {}", name(kernels), known));
}

bool has_pages(const ContextOptions& resolved, const Model& model) noexcept {
  return why_no_pages(resolved, model).empty();
}

std::string_view why_no_pages(const ContextOptions& resolved, const Model& model) noexcept {
  if (resolved.numerics == Numerics::oracle) return "the oracle's, which has none";
  if (resolved.backend == Backend::cpu) return {};
  if (resolved.backend != Backend::cuda) return "Vulkan's, which has none";
  if (resolved.split_mode == SplitMode::tensor && is_divided(resolved, model))
    return "cut into shards (--split-mode tensor), which share none";
  return {};
}

ContextOptions resolve(const ContextOptions& asked, const Model& model) {
  ContextOptions options = asked;
  if (options.numerics != Numerics::oracle) check_cache_types(options, model);
  require_range("context size (-c)", options.n_ctx, 0, kContextMax);
  require_range("chunk size (-ub)", options.n_ubatch, 1, kContextMax);
  require_range("logits rows kept at a time", options.n_outputs_max, 0, kContextMax);
  require_range("threads (-t)", options.n_threads, 0, 1024);
  require_range("sequences", options.n_sequences, 1, 1024);
  require_range("kept sequences", options.n_kept, 0, 65536);
  require_range("positions of all sequences (--max-total-tokens)", options.n_positions_max, 0, int64_t{1} << 40);
  if (options.activation_bits == 16 && options.numerics != Numerics::fast) {
    throw Error(Errc::bad_request, fmt::format("activations of 16 bits are half precision, which is of mode fast alone "
                                               "(--numerics fast); in mode {} say 15 or 8",
                                               name(options.numerics)));
  }
  if (options.activation_bits != 15 && options.activation_bits != 8 && options.activation_bits != 16) {
    throw Error(Errc::bad_request, fmt::format("activations: needs 15 or 8 bits, found {}", options.activation_bits));
  }
  if (options.n_ctx == 0) options.n_ctx = std::min(model.state().n_ctx_usable(), kContextDefault);
  if (!model.state().built.plan.causal)
    options.n_ubatch = std::max(options.n_ubatch, options.n_ctx);  // a sequence is run whole
  options.n_ubatch = std::min(options.n_ubatch, options.n_ctx * options.n_sequences);
  if (options.n_outputs_max == 0 && options.embeddings) options.n_outputs_max = options.n_ubatch;
  if (options.n_outputs_max == 0) {
    options.n_outputs_max = std::max<int64_t>(
        options.n_sequences, kOutputsBytesDefault / (model.vocab_size() * static_cast<int64_t>(sizeof(float))));
  }
  options.n_outputs_max = std::min(options.n_outputs_max, options.n_ubatch);
  require_range("layers on the GPU (-ngl)", options.n_gpu_layers, -1, INT32_MAX);
  if (options.numerics == Numerics::fast) check_fast(options, model.n_layers());
  options.backend = choose_backend(options);
  check_devices(options);
  if (options.embeddings && options.backend != Backend::cpu && is_divided(options, model)) {
    throw Error(
        Errc::bad_request,
        fmt::format(
            "embeddings on the GPU: need all {} layers on one GPU, found -ngl {} and {} GPUs; --backend cpu needs none",
            model.n_layers(), options.n_gpu_layers, std::max<size_t>(options.devices.size(), 1)));
  }
  if (const std::string_view why = why_no_pages(options, model);
      !why.empty() && (options.n_positions_max > 0 || options.n_kept > 0)) {
    throw Error(
        Errc::bad_request,
        fmt::format(
            "{} positions of all sequences (--max-total-tokens), {} kept sequences: need a cache made of pages; "
            "this one is {}",
            options.n_positions_max, options.n_kept, why));
  }
  if (options.backend == Backend::cuda && options.devices.empty()) options.devices = {0};
  if (options.backend == Backend::vulkan && options.split_mode == SplitMode::tensor) {
    throw Error(Errc::bad_request,
                "split mode tensor: is of backend cuda alone; with vulkan, split mode layer takes several devices");
  }
  if (options.backend == Backend::vulkan && options.devices.empty())
    options.devices = {backend::vulkan::default_device()};
  if (options.backend == Backend::cuda && options.split_mode == SplitMode::tensor)
    check_tensor_split(options, model.n_layers());
  if (options.n_threads == 0) options.n_threads = base::physical_cores();
  return options;
}

namespace {

ChosenExecutor make_sharded(const ops::Plan& plan, const ops::ExecutorOptions& options,
                            const std::vector<int>& devices) {
  std::shared_ptr<backend::cuda::Peers> peers;
  const auto make = [&](const ops::Plan& shard, int i, base::Barrier& barrier) {
    if (peers == nullptr) peers = backend::cuda::make_peers(devices, barrier);
    return backend::cuda::make_cuda_executor(shard, options, devices[static_cast<size_t>(i)], {peers, i});
  };
  std::string kernels;
  for (const int device : devices) kernels += fmt::format("{}cuda{}", kernels.empty() ? "" : " + ", device);
  return {with_replay(make_shard_executor(plan, options, static_cast<int>(devices.size()), make), plan, options),
          std::move(kernels)};
}

}  // namespace

ops::ExecutorOptions executor_options(const ContextOptions& options) {
  ops::ExecutorOptions executor;
  executor.n_ctx = options.n_ctx;
  executor.n_batch_max = options.n_ubatch;
  executor.n_outputs_max = options.n_outputs_max;
  executor.n_sequences = options.n_sequences + options.n_kept;
  executor.n_at_once = options.n_sequences;
  executor.n_positions_max = options.n_positions_max;
  executor.gives_back_windows = options.gives_back_windows;
  if (options.n_kept > 0 && options.n_positions_max == 0)
    executor.n_positions_max = options.n_sequences * pages::pages_of(options.n_ctx) * pages::kPagePositions;
  executor.cache_k = cache_type(options.cache_k);
  executor.cache_v = cache_type(options.cache_v);
  executor.weights_as_f32 = options.numerics == Numerics::f32;
  executor.fast = options.numerics == Numerics::fast;
  executor.planes = options.activation_bits == 8 ? 1 : 2;
  executor.halves = options.activation_bits == 16;
  executor.on_load = options.on_load;
  return executor;
}

ChosenExecutor make_executor(const Model& model, const ContextOptions& options, base::ThreadPool& pool,
                             const ops::Plan* of) {
  const ops::Plan& plan = of == nullptr ? model.state().built.plan : *of;
  const ops::ExecutorOptions executor = executor_options(options);
  const auto replaying = [&](std::unique_ptr<ops::Executor> made) {
    return with_replay(std::move(made), plan, executor);
  };
  if (options.numerics == Numerics::oracle)
    return {replaying(backend::oracle::make_oracle_executor(plan, executor, pool)), "oracle"};
  const Kernels set = runnable(options.kernels);
  const std::string_view row =
      options.kernel_row.empty() ? std::string_view() : backend::cpu::require_row(options.kernels, options.kernel_row);
  if (options.backend == Backend::cuda && options.split_mode == SplitMode::tensor)
    return make_sharded(plan, executor, options.devices);
  const Placement placement = place_layers(options, model.n_layers());
  std::string notes;  // of devices
  const auto make = [&](const ops::Plan& part, int i) {
    const int device = placement.devices[static_cast<size_t>(i)];
    if (device == kCpu)
      return backend::cpu::make_cpu_executor(part, executor, {.kernels = set, .kernel_row = row}, pool);
    if (options.backend != Backend::vulkan) return backend::cuda::make_cuda_executor(part, executor, device);
    std::string note;
    std::unique_ptr<ops::Executor> made = backend::vulkan::make_vulkan_executor(part, executor, device, pool, note);
    if (!note.empty()) notes += ", " + note;
    return made;
  };
  std::string kernels =
      describe(placement, model.n_layers(), row.empty() ? std::string(name(set)) : fmt::format("{}:{}", name(set), row),
               name(options.backend));
  std::unique_ptr<ops::Executor> made =
      placement.borders.empty() ? make(plan, 0) : make_split_executor(plan, executor, placement.borders, make);
  return {replaying(std::move(made)), kernels + notes};
}

}  // namespace engine
}  // namespace assay
