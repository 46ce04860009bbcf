// See subject.h.
#include "verify/subject.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "assay/error.h"
#include "base/thread_pool.h"
#include "engine/context_options.h"
#include "engine/model_state.h"
#include "trace/own_source.h"

namespace assay::verify {
namespace {

constexpr int64_t kLogitsBytes = 64 << 20;  // as doubles: rows of logits that stages ask for at a time; or 32 rows

std::vector<std::string> stream(const std::shared_ptr<const Tokenizer>& tokenizer, std::span<const TokenId> ids) {
  StreamDecoder decoder(tokenizer, false, false);
  std::vector<std::string> shown;
  shown.reserve(ids.size() + 1);
  for (const TokenId id : ids) shown.push_back(decoder.push(id));
  shown.push_back(decoder.finish());
  return shown;
}

std::vector<TokenId> draw(const Model& model, const SamplerOptions& options, std::span<const float> logits,
                          std::span<const TokenId> history, int64_t n_draws) {
  Sampler::TokenText text;
  if (model.tokenizer()) text = [tokenizer = model.tokenizer()](TokenId id) { return tokenizer->piece(id); };
  Sampler sampler(options, static_cast<int64_t>(logits.size()), std::move(text));
  sampler.start(history);
  std::vector<TokenId> drawn;
  drawn.reserve(static_cast<size_t>(n_draws));
  const auto first = static_cast<int64_t>(history.size());
  for (int64_t i = 0; i < n_draws; ++i) drawn.push_back(sampler.sample(logits, first + i));
  return drawn;
}

void add_text_parts(Subject& subject) {
  const std::shared_ptr<const Tokenizer> tokenizer = subject.model->tokenizer();
  if (!tokenizer) return;
  subject.encode = [tokenizer](std::string_view text, const EncodeOptions& options) {
    return tokenizer->encode(text, options);
  };
  subject.decode = [tokenizer](std::span<const TokenId> ids, bool special) { return tokenizer->decode(ids, special); };
  subject.decode_stream = [tokenizer](std::span<const TokenId> ids) { return stream(tokenizer, ids); };
  subject.is_end_of_generation = [tokenizer](TokenId id) { return tokenizer->is_end_of_generation(id); };
  std::shared_ptr<const ChatTemplate> chat;
  try {
    chat = subject.model->chat_template();
  } catch (const Error&) {
    return;  // stages/template.cpp asks the model again and tells why
  }
  if (!chat) return;
  subject.render = [chat](const TemplateInput& input) { return chat->render(input); };
  subject.chat_prompt = [chat, model = subject.model](const std::vector<Message>& messages) {
    return chat_prompt(*model, *chat, messages);
  };
}

}  // namespace

Subject own_subject(std::shared_ptr<const Model> model, const ContextOptions& asked) {
  const ContextOptions options = engine::resolve(asked, *model);
  auto pool = std::make_shared<base::ThreadPool>(options.n_threads, options.pin_threads);
  Subject subject;
  subject.model = std::move(model);
  subject.declared = trace::own_declared(options);
  subject.make_executor = [options, pool, loaded = subject.model](int64_t n_ctx, int64_t n_batch_max, int n_sequences) {
    ContextOptions sized = options;
    sized.n_ctx = n_ctx;
    sized.n_ubatch = n_batch_max;
    sized.n_outputs_max =
        std::min(n_batch_max,
                 std::max<int64_t>(32, kLogitsBytes / (loaded->vocab_size() * static_cast<int64_t>(sizeof(double)))));
    sized.n_sequences = n_sequences;
    return engine::make_executor(*loaded, sized, *pool).executor;
  };
  ContextOptions smallest = options;
  smallest.n_ctx = smallest.n_ubatch = smallest.n_outputs_max = smallest.n_sequences = 1;
  subject.name = trace::own_name(options, engine::make_executor(*subject.model, smallest, *pool).kernels);
  subject.decode_row = [](const quant::Format& format, const std::byte* row, int64_t n_elements, float* out) {
    quant::decode_row(format, row, n_elements, out);
  };
  subject.sample = [loaded = subject.model](const SamplerOptions& sampling, std::span<const float> logits,
                                            std::span<const TokenId> history, int64_t n_draws) {
    return draw(*loaded, sampling, logits, history, n_draws);
  };
  add_text_parts(subject);
  return subject;
}

}  // namespace assay::verify
