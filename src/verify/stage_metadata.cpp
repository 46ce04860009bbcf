// Hyper-parameters against the tensors' shapes and against what known models have. That shapes fit
// was checked on loading; here the inequalities that a wrong key survives are stated, and the rules
// of engine/lint.h applied.
#include <fmt/format.h>

#include "engine/lint.h"
#include "engine/model_state.h"
#include "verify/stage_support.h"

namespace assay::verify {
namespace {

// Rows of a tensor of the first layer against what the keys say, where the file has it: some have fused ones, or experts.
void check_rows(const gguf::File& file, const std::string& name, int64_t needed,
                std::string_view why, Findings& findings) {
  const gguf::Tensor* tensor = file.find(name);
  if (tensor == nullptr) return;
  if (tensor->view.shape.rows() != needed) {
    findings.fail(
        fmt::format("{} has {} rows, {} says {}", name, tensor->view.shape.rows(), why, needed));
  }
}

}  // namespace

VerifyStage check_metadata(const Subject& subject, const StageRun& run) {
  return run_stage(run, "metadata", "Metadata", [&](Findings& findings) {
    const Model::State& state = subject.model->state();
    const model::Hparams& h = state.built.hparams;
    check_rows(state.file, "blk.0.attn_q.weight", h.n_heads * h.head_dim,
               "attention.head_count times the head's elements", findings);
    check_rows(state.file, "blk.0.attn_k.weight", h.n_kv_heads * h.head_dim,
               "attention.head_count_kv times the head's elements", findings);
    check_rows(state.file, "blk.0.attn_v.weight", h.n_kv_heads * h.value_dim,
               "attention.head_count_kv times the head's elements", findings);
    check_rows(state.file, "blk.0.ffn_gate.weight", h.d_ff, "feed_forward_length", findings);
    if (subject.model->tokenizer()) {
      check_rows(state.file, "token_embd.weight", subject.model->tokenizer()->vocab_size(),
                 "the number of tokenizer.ggml.tokens", findings);
    }
    for (const LintFinding& finding :
         engine::lint_metadata({state.file, &h, subject.model->tokenizer().get(), nullptr})) {
      finding.level == LintLevel::error ? findings.fail(finding.message)
                                        : findings.warn(finding.message);
    }
    const bool is_tied = state.file.find("output.weight") == nullptr;
    findings.summary(
        fmt::format("{}: {} layers, width {}, {} heads and {} for keys of {}, FFN {}, vocabulary "
                    "{}, RoPE base {:g} over {}, eps "
                    "{:g}, context {}, head {}",
                    subject.model->architecture(), h.n_layers, h.d_model, h.n_heads, h.n_kv_heads,
                    h.head_dim, h.d_ff, subject.model->vocab_size(), h.rope_theta, h.rope_dim,
                    h.norm_eps, h.n_ctx_train, is_tied ? "tied" : "of its own"));
  });
}

}  // namespace assay::verify
