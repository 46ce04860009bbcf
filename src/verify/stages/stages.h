// The stages of `assay verify`, each a function of the Subject alone, so that a test can put a
// faulty part in the place of the right one and ask whether the stage sees it. None throws an Error
// for what it finds: an Error of the subject is a finding (Verdict::fail). One source each:
// stage_<id>.cpp. verify.cpp runs them in this order.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "assay/verify.h"
#include "base/thread_pool.h"
#include "verify/subject.h"

namespace assay::verify {

// What a stage is told by who runs it.
struct StageRun {
  base::ThreadPool& pool;
  bool quick = false;
  std::string prompt = {};                     // empty: probes chosen to touch every edge
  std::vector<int32_t> attention_layers = {};  // whose attention maps check_ops keeps
  bool suspect_file = true;
  std::function<void(double share)> progress = {};  // 0..1; may be empty
  std::function<bool()> cancelled =
      {};  // polled; once true, always; a stage that was cancelled is Verdict::skip and says so
};

VerifyStage check_file(const Subject& subject,
                       const StageRun& run);  // structure and values of the tensors
VerifyStage check_metadata(const Subject& subject,
                           const StageRun& run);                           // hyper-parameters against shapes and custom
VerifyStage check_tokenizer(const Subject& subject, const StageRun& run);  // encode, decode
VerifyStage check_template(const Subject& subject, const StageRun& run);   // render, encode
VerifyStage check_dequantisation(const Subject& subject, const StageRun& run);  // decode_row

// model_path: the file; folder: of Hugging Face, that it was made of.
VerifyStage check_folder(const std::string& model_path, const std::string& folder, const StageRun& run);

struct OpsFindings {
  VerifyStage stage;
  std::vector<OpFigures> ops;
  std::optional<Place> first_failure;
  std::vector<Cause> causes;
  std::vector<TokenRisk> tokens;
  std::vector<VerifyReport::AttentionMap> attention;
  double median_slack = 0;
};
OpsFindings check_ops(const Subject& subject,
                      const StageRun& run);  // make_executor, against float64

VerifyStage check_kv_cache(const Subject& subject,
                           const StageRun& run);  // make_executor: prefill = decode = chunks = batch
VerifyStage check_logits(const Subject& subject,
                         const StageRun& run);  // make_executor: finite, repeatable, whole vocabulary
VerifyStage check_sampler(const Subject& subject, const StageRun& run);  // sample
VerifyStage check_detokenizer(const Subject& subject,
                              const StageRun& run);  // decode, decode_stream

struct TextFindings {
  VerifyStage stage;
  std::vector<Cause> causes;  // faults of the file itself that would explain an unlikely text
};
TextFindings check_text(const Subject& subject, const StageRun& run);  // make_executor, encode

// The ids that the stages with an executor run: the prompt, or texts that touch every kind of
// character; ids spread over the vocabulary where the model was loaded without a tokenizer. At
// least n_min ids, at most n_max.
std::vector<TokenId> probe_ids(const Subject& subject, const StageRun& run, int64_t n_min, int64_t n_max);

// Tokens of the prompt that the run was given; 0: none, or there is no tokenizer. More than the
// model's context: Error(bad_request).
int64_t prompt_size(const Subject& subject, const StageRun& run);

// Tokens of a probe: `usual`, or as many as go beyond the edge of the model's longest window where
// that is at most kProbedWindowMax; `quick` for a quick look; the whole prompt where there is one.
// Never more than the model's context.
inline constexpr int64_t kProbedWindowMax = 1024;
int64_t probe_size(const Subject& subject, const StageRun& run, int64_t quick, int64_t usual);

}  // namespace assay::verify
