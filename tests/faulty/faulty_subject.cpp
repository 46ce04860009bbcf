// See faulty_subject.h.
#include "faulty/faulty_subject.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/model_state.h"
#include "faulty/faulty_executor.h"
#include "faulty/plain_formats.h"
#include "text/facts.h"
#include "text/from_gguf.h"

namespace assay::faults {
namespace {

using verify::Subject;

// encode of a tokenizer that read the file's facts otherwise.
void encode_with(Subject& subject, void (*change)(text::VocabularyFacts& facts)) {
  text::VocabularyFacts facts = text::read_facts(subject.model->state().file.metadata());
  change(facts);
  subject.encode = [tokenizer = text::make_tokenizer(facts)](std::string_view text, const EncodeOptions& options) {
    return tokenizer->encode(text, options);
  };
}

// encode of a text that was changed before.
void encode_changed(Subject& subject, std::string (*change)(std::string_view text)) {
  subject.encode = [right = subject.encode, change](std::string_view text, const EncodeOptions& options) {
    return right(change(text), options);
  };
}

void change_prompt(Subject& subject, void (*change)(std::vector<TokenId>& ids, const Tokenizer& tokenizer)) {
  subject.chat_prompt = [right = subject.chat_prompt, model = subject.model,
                         change](const std::vector<Message>& messages) {
    std::vector<TokenId> ids = right(messages);
    change(ids, *model->tokenizer());
    return ids;
  };
}

void sample_with(Subject& subject, void (*change)(SamplerOptions& options)) {
  subject.sample = [right = subject.sample, change](SamplerOptions options, std::span<const float> logits,
                                                    std::span<const TokenId> history, int64_t n_draws) {
    change(options);
    return right(options, logits, history, n_draws);
  };
}

// Draws from the same logits at `first`, `first` + step, ...
std::vector<TokenId> draw(const SamplerOptions& options, std::span<const float> logits,
                          std::span<const TokenId> history, int64_t first, int64_t step, int64_t n_draws) {
  Sampler sampler(options, static_cast<int64_t>(logits.size()));
  sampler.start(history);
  std::vector<TokenId> drawn;
  for (int64_t i = 0; i < n_draws; ++i) drawn.push_back(sampler.sample(logits, first + i * step));
  return drawn;
}

void use_engine(Subject& subject, const EngineOptions& options) {
  subject.name = "the engine of tests/faulty";
  subject.declared = declared_of(options);
  subject.same_bits = options.activation_bits == 0;
  subject.make_executor = [model = subject.model, options](int64_t n_ctx, int64_t, int n_sequences) {
    return make_faulty_executor(model->state().built.plan, options, n_ctx, n_sequences);
  };
  subject.decode_row = [fault = options.fault](const quant::Format& format, const std::byte* row, int64_t n_elements,
                                               float* out) {
    if (decodes(format.dtype)) return decode_plain(format.dtype, row, n_elements, out, fault);
    quant::decode_row(format, row, n_elements, out);
  };
}

}  // namespace

Subject faulty_subject(const Row& row, std::shared_ptr<const Model> model) {
  ContextOptions options;
  options.n_threads = 1;
  Subject subject = verify::own_subject(std::move(model), options);
  EngineOptions engine;
  engine.fault = row.fault;
  engine.activation_bits = row.activation_bits;
  engine.cache = row.cache;
  engine.change_plan = row.change_plan;
  if (row.change_subject != nullptr) {
    row.change_subject(subject);
  } else {
    use_engine(subject, engine);
  }
  return subject;
}

void merge_without_scores(Subject& subject) {
  encode_with(subject, [](text::VocabularyFacts& facts) { facts.scores.assign(facts.tokens.size(), 0.0f); });
}
void split_by_default(Subject& subject) {
  encode_with(subject, [](text::VocabularyFacts& facts) { facts.pre_tokenizer = "gpt-2"; });
}
void split_as_another(Subject& subject) {
  encode_with(subject, [](text::VocabularyFacts& facts) { facts.pre_tokenizer = "qwen2"; });
}
void no_space_prefix(Subject& subject) {
  encode_with(subject, [](text::VocabularyFacts& facts) { facts.add_space_prefix = false; });
}

void normalise_whitespace(Subject& subject) {
  encode_changed(subject, [](std::string_view text) {
    std::string changed(text);
    changed.erase(std::unique(changed.begin(), changed.end(), [](char a, char b) { return a == ' ' && b == ' '; }),
                  changed.end());
    return changed;
  });
}
void newline_as_space(Subject& subject) {
  encode_changed(subject, [](std::string_view text) {
    std::string changed(text);
    for (char& c : changed) c = c == '\n' || c == '\t' ? ' ' : c;
    return changed;
  });
}

void bos_twice(Subject& subject) {
  change_prompt(subject, [](std::vector<TokenId>& ids, const Tokenizer& tokenizer) {
    ids.insert(ids.begin(), tokenizer.bos().value());
  });
}
void bos_missing(Subject& subject) {
  change_prompt(subject, [](std::vector<TokenId>& ids, const Tokenizer&) { ids.erase(ids.begin()); });
}
void control_token_added(Subject& subject) {
  change_prompt(subject, [](std::vector<TokenId>& ids, const Tokenizer& tokenizer) {
    ids.insert(ids.end() - 1, tokenizer.eos().value());
  });
}

void end_of_turn_unknown(Subject& subject) {
  subject.is_end_of_generation = [tokenizer = subject.model->tokenizer()](TokenId id) {
    return id == tokenizer->eos();
  };
}

void template_without_filters(Subject& subject) {
  std::string source(subject.model->chat_template_source());
  constexpr std::string_view filter = " | trim";
  for (size_t at = source.find(filter); at != std::string::npos; at = source.find(filter))
    source.erase(at, filter.size());
  subject.render = [chat = ChatTemplate::parse(source)](const TemplateInput& input) { return chat->render(input); };
}

void characters_by_token(Subject& subject) {
  subject.decode_stream = [tokenizer = subject.model->tokenizer()](std::span<const TokenId> ids) {
    std::vector<std::string> shown;
    for (const TokenId id : ids) {
      StreamDecoder alone(tokenizer, false, !shown.empty());
      const std::string text = alone.push(id);
      shown.push_back(text + alone.finish());
    }
    shown.emplace_back();
    return shown;
  };
}

void greedy_draws(Subject& subject) {
  sample_with(subject, [](SamplerOptions& options) {
    options.temperature = options.temperature == 0 ? 1 : options.temperature;
  });
}
void seed_ignored(Subject& subject) {
  sample_with(subject, [](SamplerOptions& options) { options.seed = 0; });
}
void penalties_unused(Subject& subject) {
  sample_with(subject, [](SamplerOptions& options) {
    options.repeat_penalty = 1;
    options.frequency_penalty = options.presence_penalty = options.dry_multiplier = 0;
  });
}

void temperature_first(Subject& subject) {
  subject.sample = [right = subject.sample](SamplerOptions options, std::span<const float> logits,
                                            std::span<const TokenId> history, int64_t n_draws) {
    std::vector<float> scaled(logits.begin(), logits.end());
    if (options.temperature > 0) {
      for (float& logit : scaled) logit = static_cast<float>(logit / options.temperature);
      options.temperature = 1;
    }
    return right(options, scaled, history, n_draws);
  };
}

void penalties_of_neighbours(Subject& subject) {
  subject.sample = [before = std::make_shared<std::vector<TokenId>>()](
                       const SamplerOptions& options, std::span<const float> logits, std::span<const TokenId> history,
                       int64_t n_draws) {
    const std::vector<TokenId> seen = std::exchange(*before, std::vector<TokenId>(history.begin(), history.end()));
    return draw(options, logits, seen, static_cast<int64_t>(history.size()), 1, n_draws);
  };
}

void same_draw_each_step(Subject& subject) {
  subject.sample = [](const SamplerOptions& options, std::span<const float> logits, std::span<const TokenId> history,
                      int64_t n_draws) {
    return draw(options, logits, history, static_cast<int64_t>(history.size()), 0, n_draws);
  };
}

void tensor_bytes_swapped(ModelFile& file) {
  for (ModelFile::Tensor& tensor : file.tensors) {
    if (tensor::traits(tensor.dtype).block_elements > 1) continue;
    const auto n_bytes = tensor::traits(tensor.dtype).block_bytes;
    for (auto at = tensor.data.begin(); at != tensor.data.end(); at += n_bytes) std::reverse(at, at + n_bytes);
  }
}

void alignment_ignored(ModelFile& file) { file.set("general.alignment", uint32_t{64}); }

void last_tensor_missed(ModelFile& file) {
  std::fill(file.tensors.back().data.begin(), file.tensors.back().data.end(), std::byte{0});
}

void heads_do_not_divide(ModelFile& file) { file.set("llama.attention.head_count_kv", uint32_t{3}); }

void other_architecture(ModelFile& file) { file.set("general.architecture", std::string("t5")); }

void no_pre_tokenizer(ModelFile& file) { file.drop_key("tokenizer.ggml.pre"); }

}  // namespace assay::faults
