// Hyper-parameters against the tensors' shapes and against what known models have. That shapes fit
// was checked on loading; here the inequalities that a wrong key survives are stated, and the rules
// of measure/lint.h applied.
#include <fmt/format.h>

#include <algorithm>

#include "engine/model_state.h"
#include "measure/lint.h"
#include "model/hparams.h"
#include "ops/attention/attention.h"
#include "verify/stages/stage_support.h"

namespace assay::verify {
namespace {

// Rows of a tensor of the first layer against what the keys say, where the file has it: some have fused ones, or
// experts.
void check_rows(const gguf::File& file, const std::string& name, int64_t needed, std::string_view why,
                Findings& findings) {
  const gguf::Tensor* tensor = file.find(name);
  if (tensor == nullptr) return;
  if (tensor->view.shape.rows() != needed) {
    findings.fail(fmt::format("{} has {} rows, {} says {}", name, tensor->view.shape.rows(), why, needed));
  }
}

// Keys may have a value for each layer, and layers heads of their own width.
void check_first_layer(const Model::State& state, Findings& findings) {
  const ops::Plan& plan = state.built.plan;
  for (const ops::Op& op : plan.ops) {
    const auto* attention = op.as<ops::Attention>();
    if (attention == nullptr || op.layer != 0) continue;
    const ops::CacheLayer& cache = plan.cache_layers[static_cast<size_t>(attention->layer)];
    if (cache.values_in_keys) continue;  // latent attention: queries of other widths
    const bool is_gated =
        std::ranges::any_of(plan.ops, [](const ops::Op& other) { return other.name == "blk.0.attn_q_gate"; });
    if (!is_gated)
      check_rows(state.file, "blk.0.attn_q.weight", attention->n_heads * cache.head_dim,
                 "attention.head_count times the head's elements", findings);
    check_rows(state.file, "blk.0.attn_k.weight", cache.n_kv_heads * cache.head_dim,
               "attention.head_count_kv times the head's elements", findings);
    check_rows(state.file, "blk.0.attn_v.weight", cache.n_kv_heads * cache.v_dim(),
               "attention.head_count_kv times the head's elements", findings);
  }
  const model::KeyReader keys(state.file.metadata(),
                              std::string(state.file.metadata().require_string("general.architecture")));
  const auto d_ff = keys.find_counts("feed_forward_length", state.built.hparams.n_layers, 0, model::kWidthMax);
  if (d_ff && d_ff->front() > 0)
    check_rows(state.file, "blk.0.ffn_gate.weight", d_ff->front(), "feed_forward_length", findings);
}

}  // namespace

VerifyStage check_metadata(const Subject& subject, const StageRun& run) {
  return run_stage(run, "metadata", "Metadata", [&](Findings& findings) {
    const Model::State& state = subject.model->state();
    const model::Hparams& h = state.built.hparams;
    check_first_layer(state, findings);
    if (subject.model->tokenizer()) {
      check_rows(state.file, "token_embd.weight", subject.model->tokenizer()->vocab_size(),
                 "the number of tokenizer.ggml.tokens", findings);
    }
    for (const LintFinding& finding :
         measure::lint_metadata({state.file, &h, subject.model->tokenizer().get(), nullptr})) {
      finding.level == LintLevel::error ? findings.fail(finding.message) : findings.warn(finding.message);
    }
    const bool is_tied = state.file.find("output.weight") == nullptr;
    findings.summary(
        fmt::format("{}: {} layers, width {}, {} heads and {} for keys of {}, FFN {}, vocabulary "
                    "{}, RoPE base {:g} over {}, eps "
                    "{:g}, context {}, head {}",
                    subject.model->architecture(), h.n_layers, h.d_model, h.n_heads, h.n_kv_heads, h.head_dim, h.d_ff,
                    subject.model->vocab_size(), h.rope_theta, h.rope_dim, h.norm_eps, h.n_ctx_train,
                    is_tied ? "tied" : "of its own"));
  });
}

}  // namespace assay::verify
