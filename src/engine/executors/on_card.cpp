// See on_card.h.
#include "engine/executors/on_card.h"

#include "assay/error.h"
#include "backend/cuda/cuda.h"
#include "engine/context_options.h"
#include "engine/model_state.h"

namespace assay::engine {
namespace {

// Mode fast and its activations ask for a GPU that is here, so the rest is resolved as for a processor.
ContextOptions resolved(const Model& model, const ContextOptions& asked) {
  if (asked.numerics == Numerics::oracle) throw Error(Errc::bad_request, "a plan for a card: mode oracle is the CPU's");
  ContextOptions options = asked;
  options.backend = Backend::cpu;
  options.devices.clear();
  options.device_shares.clear();
  options.split_mode = SplitMode::layer;
  options.n_gpu_layers = -1;
  set_kernels(options, "auto");
  if (asked.numerics == Numerics::fast) {
    options.numerics = Numerics::exact;
    if (asked.activation_bits == 16) options.activation_bits = 15;
  }
  options = resolve(options, model);
  options.backend = Backend::cuda;
  options.numerics = asked.numerics;
  options.activation_bits = asked.activation_bits;
  return options;
}

}  // namespace

OnCard on_card(const Model& model, const ContextOptions& asked, std::string_view card) {
  OnCard made{resolved(model, asked), {}};
  made.kernels = backend::cuda::kernels_on_card(model.state().built.plan, executor_options(made.options), card);
  return made;
}

}  // namespace assay::engine
