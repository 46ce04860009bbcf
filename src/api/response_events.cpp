// See response_events.h.
#include "api/response_events.h"

#include <fmt/format.h>

#include "api/error.h"
#include "api/json_text.h"

namespace assay::api {

using Kind = AnswerPiece::Kind;

std::string ResponseEvents::event(std::string_view type, std::string_view members) {
  return fmt::format("event: {0}\ndata: {{\"type\":\"{0}\",\"sequence_number\":{1},{2}}}\n\n", type, n_events_++,
                     members);
}

std::string ResponseEvents::of_response(std::string_view type) {
  return event(type, fmt::format("\"response\":{}", response()));
}

std::string ResponseEvents::begin() {
  std::string out = of_response("response.created");
  return out += of_response("response.in_progress");
}

// timings: a further member of the piece's own event, or nothing.
std::string ResponseEvents::add(const AnswerPiece& piece, std::span<const TokenLogprobs> logprobs,
                                std::string_view timings) {
  const Kind kind = piece.kind == Kind::arguments ? Kind::call : piece.kind;
  if (piece.text.empty() && kind != Kind::call) return {};
  std::string out;
  if (!is_open_ || items_.back().kind != kind || piece.kind == Kind::call) {
    out = close("completed");
    out += open(kind, piece);
  }
  Item& item = items_.back();
  if (piece.kind == Kind::call) return out;
  item.text += piece.text;
  const std::string delta =
      fmt::format("{},\"delta\":{}{}", place(item, kind != Kind::call), json_quoted(piece.text), timings);
  if (kind == Kind::text) {
    out += event("response.output_text.delta", fmt::format("{},\"logprobs\":{}", delta, logprobs_json_of(logprobs)));
    item.logprobs.insert(item.logprobs.end(), logprobs.begin(), logprobs.end());
  } else {
    out +=
        event(kind == Kind::call ? "response.function_call_arguments.delta" : "response.reasoning_text.delta", delta);
  }
  return out;
}

std::string ResponseEvents::open(Kind kind, const AnswerPiece& piece) {
  const char* prefix = kind == Kind::call ? "fc" : kind == Kind::reasoning ? "rs" : "msg";
  Item item;
  item.kind = kind;
  item.id = fmt::format("{}_{}_{}", prefix, std::string_view(asked_.id).substr(asked_.id.find('_') + 1), items_.size());
  if (kind == Kind::call) item.call_id = piece.id, item.name = piece.text;
  items_.push_back(item);
  is_open_ = true;
  std::string out = event("response.output_item.added",
                          fmt::format("\"output_index\":{},\"item\":{}", items_.size() - 1, item_json(item)));
  if (kind != Kind::call)
    out += event("response.content_part.added", fmt::format("{},\"part\":{}", place(item, true), part_json(item)));
  return out;
}

std::string ResponseEvents::close(std::string_view status) {
  if (!is_open_) return {};
  is_open_ = false;
  Item& item = items_.back();
  item.status = status;
  std::string out;
  if (item.kind == Kind::call) {
    out = event("response.function_call_arguments.done",
                fmt::format("{},\"name\":{},\"arguments\":{}", place(item, false), json_quoted(item.name),
                            json_quoted(item.text)));
  } else {
    const std::string text = fmt::format("{},\"text\":{}", place(item, true), json_quoted(item.text));
    out = item.kind == Kind::text ? event("response.output_text.done",
                                          fmt::format("{},\"logprobs\":{}", text, logprobs_json_of(item.logprobs)))
                                  : event("response.reasoning_text.done", text);
    out += event("response.content_part.done", fmt::format("{},\"part\":{}", place(item, true), part_json(item)));
  }
  return out + event("response.output_item.done",
                     fmt::format("\"output_index\":{},\"item\":{}", items_.size() - 1, item_json(item)));
}

std::string ResponseEvents::finish(const Choice& choice) {
  const bool is_cut = choice.finished.reason == FinishReason::length;
  std::string out;
  if (items_.empty()) out = open(Kind::text, {});  // an answer without a text still is one
  status_ = is_cut ? "incomplete" : "completed";
  reason_ = is_cut ? "max_output_tokens" : "";
  // A stop string may have ended it inside a call.
  const bool is_half = is_open_ && items_.back().kind == Kind::call && !choice.calls_are_whole;
  out += close(is_half ? "incomplete" : status_);
  usage_ = api_.response_usage(choice);
  if (asked_.draft.timings) timings_ = timings_member(timings_of(choice.finished));
  return out + of_response(fmt::format("response.{}", status_));
}

std::string ResponseEvents::fail(const ApiError& failure) {
  std::string out = close("incomplete");
  status_ = "failed";
  const std::string code = failure.code.empty() ? "server_error" : failure.code;
  error_ = fmt::format(R"({{"code":{},"message":{}}})", json_quoted(code), json_quoted(failure.what()));
  out +=
      event("error", fmt::format(R"("code":{},"message":{},"param":{})", json_quoted(code), json_quoted(failure.what()),
                                 failure.param.empty() ? "null" : json_quoted(failure.param)));
  return out + of_response("response.failed");
}

std::string ResponseEvents::place(const Item& item, bool has_part) const {
  return fmt::format("\"item_id\":\"{}\",\"output_index\":{}{}", item.id, items_.size() - 1,
                     has_part ? ",\"content_index\":0" : "");
}

std::string ResponseEvents::part_json(const Item& item) const {
  if (item.kind == Kind::reasoning)
    return fmt::format(R"({{"type":"reasoning_text","text":{}}})", json_quoted(item.text));
  return fmt::format(R"({{"type":"output_text","text":{},"annotations":[],"logprobs":{}}})", json_quoted(item.text),
                     logprobs_json_of(item.logprobs));
}

std::string ResponseEvents::item_json(const Item& item) const {
  const bool is_new = is_open_;  // its first part is told apart
  switch (item.kind) {
    case Kind::call:
    case Kind::arguments:
      return fmt::format(R"({{"id":"{}","type":"function_call","status":"{}","call_id":{},"name":{},"arguments":{}}})",
                         item.id, item.status, json_quoted(item.call_id), json_quoted(item.name),
                         json_quoted(item.text));
    case Kind::reasoning:
      return fmt::format(R"({{"id":"{}","type":"reasoning","status":"{}","summary":[],"content":[{}]}})", item.id,
                         item.status, is_new ? "" : part_json(item));
    case Kind::text:
      return fmt::format(R"({{"id":"{}","type":"message","status":"{}","role":"assistant","content":[{}]}})", item.id,
                         item.status, is_new ? "" : part_json(item));
  }
  return "{}";
}

std::string ResponseEvents::logprobs_json_of(std::span<const TokenLogprobs> logprobs) const {
  if (!asked_.draft.logprobs) return "[]";
  const std::string list = logprobs_json(api_.engine_model().tokenizer().get(), logprobs);  // {"content":[...]}
  return list.substr(list.find('['), list.rfind(']') + 1 - list.find('['));
}

std::string ResponseEvents::response() const {
  std::string output;
  for (size_t i = 0; i < items_.size(); ++i) output += (i > 0 ? "," : "") + item_json(items_[i]);
  return fmt::format(
      R"({{"id":"{}","object":"response","created_at":{},"status":"{}","error":{},"incomplete_details":{},"model":{},"system_fingerprint":"{}","seed":{},"output":[{}],{},"usage":{}{}}})",
      asked_.id, asked_.created, status_, error_.empty() ? "null" : error_,
      reason_.empty() ? "null" : fmt::format(R"({{"reason":"{}"}})", reason_),
      json_quoted(api_.options().names.front()), api_.options().fingerprint, asked_.seed, output, asked_.told,
      usage_.empty() ? "null" : usage_, timings_);
}

}  // namespace assay::api
