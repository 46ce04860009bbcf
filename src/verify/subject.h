// What is verified: each part of an engine behind a function, so that every stage asks the same
// questions of our own engine, of a mode of it, and of an engine with a known fault in the place of
// the right one.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "assay/chat.h"
#include "assay/context.h"
#include "assay/model.h"
#include "assay/sampler.h"
#include "assay/session.h"
#include "assay/tokenizer.h"
#include "bounds/local_op.h"
#include "ops/plan/executor.h"
#include "quant/format.h"

namespace assay::verify {

struct Subject {
  std::string name;  // "cpu avx512, exact, 15 bits"
  std::shared_ptr<const Model> model;
  trace::Declared declared;
  bool same_bits = true;  // it promises the same bits wherever a prompt is cut; false: such runs
                          // must agree within rounding only
  // Its batches may ask for as many rows of logits as 64 MiB of doubles hold, 32 at least.
  std::function<std::unique_ptr<ops::Executor>(int64_t n_ctx, int64_t n_batch_max, int n_sequences)> make_executor;
  std::function<void(const quant::Format& format, const std::byte* row, int64_t n_elements, float* out)> decode_row;
  std::function<std::vector<TokenId>(std::string_view text, const EncodeOptions& options)> encode;
  std::function<std::string(std::span<const TokenId> ids, bool special)> decode;
  // What a terminal is given after each id, and at the end: ids.size() + 1 texts.
  std::function<std::vector<std::string>(std::span<const TokenId> ids)> decode_stream;
  std::function<std::string(const TemplateInput& input)>
      render;  // empty, as chat_prompt: the file has no template, or a broken one
  std::function<std::vector<TokenId>(const std::vector<Message>& messages)> chat_prompt;
  std::function<std::vector<TokenId>(const SamplerOptions& options, std::span<const float> logits,
                                     std::span<const TokenId> history,
                                     int64_t n_draws)>
      sample;  // draws at consecutive positions from the same logits
  std::function<bool(TokenId id)> is_end_of_generation;
};

// Our own engine with these options; what it makes must not outlive it. Of a model that was loaded
// without a tokenizer, what needs one is empty: encode, decode, decode_stream,
// is_end_of_generation. Error(bad_request) for options that cannot be served.
Subject own_subject(std::shared_ptr<const Model> model, const ContextOptions& options);

}  // namespace assay::verify
