// Answers: what came of a request as OpenAI's JSON, whole and in pieces.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>

#include "api/api.h"
#include "api/error.h"
#include "api/json_text.h"
#include "api/response_events.h"
#include "engine/bits_digest.h"
#include "engine/model_state.h"

namespace assay::api {
namespace {

std::string finish_reason(const Choice& choice) {
  if (choice.calls_are_whole && choice.finished.reason == FinishReason::stop) return "\"tool_calls\"";
  return fmt::format("\"{}\"", name(choice.finished.reason));
}

std::string call_json(const ToolCall& call) {
  return fmt::format(R"({{"id":{},"type":"function","function":{{"name":{},"arguments":{}}}}})", json_quoted(call.id),
                     json_quoted(call.name), json_quoted(call.arguments));
}

std::string message_json(const Choice& c) {
  std::string calls;
  for (const ToolCall& call : c.calls) calls += (calls.empty() ? "" : ",") + call_json(call);
  return fmt::format(R"("message":{{"role":"assistant","content":{},"refusal":null{}{}}})",
                     c.text.empty() && !c.calls.empty() ? "null" : json_quoted(c.text),
                     c.reasoning.empty() ? "" : ",\"reasoning_content\":" + json_quoted(c.reasoning),
                     calls.empty() ? "" : ",\"tool_calls\":[" + calls + "]");
}

std::string delta_json(const AnswerPiece& piece) {
  switch (piece.kind) {
    case AnswerPiece::Kind::reasoning: return fmt::format(R"({{"reasoning_content":{}}})", json_quoted(piece.text));
    case AnswerPiece::Kind::text: return fmt::format(R"({{"content":{}}})", json_quoted(piece.text));
    case AnswerPiece::Kind::call:
      return fmt::format(
          R"({{"tool_calls":[{{"index":{},"id":{},"type":"function","function":{{"name":{},"arguments":""}}}}]}})",
          piece.i_call, json_quoted(piece.id), json_quoted(piece.text));
    case AnswerPiece::Kind::arguments:
      return fmt::format(R"({{"tool_calls":[{{"index":{},"function":{{"arguments":{}}}}}]}})", piece.i_call,
                         json_quoted(piece.text));
  }
  return "{}";
}

// Nine letters and digits, which every template takes.
std::string call_id(const std::string& answer_id, size_t i_call) {
  engine::BitsDigest digest;
  const std::string text = fmt::format("{} {}", answer_id, i_call);
  digest.add(std::as_bytes(std::span(text.data(), text.size())));
  return "c" + digest.hex().substr(0, 8);
}

// Of the choices of one answer.
Timings added_up(const std::vector<Choice>& choices) {
  Timings sum;
  sum.n_choices = static_cast<int64_t>(choices.size());
  for (const Choice& choice : choices) {
    const Timings t = timings_of(choice.finished);
    sum.n_cached += t.n_cached, sum.n_prompt += t.n_prompt, sum.prompt_ms += t.prompt_ms;
    sum.n_answer += t.n_answer, sum.answer_ms += t.answer_ms;
    sum.n_drafted += t.n_drafted, sum.n_accepted += t.n_accepted;
  }
  return sum;
}

std::string number_or_null(double x) { return std::isfinite(x) ? fmt::format("{}", x) : "null"; }

}  // namespace

Timings timings_of(const RequestFinished& f) noexcept {
  return {f.n_prompt_cached, f.prefill.tokens, f.prefill.ms, f.n_answer, f.decode.ms, f.n_drafted, f.n_accepted};
}

std::string timings_member(const Timings& t) {
  const auto rounded = [](double x) { return fmt::format("{:.3f}", x); };
  const auto of_one = [&](double ms, int64_t n) {
    return n > 0 ? rounded(ms / static_cast<double>(n)) : std::string("null");
  };
  const auto a_second = [&](double ms, int64_t n) {
    return n > 0 && ms > 0 ? rounded(static_cast<double>(n) * 1000 / ms) : std::string("null");
  };
  const int64_t n_later = std::max<int64_t>(t.n_answer - t.n_choices, 0);
  const std::string drafts =
      t.n_drafted > 0 ? fmt::format(R"(,"draft_n":{},"draft_n_accepted":{})", t.n_drafted, t.n_accepted) : "";
  return fmt::format(
      R"(,"timings":{{"cache_n":{},"prompt_n":{},"prompt_ms":{},"prompt_per_token_ms":{},"prompt_per_second":{},"predicted_n":{},"predicted_ms":{},)"
      R"("predicted_per_token_ms":{},"predicted_per_second":{}{}}})",
      t.n_cached, t.n_prompt, rounded(t.prompt_ms), of_one(t.prompt_ms, t.n_prompt), a_second(t.prompt_ms, t.n_prompt),
      t.n_answer, rounded(t.answer_ms), of_one(t.answer_ms, n_later), a_second(t.answer_ms, n_later), drafts);
}

ChoiceReader::ChoiceReader(const Asked& asked, size_t i_choice) : id_(fmt::format("{} {}", asked.id, i_choice)) {
  if (asked.is_chat() && (asked.reading.format || asked.reading.marks)) reader_.emplace(asked.reading);
}

std::vector<AnswerPiece> ChoiceReader::add(std::vector<AnswerPiece> pieces) {
  for (AnswerPiece& p : pieces) {
    if (p.kind == AnswerPiece::Kind::call) p.id = call_id(id_, p.i_call);
    if (!p.text.empty()) choice_.pieces.push_back({p, std::exchange(coming_, {})});
    switch (p.kind) {
      case AnswerPiece::Kind::reasoning: choice_.reasoning += p.text; break;
      case AnswerPiece::Kind::text: choice_.text += p.text; break;
      case AnswerPiece::Kind::call: choice_.calls.push_back({p.id, p.text, ""}); break;
      case AnswerPiece::Kind::arguments: choice_.calls.at(p.i_call).arguments += p.text; break;
    }
  }
  return pieces;
}

std::vector<AnswerPiece> ChoiceReader::token(const RequestToken& token) {
  if (token.logprobs) choice_.logprobs.push_back(*token.logprobs), coming_.push_back(*token.logprobs);
  if (!reader_) return token.text.empty() ? std::vector<AnswerPiece>() : add({{AnswerPiece::Kind::text, token.text}});
  const bool was_inside = reader_->in_reasoning();
  auto pieces = add(reader_->push(token.text));
  if (was_inside || reader_->in_reasoning()) ++choice_.n_reasoning;
  return pieces;
}

std::vector<AnswerPiece> ChoiceReader::finish(const RequestFinished& finished) {
  choice_.finished = finished;
  if (!reader_)
    return finished.text.empty() ? std::vector<AnswerPiece>() : add({{AnswerPiece::Kind::text, finished.text}});
  std::vector<AnswerPiece> pieces = reader_->push(finished.text);
  for (AnswerPiece& piece : reader_->finish()) pieces.push_back(std::move(piece));
  choice_.calls_are_whole = reader_->calls_are_whole();
  return add(std::move(pieces));
}

// {"id", "object", "created", "model", "system_fingerprint", "seed", "choices": [...]} and the rest.
std::string Api::envelope(const Asked& asked, std::string_view object, std::string_view choices,
                          std::string_view rest) const {
  return fmt::format(
      R"({{"id":"{}","object":"{}","created":{},"model":{},"system_fingerprint":"{}","seed":{},"choices":[{}]{}}})",
      asked.id, object, asked.created, json_quoted(options_.names.front()), options_.fingerprint, asked.seed, choices,
      rest);
}

std::string Api::usage(const Asked& asked, const std::vector<Choice>& choices) const {
  int64_t n_prompt = 0, n_cached = 0, n_answer = 0, n_reasoning = 0, n_accepted = 0, n_drafted = 0;
  for (size_t i = 0; i < choices.size(); ++i) {
    const RequestFinished& f = choices[i].finished;
    if (static_cast<int64_t>(i) % asked.draft.n == 0)
      n_prompt += f.n_prompt, n_cached += f.n_prompt_cached;  // a prompt counts once
    n_answer += f.n_answer, n_accepted += f.n_accepted, n_drafted += f.n_drafted;
    n_reasoning += choices[i].n_reasoning;
  }
  const std::string reasoning = asked.is_chat() ? fmt::format(R"("reasoning_tokens":{},)", n_reasoning) : "";
  return fmt::format(
      R"({{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{},"prompt_tokens_details":{{"cached_tokens":{}}},)"
      R"("completion_tokens_details":{{{}"accepted_prediction_tokens":{},"rejected_prediction_tokens":{}}}}})",
      n_prompt, n_answer, n_prompt + n_answer, n_cached, reasoning, n_accepted, n_drafted - n_accepted);
}

std::string Api::legacy_logprobs(std::span<const TokenLogprobs> logprobs, size_t offset) const {
  std::string tokens, values, tops, offsets;
  const Tokenizer& tokenizer = *model_->tokenizer();
  for (const TokenLogprobs& place : logprobs) {
    const char* comma = tokens.empty() ? "" : ",";
    tokens += comma;
    tokens += json_quoted(token_label(tokenizer, place.id));
    values += comma;
    values += number_or_null(place.logprob);
    offsets += fmt::format("{}{}", comma, offset);
    offset += tokenizer.piece(place.id, false).size();
    std::string top;
    std::set<std::string> labels;  // a name stands once in an object: of tokens that look alike the likelier one stays
    for (const auto& [id, logprob] : place.top) {
      if (!labels.insert(token_label(tokenizer, id)).second) continue;
      top += fmt::format("{}{}:{}", top.empty() ? "" : ",", json_quoted(token_label(tokenizer, id)),
                         number_or_null(logprob));
    }
    tops += fmt::format("{}{{{}}}", comma, top);
  }
  return fmt::format(R"({{"tokens":[{}],"token_logprobs":[{}],"top_logprobs":[{}],"text_offset":[{}]}})", tokens,
                     values, tops, offsets);
}

std::string Api::logprobs_of(const Asked& asked, std::span<const TokenLogprobs> logprobs, size_t offset) const {
  if (!asked.draft.logprobs) return "null";
  return asked.is_chat() ? logprobs_json(model_->tokenizer().get(), logprobs) : legacy_logprobs(logprobs, offset);
}

std::string Api::response_usage(const Choice& choice) const {
  const RequestFinished& f = choice.finished;
  return fmt::format(
      R"({{"input_tokens":{},"input_tokens_details":{{"cached_tokens":{}}},"output_tokens":{},"output_tokens_details":{{"reasoning_tokens":{}}},"total_tokens":{}}})",
      f.n_prompt, f.n_prompt_cached, f.n_answer, choice.n_reasoning, f.n_prompt + f.n_answer);
}

std::string Api::answer(const Asked& asked, const std::vector<Choice>& choices) const {
  if (asked.where == kResponses) {
    ResponseEvents events(*this, asked);
    for (const Choice& choice : choices) {
      for (const Choice::Piece& piece : choice.pieces) events.add(piece.piece, piece.logprobs);
      events.finish(choice);
    }
    return events.response();
  }
  std::string list;
  for (size_t i = 0; i < choices.size(); ++i) {
    const Choice& c = choices[i];
    list += fmt::format(R"({}{{"index":{},{},"logprobs":{},"finish_reason":{}}})", i > 0 ? "," : "", i,
                        asked.is_chat() ? message_json(c) : fmt::format(R"("text":{})", json_quoted(c.text)),
                        logprobs_of(asked, c.logprobs, 0), finish_reason(c));
  }
  return envelope(asked, asked.is_chat() ? "chat.completion" : "text_completion", list,
                  fmt::format(R"(,"usage":{}{})", usage(asked, choices),
                              asked.draft.timings ? timings_member(added_up(choices)) : ""));
}

std::string Api::chunk_head(const Asked& asked, size_t i_choice) const {
  if (!asked.is_chat()) return {};
  return envelope(
      asked, "chat.completion.chunk",
      fmt::format(R"({{"index":{},"delta":{{"role":"assistant","content":""}},"logprobs":null,"finish_reason":null}})",
                  i_choice),
      "");
}

std::string Api::chunk(const Asked& asked, size_t i_choice, const AnswerPiece& piece,
                       std::span<const TokenLogprobs> logprobs, size_t offset, std::string_view rest) const {
  return envelope(asked, asked.is_chat() ? "chat.completion.chunk" : "text_completion",
                  fmt::format(R"({{"index":{},{},"logprobs":{},"finish_reason":null}})", i_choice,
                              asked.is_chat() ? "\"delta\":" + delta_json(piece)
                                              : fmt::format(R"("text":{})", json_quoted(piece.text)),
                              logprobs_of(asked, logprobs, offset)),
                  rest);
}

std::string Api::chunk_end(const Asked& asked, size_t i_choice, const Choice& choice) const {
  return envelope(asked, asked.is_chat() ? "chat.completion.chunk" : "text_completion",
                  fmt::format(R"({{"index":{},{},"logprobs":null,"finish_reason":{}}})", i_choice,
                              asked.is_chat() ? R"("delta":{})" : R"("text":"")", finish_reason(choice)),
                  asked.draft.timings ? timings_member(timings_of(choice.finished)) : "");
}

std::string Api::chunk_usage(const Asked& asked, const std::vector<Choice>& choices) const {
  return envelope(asked, asked.is_chat() ? "chat.completion.chunk" : "text_completion", "",
                  fmt::format(R"(,"usage":{})", usage(asked, choices)));
}

std::string Api::model(std::string_view name) const {
  check_model(std::string(name));
  return fmt::format(R"({{"id":{},"object":"model","created":0,"owned_by":"local","max_model_len":{}}})",
                     json_quoted(name), options_.n_ctx);
}

std::string Api::models() const {
  std::string list;
  for (const std::string& name : options_.names) list += fmt::format("{}{}", list.empty() ? "" : ",", model(name));
  return fmt::format(R"({{"object":"list","data":[{}]}})", list);
}

namespace {

// What a request that leaves it out is given: every field that may change an answer. A field more than these names does
// not compile.
std::string text_of(const SamplerOptions& options) {
  const auto& [seed, temperature, dynamic_range, dynamic_exponent, top_k, top_p, min_p, typical_p, top_n_sigma,
               xtc_probability, xtc_threshold, penalty_last_n, repeat_penalty, frequency_penalty, presence_penalty,
               dry_multiplier, dry_base, dry_allowed_length, dry_penalty_last_n, dry_sequence_breakers, logit_bias] =
      options;
  std::string text = fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}", temperature, dynamic_range,
                                 dynamic_exponent, top_k, top_p, min_p, typical_p, top_n_sigma, xtc_probability,
                                 xtc_threshold, penalty_last_n, repeat_penalty, frequency_penalty, presence_penalty,
                                 dry_multiplier, dry_base, dry_allowed_length, dry_penalty_last_n);
  for (const std::string& breaker : dry_sequence_breakers) text += " " + json_quoted(breaker);
  for (const LogitBias& bias : logit_bias) text += fmt::format(" {}:{}", bias.token, bias.bias);
  return text;  // a request's own seed is in its answer
}
std::string text_of(const ApiOptions& options) {
  const GenerateOptions& o = options.defaults;
  std::string text = fmt::format("{} {} {} {} {} {}", o.n_predict, o.ignore_eos, o.special, options.n_ctx,
                                 options.parts_reasoning, options.n_reasoning_max);
  for (const std::string& stop : o.stop) text += " " + json_quoted(stop);
  for (const TokenId id : o.stop_ids) text += fmt::format(" {}", id);
  return text + " " + json_quoted(options.chat_template) + " " + json_quoted(options.template_variables) + " " +
         text_of(o.sampling);
}

}  // namespace

std::string fingerprint(const Context& context, const ApiOptions& options) {
  constexpr int64_t kBlocks = 256, kBlockBytes = 4096;
  const Model& model = context.model();
  engine::BitsDigest digest;
  const auto add = [&](std::string_view text) { digest.add(std::as_bytes(std::span(text.data(), text.size()))); };
  // Blocks from all over the file, the header among them: all of a large one would take seconds.
  std::ifstream file(model.path(), std::ios::binary);
  file.seekg(0, std::ios::end);
  const auto size = static_cast<int64_t>(file.tellg());
  add(std::to_string(model.file_bytes()));
  std::string block(kBlockBytes, '\0');
  for (int64_t i = 0; file && i < kBlocks; ++i) {
    file.seekg(std::max<int64_t>(size - kBlockBytes, 0) * i / (kBlocks - 1));
    file.read(block.data(), kBlockBytes);
    add(std::string_view(block).substr(0, static_cast<size_t>(file.gcount())));
    file.clear();
  }
  add(model.state().overrides);
  add(text_of(options));
  const ContextOptions& o = context.options();
  return fmt::format("assay-1-{}-{}-{}-{}-{}", name(o.numerics), o.activation_bits, name(o.cache_k), name(o.cache_v),
                     digest.hex().substr(0, 16));
}

}  // namespace assay::api
