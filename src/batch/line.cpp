// See line.h.
#include "batch/line.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>
#include <cmath>

#include "assay/error.h"
#include "assay/logprobs.h"
#include "assay/utf8.h"
#include "json/reader.h"
#include "json/shown.h"

namespace assay::batch {
namespace {

namespace json = boost::json;

using json_text::shown;

[[noreturn]] void refuse(std::string_view field, std::string_view needed, const json::value& found) {
  throw Error(Errc::bad_request, fmt::format("{}: needs {}, found {}", field, needed, shown(found)));
}

double number_of(std::string_view field, const json::value& v) {
  if (!v.is_number()) refuse(field, "a number", v);
  return v.to_number<double>();
}

int64_t whole_of(std::string_view field, const json::value& v, int64_t least) {
  json::error_code failure;
  const int64_t n = v.is_number() ? v.to_number<int64_t>(failure) : 0;
  if (!v.is_number() || failure || n < least) refuse(field, fmt::format("a whole number of at least {}", least), v);
  return n;
}

bool truth_of(std::string_view field, const json::value& v) {
  if (!v.is_bool()) refuse(field, "true or false", v);
  return v.get_bool();
}

std::string text_of(std::string_view field, const json::value& v) {
  if (!v.is_string()) refuse(field, "a string", v);
  return std::string(v.get_string());
}

// A string, or OpenAI's list of text parts.
std::string content_of(std::string_view field, const json::value& v) {
  if (!v.is_array()) return text_of(field, v);
  std::string all;
  for (const json::value& part : v.get_array()) {
    const json::object* object = part.if_object();
    const json::value* type = object ? object->if_contains("type") : nullptr;
    const json::value* text = object ? object->if_contains("text") : nullptr;
    if (!type || *type != "text" || !text || object->size() != 2) {
      refuse(field, "a string, or parts {\"type\": \"text\", \"text\": ...}", part);
    }
    all += text_of(field, *text);
  }
  return all;
}

std::vector<Message> messages_of(const json::value& v) {
  if (!v.is_array() || v.get_array().empty()) refuse("messages", "a list of at least one message", v);
  std::vector<Message> messages;
  for (size_t i = 0; i < v.get_array().size(); ++i) {
    const std::string field = fmt::format("messages[{}]", i);
    const json::object* object = v.get_array()[i].if_object();
    if (!object) refuse(field, "an object with role and content", v.get_array()[i]);
    Message message;
    bool has_content = false;
    for (const auto& [key, value] : *object) {
      if (key == "role") {
        message.role = text_of(field + ".role", value);
      } else if (key == "content") {
        message.content = content_of(field + ".content", value);
        has_content = true;
      } else {
        refuse(field, "role and content alone", json::value(key));
      }
    }
    if (message.role != "system" && message.role != "user" && message.role != "assistant") {
      refuse(field + ".role", "system, user or assistant", json::value(message.role));
    }
    if (!has_content) refuse(field, "a content", v.get_array()[i]);
    messages.push_back(std::move(message));
  }
  return messages;
}

std::vector<std::string> stop_of(const json::value& v) {
  if (v.is_string()) return {text_of("stop", v)};
  if (!v.is_array()) refuse("stop", "a string or a list of strings", v);
  std::vector<std::string> stop;
  for (const json::value& item : v.get_array()) stop.push_back(text_of("stop", item));
  return stop;
}

// {"15043": 1.5}, as chat APIs have it.
std::vector<LogitBias> logit_bias_of(const json::value& v) {
  if (!v.is_object()) refuse("logit_bias", "an object of token ids and numbers", v);
  std::vector<LogitBias> all;
  for (const auto& [key, value] : v.get_object()) {
    LogitBias bias;
    const char* const end = key.data() + key.size();
    const auto parsed = std::from_chars(key.data(), end, bias.token);
    if (parsed.ec != std::errc() || parsed.ptr != end) refuse("logit_bias", "token ids as keys", json::value(key));
    bias.bias = static_cast<float>(number_of("logit_bias", value));
    all.push_back(bias);
  }
  return all;
}

// The fields of a request, one after the other.
class Fields {
 public:
  explicit Fields(Line& line) : line_(line), sampling_(line.options.sampling) {}

  void take(std::string_view name, const json::value& v) {
    if (v.is_null()) return;  // as chat APIs have it: not there
    if (!take_content(name, v) && !take_limit(name, v) && !take_sampling(name, v) && !take_constant(name, v)) {
      throw Error(Errc::bad_request,
                  fmt::format("{}: there is no such field; docs/batch.md has them", shown(json::value(name))));
    }
  }

  void finish() {
    if (line_.prompt.has_value() == !line_.messages.empty()) {
      throw Error(Errc::bad_request, "needs one of prompt and messages");
    }
    if (top_logprobs_ && !logprobs_) throw Error(Errc::bad_request, "top_logprobs: needs \"logprobs\": true beside it");
    if (logprobs_) line_.options.n_top_logprobs = top_logprobs_.value_or(0);
    check(sampling_);
  }

 private:
  bool take_content(std::string_view name, const json::value& v) {
    if (name == "prompt") {
      line_.prompt = text_of(name, v);
    } else if (name == "messages") {
      line_.messages = messages_of(v);
    } else {
      return false;
    }
    return true;
  }

  bool take_limit(std::string_view name, const json::value& v) {
    if (name == "max_tokens" || name == "max_completion_tokens") {
      line_.options.n_predict = whole_of(name, v, 0);
    } else if (name == "stop") {
      line_.options.stop = stop_of(v);
    } else if (name == "ignore_eos") {
      line_.options.ignore_eos = truth_of(name, v);
    } else if (name == "logprobs" && v.is_bool()) {
      logprobs_ = v.get_bool();
    } else if (name == "logprobs" || name == "top_logprobs") {
      const int64_t n = whole_of(name, v, 0);
      if (n > kTopLogprobsMax) refuse(name, fmt::format("0 to {}", kTopLogprobsMax), v);
      top_logprobs_ = n;
      if (name == "logprobs") logprobs_ = true;
    } else {
      return false;
    }
    return true;
  }

  bool take_sampling(std::string_view name, const json::value& v) {
    if (name == "temperature") {
      sampling_.temperature = number_of(name, v);
    } else if (name == "top_k") {
      sampling_.top_k = whole_of(name, v, 0);
    } else if (name == "top_p") {
      sampling_.top_p = number_of(name, v);
    } else if (name == "min_p") {
      sampling_.min_p = number_of(name, v);
    } else if (name == "repeat_penalty") {
      sampling_.repeat_penalty = number_of(name, v);
    } else if (name == "frequency_penalty") {
      sampling_.frequency_penalty = number_of(name, v);
    } else if (name == "presence_penalty") {
      sampling_.presence_penalty = number_of(name, v);
    } else if (name == "logit_bias") {
      sampling_.logit_bias = logit_bias_of(v);
    } else if (name == "seed") {
      json::error_code failure;
      sampling_.seed = v.is_number() ? v.to_number<uint64_t>(failure) : 0;
      if (!v.is_number() || failure) refuse(name, "a whole number from 0 to 2^64 - 1", v);
    } else {
      return false;
    }
    return true;
  }

  // Fields of chat APIs that say nothing here, or of which one value is served.
  bool take_constant(std::string_view name, const json::value& v) {
    if (name == "model" || name == "user") {
      text_of(name, v);
    } else if (name == "metadata") {
      if (!v.is_object()) refuse(name, "an object", v);
    } else if (name == "n") {
      if (v != 1) refuse(name, "1", v);
    } else if (name == "stream") {
      if (truth_of(name, v)) refuse(name, "false: an answer is one line", v);
    } else if (name == "response_format") {
      if (v != json::value(json::object({{"type", "text"}}))) refuse(name, "{\"type\":\"text\"}", v);
    } else {
      return false;
    }
    return true;
  }

  Line& line_;
  SamplerOptions& sampling_;
  bool logprobs_ = false;
  std::optional<int64_t> top_logprobs_;
};

// The id as JSON; throws where it is neither a string nor a whole number.
std::string id_of(std::string_view field, const json::value& v) {
  if (!v.is_string() && !v.is_int64() && !v.is_uint64()) refuse(field, "a string or a whole number", v);
  return json::serialize(v);
}

// {"custom_id", "method", "url", "body"}.
void take_envelope(const json::object& object, Line& line) {
  Fields fields(line);
  bool has_body = false;
  if (const json::value* id = object.if_contains("custom_id")) {
    if (!id->is_string()) refuse("custom_id", "a string", *id);
    line.id_json = id_of("custom_id", *id);
    line.is_openai = true;
  } else {
    throw Error(Errc::bad_request, "custom_id: needs one, found none");
  }
  for (const auto& [key, value] : object) {
    if (key == "method") {
      if (value != "POST") refuse(key, "\"POST\"", value);
    } else if (key == "url") {
      if (value != "/v1/chat/completions") refuse(key, "\"/v1/chat/completions\"", value);
    } else if (key == "body") {
      if (!value.is_object()) refuse(key, "an object", value);
      has_body = true;
      for (const auto& [name, v] : value.get_object()) fields.take(name, v);
    } else if (key != "custom_id") {
      throw Error(Errc::bad_request,
                  fmt::format("{}: beside custom_id there may be method, url and body", shown(json::value(key))));
    }
  }
  if (!has_body) throw Error(Errc::bad_request, "body: needs one, found none");
  if (line.prompt) throw Error(Errc::bad_request, "prompt: a chat completion has messages");
  fields.finish();
}

void take_object(const json::object& object, Line& line) {
  if (const json::value* id = object.if_contains("id")) line.id_json = id_of("id", *id);
  if (object.contains("custom_id") || object.contains("body")) return take_envelope(object, line);
  Fields fields(line);
  for (const auto& [key, value] : object) {
    if (key != "id") fields.take(key, value);
  }
  fields.finish();
}

}  // namespace

std::string Line::key() const { return (is_openai ? "custom_id " : "id ") + id_json; }

Line parse_line(std::string_view text, int64_t number, const GenerateOptions& defaults) {
  Line line;
  line.number = number;
  line.id_json = std::to_string(number);
  line.options = defaults;
  try {
    require_utf8(text, "the line");
    const json::value v = json_text::read(text, "it");
    if (!v.is_object()) throw Error(Errc::bad_request, fmt::format("needs an object, found {}", shown(v)));
    take_object(v.get_object(), line);
  } catch (const Error& e) {
    line.problem = fmt::format("line {}: {}", number, e.what());
  }
  return line;
}

}  // namespace assay::batch
