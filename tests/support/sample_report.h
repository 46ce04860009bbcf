// A VerifyReport with everything in it, made up but plausible: what the HTML page is looked at and tested with.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "assay/verify.h"

namespace assay::test {

struct SampleReport {
  int n_layers = 30;
  bool failing = true;  // the rope of layer 12 is wrong
};

inline double jitter(int i) { return 0.5 + 0.5 * std::abs(std::sin(12.9898 * i + 0.7)); }

inline void add_sample_ops(VerifyReport& report, const SampleReport& sample) {
  struct Kind {
    const char *name, *kind;
    double local, bound;
  };
  constexpr Kind kKinds[] = {{"attn_norm", "rms_norm", 4e-8, 4e-7},
                             {"attn_q", "linear", 2e-5, 3e-4},
                             {"attn_k", "linear", 2e-5, 3e-4},
                             {"attn_v", "linear", 2e-5, 3e-4},
                             {"attn_q_rope", "rope", 3e-8, 2e-7},
                             {"attn_k_rope", "rope", 3e-8, 2e-7},
                             {"attention", "attention", 1e-4, 2e-3},
                             {"attn_output", "linear", 2e-5, 3e-4},
                             {"attn_residual", "add", 0, 6e-8},
                             {"ffn_norm", "rms_norm", 4e-8, 4e-7},
                             {"ffn_gate", "linear", 2e-5, 3e-4},
                             {"ffn_up", "linear", 2e-5, 3e-4},
                             {"ffn_act", "gate", 5e-8, 9e-7},
                             {"ffn_down", "linear", 3e-5, 5e-4},
                             {"residual", "add", 0, 6e-8}};
  double travelled = 1e-7;
  int i = 0;
  const auto add = [&](const std::string& name, const Kind& kind, int layer) {
    OpFigures op{.op = name, .kind = kind.kind, .layer = layer, .n_values = 576 * 24};
    op.local_error = kind.local * jitter(++i);
    op.bound = kind.bound;
    op.worst_ratio = kind.local == 0 ? 0 : 0.6 * jitter(i + 3) * kind.local / kind.bound * 10;
    if (sample.failing && name == "blk.12.attn_q_rope") {
      op.local_error = 0.8;
      op.worst_ratio = 4.2e5;
      op.n_outside = 13000;
      travelled = 0.3;
    }
    travelled = std::min(0.9, travelled + kind.local * 0.4);
    op.cumulative_error = travelled * (0.8 + 0.2 * jitter(i));
    op.rms = jitter(i);
    op.largest = 7 * jitter(i);
    report.ops.push_back(op);
  };
  add("token_embd", {"token_embd", "embed", 0, 1e-8}, -1);
  for (int layer = 0; layer < sample.n_layers; ++layer) {
    for (const Kind& kind : kKinds) add("blk." + std::to_string(layer) + "." + kind.name, kind, layer);
  }
  add("output_norm", {"output_norm", "rms_norm", 4e-8, 4e-7}, -1);
  add("output", {"output", "linear", 2e-5, 3e-4}, -1);
}

inline void add_sample_stages(VerifyReport& report, const SampleReport& sample) {
  const auto stage = [&](const char* id, const char* title, Verdict verdict, const char* summary, double seconds,
                         std::vector<std::string> details = {}) {
    report.stages.push_back({id, title, verdict, summary, std::move(details), seconds});
  };
  const Verdict ops = sample.failing ? Verdict::fail : Verdict::pass;
  stage("file", "File", Verdict::pass, "GGUF version 3, 272 tensors, every byte accounted for", 0.01);
  stage("metadata", "Metadata", Verdict::warn, "shapes agree with the hyper-parameters; 1 remark", 0.002,
        {"llama.rope.freq_base is 100000: unusual for llama, usual for SmolLM2"});
  stage("tokenizer", "Tokenizer", Verdict::pass, "49152 tokens, 214 probes go round", 0.3);
  stage("template", "Chat template", Verdict::pass, "renders 6 conversations; ends the answer with <|im_end|>", 0.02);
  stage("dequantisation", "Dequantisation", Verdict::pass, "211 tensors follow their format's definition", 1.4);
  stage("ops", "Operations", ops,
        sample.failing ? "1 of 453 operations is out of its bound" : "453 operations within their bounds", 9.8,
        sample.failing
            ? std::vector<std::string>{"blk.12.attn_q_rope: 13000 of 13824 values outside, worst 4.2e+05 times"}
            : std::vector<std::string>{});
  stage("kv_cache", "KV cache", Verdict::pass, "prefill = decode = chunks of 7, bit for bit", 2.1);
  stage("logits", "Logits", ops,
        sample.failing ? "3 of 24 positions choose another token" : "24 positions choose as float64 does", 0.4);
  stage("sampler", "Sampler", Verdict::pass, "13 steps on fixed logits", 0.05);
  stage("detokenizer", "Detokenizer", Verdict::pass, "streams whole characters", 0.02);
  stage("against", "Against others", Verdict::skip, "nothing to compare with was named", 0);
}

inline void add_sample_attention(VerifyReport& report) {
  VerifyReport::AttentionMap map{.layer = 12, .n_heads = 9, .n_positions = 24, .shares = {}};
  for (int64_t head = 0; head < map.n_heads; ++head) {
    for (int64_t q = 0; q < map.n_positions; ++q) {
      std::vector<double> row;
      double sum = 0;
      for (int64_t k = 0; k < map.n_positions; ++k) {
        row.push_back(k > q ? 0 : std::exp(-0.3 * static_cast<double>((q - k) % (head + 1)) - (k == 0 ? -1.5 : 0.0)));
        sum += row.back();
      }
      for (const double x : row) map.shares.push_back(static_cast<float>(x / sum));
    }
  }
  report.attention.push_back(std::move(map));
}

inline VerifyReport sample_report(const SampleReport& sample = {}) {
  VerifyReport report;
  report.assay_version = "0.1.0";
  report.model_path = "/models/smollm2-135m-instruct-Q4_1.gguf";
  report.model_name = "SmolLM2 135M Instruct";
  report.architecture = "llama";
  report.weights_type = "Q4_1";
  report.subject = "cpu avx512, exact, 15 bits, cache f16";
  report.median_slack = 14.2;
  report.peak_bytes = 412 << 20;
  report.seconds = 14.2;
  add_sample_stages(report, sample);
  add_sample_ops(report, sample);
  for (int i = 0; i < 24; ++i) {
    TokenRisk risk{.position = i,
                   .token = 100 + 7 * i,
                   .oracle_top = 260 + i,
                   .found_top = 260 + i,
                   .gap = 2.5 * jitter(5 * i) * jitter(i)};
    risk.error = (sample.failing ? 0.4 : 0.004) * jitter(i + 1);
    risk.kl_divergence = risk.error * risk.error / 9;
    if (sample.failing && i % 9 == 4) risk.found_top = 11 * i, risk.gap = risk.error * 0.7;
    report.tokens.push_back(risk);
  }
  if (sample.failing) {
    report.first_failure = Place{.op = "blk.12.attn_q_rope",
                                 .layer = 12,
                                 .row = 3,
                                 .position = 3,
                                 .token = 1043,
                                 .head = 5,
                                 .element = 14,
                                 .found = -1.28125,
                                 .expected = 0.4375001,
                                 .bound = 4.1e-6};
    report.causes.push_back({"rope_pairing", "RoPE rotates pairs (i, i + d/2) where the file's layout has (2i, 2i + 1)",
                             "C21", true, 3e-7});
    report.causes.push_back({"rope_position_plus_1", "RoPE rotates by position + 1", "C24", false, 0.93});
  }
  for (const char* name :
       {"this engine: cpu avx512, exact, 15 bits", "llama.cpp 0.5.0", "transformers 4.57 (float32)"}) {
    SourceFigures source{.name = name, .first_failure = report.first_failure, .ops = report.ops, .causes = {}};
    const bool ours = report.against.empty();
    if (!ours) source.first_failure.reset();
    for (OpFigures& op : source.ops) {
      if (ours) continue;
      op.cumulative_error = std::min(op.cumulative_error, 1e-3) * (report.against.size() == 1 ? 3 : 0.02);
      op.worst_ratio = std::min(op.worst_ratio, 0.8);
      op.n_outside = 0;
    }
    source.logits_error = source.ops.back().cumulative_error;
    source.outlier = ours && sample.failing;
    report.against.push_back(std::move(source));
  }
  add_sample_attention(report);
  return report;
}

}  // namespace assay::test
