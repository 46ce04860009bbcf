// Sampling, answers and conversations of the C interface.
#include "assay/reasoning.h"
#include "handles.h"

using assay::c::array;
using assay::c::guarded;
using assay::c::required;

namespace assay::c {
namespace {

assay_sampling to_c(const SamplerOptions& o) {
  return {sizeof(assay_sampling),
          o.seed,
          o.temperature,
          o.dynamic_range,
          o.dynamic_exponent,
          o.top_k,
          o.top_p,
          o.min_p,
          o.typical_p,
          o.top_n_sigma,
          o.xtc_probability,
          o.xtc_threshold,
          o.penalty_last_n,
          o.repeat_penalty,
          o.frequency_penalty,
          o.presence_penalty,
          o.dry_multiplier,
          o.dry_base,
          o.dry_allowed_length,
          o.dry_penalty_last_n,
          nullptr,
          0,
          nullptr,
          0};
}

SamplerOptions from_c(const assay_sampling* given) {
  const assay_sampling s = read_sized(given, to_c({}), "assay_sampling");
  SamplerOptions o;
  o.seed = s.seed;
  o.temperature = s.temperature;
  o.dynamic_range = s.dynamic_range;
  o.dynamic_exponent = s.dynamic_exponent;
  o.top_k = s.top_k;
  o.top_p = s.top_p;
  o.min_p = s.min_p;
  o.typical_p = s.typical_p;
  o.top_n_sigma = s.top_n_sigma;
  o.xtc_probability = s.xtc_probability;
  o.xtc_threshold = s.xtc_threshold;
  o.penalty_last_n = s.penalty_last_n;
  o.repeat_penalty = s.repeat_penalty;
  o.frequency_penalty = s.frequency_penalty;
  o.presence_penalty = s.presence_penalty;
  o.dry_multiplier = s.dry_multiplier;
  o.dry_base = s.dry_base;
  o.dry_allowed_length = s.dry_allowed_length;
  o.dry_penalty_last_n = s.dry_penalty_last_n;
  if (s.dry_sequence_breakers != nullptr) {
    o.dry_sequence_breakers.clear();
    for (const char* text : array(s.dry_sequence_breakers, s.n_dry_sequence_breakers, "dry_sequence_breakers"))
      o.dry_sequence_breakers.emplace_back(&required(text, "an item of dry_sequence_breakers"));
  }
  for (const assay_logit_bias& bias : array(s.logit_bias, s.n_logit_bias, "logit_bias"))
    o.logit_bias.push_back({bias.token, bias.bias});
  return o;
}

constexpr assay_generate_options kGenerateDefaults = {
    sizeof(assay_generate_options), -1, nullptr, 0, 0, 0, 0, 0, 0, nullptr, nullptr, nullptr, nullptr};
constexpr assay_chat_options kChatDefaults = {sizeof(assay_chat_options), nullptr, nullptr, nullptr, 0, 0};

}  // namespace

assay_generate_options generate_settings(const assay_generate_options* given) {
  return read_sized(given, kGenerateDefaults, "assay_generate_options");
}

GenerateOptions generate_options(const Model& model, const assay_generate_options& given) {
  GenerateOptions o;
  o.n_predict = given.n_predict;
  for (const char* text : array(given.stop, given.n_stop, "stop"))
    o.stop.emplace_back(&required(text, "an item of stop"));
  o.ignore_eos = given.ignore_eos != 0;
  o.special = given.special != 0;
  o.request = given.request;
  o.sampling = given.sampling == nullptr ? default_sampling(model) : from_c(given.sampling);
  return o;
}

AnswerHooks::AnswerHooks(const assay_generate_options& options, std::function<bool()> also_cancelled) {
  if (options.on_text != nullptr) {
    sink_ = [this, call = options.on_text, user = options.user](std::string_view text) {
      if (!stopped_) stopped_ = call(user, text.data(), text.size()) != 0;
    };
  }
  cancelled_ = [this, call = options.cancelled, user = options.user, also = std::move(also_cancelled)] {
    return stopped_ || (call != nullptr && call(user) != 0) || (also && also());
  };
}

namespace {

// The marks stay tokens that appear in the text, so that the session can part it.
void set_options(ChatSession& session, const assay_generate_options& settings) {
  GenerateOptions options = generate_options(session.context().model(), settings);
  options.visible = session.options().visible;
  session.options() = std::move(options);
}

template <typename Turn>
assay_status answered(assay_chat* chat, const assay_generate_options* options, assay_generation** generation,
                      assay_error** error, Turn&& turn) {
  return guarded(error, [&] {
    const assay_generate_options settings = generate_settings(options);
    auto& to = required(generation, "generation");
    set_options(required(chat, "chat").session, settings);
    const AnswerHooks hooks(settings);
    to = new assay_generation{turn(chat->session, hooks)};
  });
}

}  // namespace
}  // namespace assay::c

void assay_sampling_init(assay_sampling* sampling, size_t size) {
  assay::c::write_sized(sampling, size, assay::c::to_c({}));
}

assay_status assay_model_sampling(const assay_model* model, assay_sampling* sampling, size_t size,
                                  assay_error** error) {
  return guarded(error, [&] {
    const assay::SamplerOptions options = assay::default_sampling(*required(model, "model").model);
    assay::c::write_sized(&required(sampling, "sampling"), size, assay::c::to_c(options));
  });
}

void assay_generate_options_init(assay_generate_options* options, size_t size) {
  assay::c::write_sized(options, size, assay::c::kGenerateDefaults);
}

const char* assay_generation_text(const assay_generation* generation, size_t* n_bytes) {
  if (n_bytes != nullptr) *n_bytes = generation->result.text.size();
  return generation->result.text.c_str();
}

const char* assay_generation_reasoning(const assay_generation* generation, size_t* n_bytes) {
  if (n_bytes != nullptr) *n_bytes = generation->result.reasoning.size();
  return generation->result.reasoning.c_str();
}

const int32_t* assay_generation_ids(const assay_generation* generation, size_t* n_ids) {
  if (n_ids != nullptr) *n_ids = generation->result.ids.size();
  return generation->result.ids.data();
}

assay_finish assay_generation_finish(const assay_generation* generation) {
  switch (generation->result.finish_reason) {
    case assay::FinishReason::stop: return ASSAY_FINISH_STOP;
    case assay::FinishReason::length: return ASSAY_FINISH_LENGTH;
    case assay::FinishReason::cancelled:
    case assay::FinishReason::late: break;
  }
  return ASSAY_FINISH_CANCELLED;
}

int64_t assay_generation_n_prompt(const assay_generation* generation) { return generation->result.n_prompt; }
int64_t assay_generation_n_prompt_cached(const assay_generation* generation) {
  return generation->result.n_prompt_cached;
}
double assay_generation_prefill_ms(const assay_generation* generation) { return generation->result.prefill.ms; }
double assay_generation_decode_ms(const assay_generation* generation) { return generation->result.decode.ms; }
void assay_generation_free(assay_generation* generation) { delete generation; }

assay_status assay_generate(assay_context* context, const int32_t* prompt, size_t n_prompt,
                            const assay_generate_options* options, assay_generation** generation, assay_error** error) {
  return guarded(error, [&] {
    const assay_generate_options settings = assay::c::generate_settings(options);
    auto& to = required(generation, "generation");
    assay::Context& c = required(context, "context").context;
    const assay::c::AnswerHooks hooks(settings, context->request.cancelled);
    assay::Generator& generator =
        context->generators.try_emplace(settings.sequence, c, settings.sequence).first->second;
    generator.set_progress(context->request.progress);
    to = new assay_generation{generator.run(array(prompt, n_prompt, "prompt"),
                                            assay::c::generate_options(c.model(), settings), hooks.sink(),
                                            hooks.cancelled())};
  });
}

void assay_chat_options_init(assay_chat_options* options, size_t size) {
  assay::c::write_sized(options, size, assay::c::kChatDefaults);
}

assay_status assay_chat_new(const assay_model* model, const assay_context_options* context_options,
                            const assay_chat_options* options, assay_chat** chat, assay_error** error) {
  return guarded(error, [&] {
    const assay_chat_options o = assay::c::read_sized(options, assay::c::kChatDefaults, "assay_chat_options");
    auto& to = required(chat, "chat");
    const auto& loaded = required(model, "model").model;
    const std::string text = assay::c::text_or_empty(o.chat_template);
    const auto chat_template = assay::require_chat_template(*loaded, text);
    assay::SchedulerOptions scheduling;
    scheduling.context = assay::c::context_options(context_options);
    auto made = std::make_unique<assay_chat>(assay_chat{assay::ChatSession(
        std::make_unique<assay::Scheduler>(loaded, scheduling), chat_template, {}, assay::c::text_or_empty(o.system))});
    if (o.variables_json != nullptr) made->session.set_template_variables(o.variables_json);
    if (o.drops_oldest != 0) made->session.set_when_full(assay::WhenFull::drop_oldest);
    if (o.parts_reasoning != 0) {
      const auto marks =
          assay::find_reasoning_marks(*loaded, text.empty() ? loaded->chat_template_source() : std::string_view(text));
      if (marks) assay::show_marks(*loaded->tokenizer(), *marks, made->session.options());
      made->session.set_reasoning({.marks = marks});
    }
    to = made.release();
  });
}

void assay_chat_free(assay_chat* chat) { delete chat; }

assay_status assay_chat_send(assay_chat* chat, const char* text, const assay_generate_options* options,
                             assay_generation** generation, assay_error** error) {
  return assay::c::answered(chat, options, generation, error,
                            [&](assay::ChatSession& session, const assay::c::AnswerHooks& hooks) {
                              return session.say(&required(text, "text"), hooks.sink(), hooks.cancelled());
                            });
}

assay_status assay_chat_regenerate(assay_chat* chat, const assay_generate_options* options,
                                   assay_generation** generation, assay_error** error) {
  return assay::c::answered(chat, options, generation, error,
                            [&](assay::ChatSession& session, const assay::c::AnswerHooks& hooks) {
                              return session.regenerate(hooks.sink(), hooks.cancelled());
                            });
}

assay_status assay_chat_set_system(assay_chat* chat, const char* text, assay_error** error) {
  return guarded(error, [&] { required(chat, "chat").session.set_system(assay::c::text_or_empty(text)); });
}

int assay_chat_undo(assay_chat* chat) { return chat->session.undo() ? 1 : 0; }
void assay_chat_clear(assay_chat* chat) { chat->session.clear(); }

assay_status assay_chat_save(const assay_chat* chat, char** json, assay_error** error) {
  return guarded(error, [&] { required(json, "json") = assay::c::copied(required(chat, "chat").session.save()); });
}

assay_status assay_chat_load(assay_chat* chat, const char* json, assay_error** error) {
  return guarded(error, [&] { required(chat, "chat").session.load(&required(json, "json")); });
}
