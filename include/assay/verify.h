// verify: the whole chain file -> tokenizer -> template -> dequantisation -> every op -> KV cache -> logits -> sampler
// -> detokenizer, each stage with a verdict, the first wrong operation by name, and its cause where the dictionary of
// known faults has it. docs/verify.md.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "assay/context.h"

namespace assay {

enum class Verdict { pass, warn, fail, skip };

struct VerifyStage {
  std::string id;     // "file", "metadata", "tokenizer", "template", "dequantisation", "folder", "ops", "kv_cache",
                      // "logits", "sampler", "detokenizer", "text", "against"
  std::string title;  // for people
  Verdict verdict = Verdict::skip;
  std::string summary;               // one line: what was checked and found
  std::vector<std::string> details;  // what is worth a line of its own: every failure and warning
  double seconds = 0;

  std::string to_text() const;  // "ok    File   GGUF version 3, ...", details below, indented; ends with a newline
};

// One op of the plan over all rows that were checked.
struct OpFigures {
  std::string op;      // "blk.3.attn_q"
  std::string kind;    // "linear"
  int32_t layer = -1;  // -1: outside the layers
  int64_t n_values = 0;
  int64_t n_outside = 0;  // elements out of their bound
  int64_t n_non_finite = 0;
  double worst_ratio = 0;  // the largest |error| / bound; above 1: wrong
  double local_error = 0;  // ||found - float64 from the same inputs|| / ||float64||
  double bound = 0;        // ||bound|| / ||float64||
  // The test "as declared": against float64 from the inputs as our own contract quantises them; negative: there is none
  // for this op.
  double declared_error = -1, declared_bound = -1;
  double cumulative_error = 0;  // ||found - the float64 chain|| / ||the chain||; negative: not computed
  double rms = 0, largest = 0;  // of the values found
};

// Where a value is wrong.
struct Place {
  std::string op;
  int32_t layer = -1;
  int64_t row = 0;        // of the op's output, in the batch
  int64_t position = -1;  // of that row's token
  int32_t token = -1;
  int64_t head = -1;    // -1: the op has none
  int64_t element = 0;  // within the head where there is one, else within the row
  double found = 0, expected = 0, bound = 0;
};

struct Cause {
  std::string id;           // of the dictionary's entry: "rope_pairing"
  std::string text;         // "RoPE rotates pairs (i, i + d/2) where the file's layout has (2i, 2i + 1)"
  std::string faults;       // rows of the catalogue that look so: "C21"
  bool reproduces = false;  // the fault, put into the oracle, gives the observed values to within rounding
  double residual = 0;      // ||found - mutated oracle|| / ||found - oracle||: 0 explains all, 1 nothing
};

// One token of a probe: would the error that arrives at the logits turn the choice?
struct TokenRisk {
  int64_t position = 0;
  int32_t token = 0;  // that was fed
  int32_t oracle_top = 0, found_top = 0;
  double gap = 0;            // between the oracle's two largest logits
  double error = 0;          // the largest |found - oracle| over the oracle's ten largest logits
  double kl_divergence = 0;  // of found from oracle
  bool turned() const noexcept { return oracle_top != found_top; }
};

struct SourceFigures {  // of one source in a comparison of several
  std::string name;
  std::optional<Place> first_failure;
  std::vector<OpFigures> ops;
  std::vector<Cause> causes;
  double logits_error = 0;  // relative, against the float64 chain; negative: it has no logits
  bool outlier = false;
};

struct VerifyReport {
  std::string assay_version;
  std::string model_path, model_name, architecture, weights_type;
  std::string subject;                 // what was verified: "cpu avx512, exact, 15 bits, cache f16"
  std::vector<std::string> overrides;  // what stood in the place of the file's metadata, a line each
  std::vector<VerifyStage> stages;
  std::vector<OpFigures> ops;
  std::optional<Place> first_failure;
  std::vector<Cause> causes;  // best first; of the first failure, or of a suspected file
  std::vector<TokenRisk> tokens;
  std::vector<SourceFigures> against;  // with --against: ourselves first
  // Shares of attention of the probe, where they were asked for: [n_heads, n_positions, n_positions] of the layers
  // named.
  struct AttentionMap {
    int32_t layer = 0;
    int64_t n_heads = 0, n_positions = 0;
    std::vector<float> shares;
  };
  std::vector<AttentionMap> attention;
  double median_slack = 0;  // median over ops of bound / error: how much the bounds leave
  int64_t peak_bytes = 0;
  double seconds = 0;
  bool cancelled = false;  // VerifyOptions::cancelled ended it: the stages from there on are skipped

  bool passed() const noexcept;  // all stages ran to their end, none failed
  std::string to_text() const;   // a title, the stages, outcome_text(); ends with a newline
  std::string outcome_text()
      const;  // what follows the stages: the first failure, causes, the worst ops, tokens, the verdict
  std::string to_json() const;  // one object; ends with a newline
  std::string to_html() const;  // one file, nothing loaded from elsewhere
};

struct VerifyOptions {
  ContextOptions context;                // what is verified
  bool file_only = false;                // nothing is run: file, metadata, tokenizer, dequantisation and folders
  bool quick = false;                    // short probes: seconds in place of minutes for a large model
  std::string prompt;                    // empty: probes chosen to touch every edge
  std::vector<std::string> override_kv;  // in the place of the file's metadata, as assay/override.h has it; folders are
                                         // held against the file itself
  std::function<void(const std::string& change)> on_override;  // once for each, before the first stage
  // Folders of Hugging Face that the file was made of, dumps (paths), or modes: "f32", "exact/8", "exact/15", "oracle",
  // "reference", "avx2", "chunks/N", ..
  std::vector<std::string> against;
  std::vector<int32_t> attention_layers;  // whose attention maps the report keeps
  bool suspect_file = true;               // search for faults of the file itself where the probe's text is unlikely
  std::function<void(const VerifyStage&)> on_stage;                       // after each
  std::function<void(std::string_view stage, double share)> on_progress;  // within one, 0..1
  std::function<bool()> cancelled;
};

// Error(io, bad_file, unsupported) only where the file cannot be opened as a model at all or a dump cannot be read;
// else the report says it.
VerifyReport verify_model(const std::string& path, const VerifyOptions& options = {});

}  // namespace assay
