// The rows of the table (fields.h).
#include <limits>

#include "api/fields.h"

namespace assay::api {

namespace json = boost::json;

namespace {

constexpr unsigned kGenerates = kChat | kCompletions;
constexpr unsigned kAnswers = kGenerates | kResponses;
constexpr unsigned kEverywhere = kAnswers | kTokenize | kDetokenize | kTemplate | kEmbeddings;
constexpr double kAny = 1e6;
constexpr double kSeedMost = 9007199254740991;  // 2^53 - 1: what every JSON reader holds
constexpr double kCountMost = 2147483647;
constexpr int64_t kTextMost = 16 << 20;
constexpr RequestLimits kLimits;
constexpr std::string_view kOfSampler = "the server's flag, the model file's own, or as `assay run`";

SamplerOptions& sampling(Draft& d) { return d.generate.sampling; }

std::vector<std::string> strings_of(const json::value& v) {
  if (v.is_string()) return {std::string(v.get_string())};
  std::vector<std::string> list;
  for (const json::value& s : v.get_array()) list.emplace_back(s.get_string());
  return list;
}

std::vector<TokenId> ids_in(const json::value& v) {
  std::vector<TokenId> ids;
  for (const json::value& id : v.get_array())
    ids.push_back(static_cast<TokenId>(integer_of(id)));  // its range was checked
  return ids;
}

void set_logit_bias(Draft& d, const json::value& v) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const auto& [key, bias] : v.get_object()) {
    const double x = number_of(bias);
    const auto id = static_cast<TokenId>(std::stol(std::string(key)));  // digits, by the name's check
    sampling(d).logit_bias.push_back({id, x <= -100 ? -kInfinity : static_cast<float>(x)});
  }
}

void set_max_tokens(Draft& d, const json::value& v, std::string_view field) {
  d.max_tokens = integer_of(v);
  d.max_tokens_field = field;
}

// clang-format off
const Field kFields[] = {
    // What is asked.
    {.path = "model", .where = kEverywhere, .types = kString, .size_most = 512, .standard = "the served model",
     .about = "The served model's name. Another one is not found.",
     .apply = [](Draft& d, const json::value& v) { d.model = v.get_string().c_str(); }},
    {.path = "messages", .where = kChat | kTemplate, .types = kArray, .size_least = 1, .size_most = 4096, .required = true,
     .about = "The conversation. What it says stays text, whatever it looks like."},
    {.path = "messages[]", .where = kChat | kTemplate, .types = kObject},
    {.path = "messages[].role", .where = kChat | kTemplate, .types = kString, .values = "system|developer|user|assistant|tool",
     .required = true, .about = "developer is system."},
    {.path = "messages[].content", .where = kChat | kTemplate, .types = kString | kArray, .size_most = 256,
     .about = "Text, or parts of type text, which are joined. Only an assistant's message with tool_calls may be without."},
    {.path = "messages[].content[]", .where = kChat | kTemplate, .types = kObject, .size_most = kTextMost},
    {.path = "messages[].content[].type", .where = kChat | kTemplate, .types = kString, .values = "text", .required = true},
    {.path = "messages[].content[].text", .where = kChat | kTemplate, .types = kString, .size_most = kTextMost, .required = true},
    {.path = "messages[].name", .where = kChat | kTemplate, .types = kString, .size_most = 64, .about = "Of a tool's message: the function. Names of speakers are refused."},
    {.path = "messages[].refusal", .where = kChat | kTemplate, .types = kString, .refused = "refusals are not told apart from text"},
    {.path = "messages[].reasoning_content", .where = kChat | kTemplate, .types = kString, .size_most = kTextMost, .about = "Of the assistant: what it thought before."},
    {.path = "messages[].tool_calls", .where = kChat | kTemplate, .types = kArray, .size_most = 128, .about = "Of the assistant: the calls it asked for."},
    {.path = "messages[].tool_calls[]", .where = kChat | kTemplate, .types = kObject},
    {.path = "messages[].tool_calls[].id", .where = kChat | kTemplate, .types = kString, .size_most = 256, .required = true},
    {.path = "messages[].tool_calls[].type", .where = kChat | kTemplate, .types = kString, .values = "function"},
    {.path = "messages[].tool_calls[].index", .where = kChat | kTemplate, .types = kInteger, .most = 1024, .about = "Changes nothing: streams have it."},
    {.path = "messages[].tool_calls[].function", .where = kChat | kTemplate, .types = kObject, .required = true},
    {.path = "messages[].tool_calls[].function.name", .where = kChat | kTemplate, .types = kString, .size_least = 1, .size_most = 256, .required = true},
    {.path = "messages[].tool_calls[].function.arguments", .where = kChat | kTemplate, .types = kString, .size_most = kTextMost, .required = true,
     .about = "JSON text. What is no JSON object goes to the template as it is."},
    {.path = "messages[].tool_call_id", .where = kChat | kTemplate, .types = kString, .size_most = 256, .about = "Of a tool's message: which call it answers."},
    {.path = "prompt", .where = kCompletions, .types = kString | kArray, .size_least = 1, .size_most = 262144, .required = true,
     .about = "A text (its special tokens are tokens), token ids, or a list of texts or of lists of ids."},
    {.path = "prompt[]", .where = kCompletions, .types = kString | kInteger | kArray, .most = kCountMost, .size_most = kTextMost},
    {.path = "prompt[][]", .where = kCompletions, .types = kInteger, .most = kCountMost},
    {.path = "input", .where = kEmbeddings, .types = kString | kArray, .size_least = 1, .size_most = 262144, .required = true,
     .about = "A text (its special tokens are tokens), token ids, or a list of texts or of lists of ids."},
    {.path = "input[]", .where = kEmbeddings, .types = kString | kInteger | kArray, .most = kCountMost, .size_most = kTextMost},
    {.path = "input[][]", .where = kEmbeddings, .types = kInteger, .most = kCountMost},
    {.path = "input", .where = kResponses, .types = kString | kArray, .size_least = 1, .size_most = 4096, .required = true,
     .about = "What the user says, or the conversation so far as items: nothing of it is stored. What it says stays text, whatever it looks like."},
    {.path = "input[]", .where = kResponses, .types = kObject},
    {.path = "input[].type", .where = kResponses, .types = kString, .values = "message|function_call|function_call_output|reasoning", .standard = "message"},
    {.path = "input[].role", .where = kResponses, .types = kString, .values = "system|developer|user|assistant", .about = "Of a message. developer is system."},
    {.path = "input[].content", .where = kResponses, .types = kString | kArray, .size_most = 256, .about = "Of a message: text, or parts, which are joined; of reasoning: its parts."},
    {.path = "input[].content[]", .where = kResponses, .types = kObject, .size_most = kTextMost},
    {.path = "input[].content[].type", .where = kResponses, .types = kString, .values = "input_text|output_text|reasoning_text", .required = true},
    {.path = "input[].content[].text", .where = kResponses, .types = kString, .size_most = kTextMost, .required = true},
    {.path = "input[].content[].annotations", .where = kResponses, .types = kArray, .refused = "nothing is cited", .neutral = "[]"},
    {.path = "input[].content[].logprobs", .where = kResponses, .types = kArray, .about = "Changes nothing: answers have it.", .is_free = true},
    {.path = "input[].id", .where = kResponses, .types = kString, .size_most = 256, .about = "Changes nothing: answers have it."},
    {.path = "input[].status", .where = kResponses, .types = kString, .values = "in_progress|completed|incomplete", .about = "Changes nothing: answers have it."},
    {.path = "input[].call_id", .where = kResponses, .types = kString, .size_least = 1, .size_most = 256, .about = "Of a function_call, and of the function_call_output that answers it."},
    {.path = "input[].name", .where = kResponses, .types = kString, .size_least = 1, .size_most = 256, .about = "Of a function_call."},
    {.path = "input[].arguments", .where = kResponses, .types = kString, .size_most = kTextMost, .about = "Of a function_call: JSON text."},
    {.path = "input[].output", .where = kResponses, .types = kString | kArray, .size_most = 256, .about = "Of a function_call_output: text, or parts, which are joined."},
    {.path = "input[].output[]", .where = kResponses, .types = kObject, .size_most = kTextMost},
    {.path = "input[].output[].type", .where = kResponses, .types = kString, .values = "input_text|output_text", .required = true},
    {.path = "input[].output[].text", .where = kResponses, .types = kString, .size_most = kTextMost, .required = true},
    {.path = "input[].summary", .where = kResponses, .types = kArray, .size_most = 256, .about = "Of reasoning that has no content: what was thought."},
    {.path = "input[].summary[]", .where = kResponses, .types = kObject},
    {.path = "input[].summary[].type", .where = kResponses, .types = kString, .values = "summary_text", .required = true},
    {.path = "input[].summary[].text", .where = kResponses, .types = kString, .size_most = kTextMost, .required = true},
    {.path = "input[].encrypted_content", .where = kResponses, .types = kString, .refused = "nothing is encrypted: reasoning stands in content"},
    {.path = "instructions", .where = kResponses, .types = kString, .size_most = kTextMost, .standard = "none", .about = "A system message before the conversation."},
    {.path = "encoding_format", .where = kEmbeddings, .types = kString, .values = "float|base64", .standard = "float",
     .about = "Numbers, or the bytes of float32 numbers, the lowest byte first.",
     .apply = [](Draft& d, const json::value& v) { d.base64 = v.get_string() == "base64"; }},
    {.path = "dimensions", .where = kEmbeddings, .types = kInteger, .refused = "vectors have the model's width"},
    {.path = "content", .where = kTokenize, .types = kString, .size_most = kTextMost, .required = true, .about = "The text."},
    {.path = "add_special", .where = kTokenize, .types = kBoolean, .standard = "false", .about = "With the tokens that the file puts around a text."},
    {.path = "parse_special", .where = kTokenize, .types = kBoolean, .standard = "true", .about = "Text of a control token becomes that token."},
    {.path = "with_pieces", .where = kTokenize, .types = kBoolean, .standard = "false", .about = "Each token as an object of id and piece."},
    {.path = "tokens", .where = kDetokenize, .types = kArray, .size_most = 1'000'000, .required = true, .about = "Token ids."},
    {.path = "tokens[]", .where = kDetokenize, .types = kInteger, .most = kCountMost},

    // How much is answered, and in which form.
    {.path = "max_tokens", .where = kGenerates, .types = kInteger, .least = 1, .most = kCountMost, .standard = "up to the end of the context",
     .about = "Tokens of an answer at most.", .apply = [](Draft& d, const json::value& v) { set_max_tokens(d, v, "max_tokens"); }},
    {.path = "max_completion_tokens", .where = kChat, .types = kInteger, .least = 1, .most = kCountMost, .standard = "max_tokens",
     .about = "The same by its newer name.", .apply = [](Draft& d, const json::value& v) { set_max_tokens(d, v, "max_completion_tokens"); }},
    {.path = "max_output_tokens", .where = kResponses, .types = kInteger, .least = 1, .most = kCountMost, .standard = "up to the end of the context",
     .about = "Tokens of an answer at most, reasoning and calls among them.", .apply = [](Draft& d, const json::value& v) { set_max_tokens(d, v, "max_output_tokens"); }},
    {.path = "n", .where = kGenerates, .types = kInteger, .least = 1, .most = kLimits.n, .limit = &RequestLimits::n, .flag = "--max-n", .standard = "1",
     .about = "Answers to each prompt. The i-th draws as request i, so the first is the same for every n.",
     .apply = [](Draft& d, const json::value& v) { d.n = integer_of(v); }},
    {.path = "stream", .where = kAnswers, .types = kBoolean, .standard = "false", .about = "The answer in pieces as it grows, as server-sent events.",
     .apply = [](Draft& d, const json::value& v) { d.stream = v.get_bool(); }},
    {.path = "stream_options", .where = kGenerates, .types = kObject},
    {.path = "stream_options.include_usage", .where = kGenerates, .types = kBoolean, .standard = "false",
     .about = "A last piece tells the tokens used.", .apply = [](Draft& d, const json::value& v) { d.include_usage = v.get_bool(); }},
    {.path = "stream_options", .where = kResponses, .types = kObject},
    {.path = "stream_options.include_obfuscation", .where = kResponses, .types = kBoolean, .refused = "events are not padded", .neutral = "false"},
    {.path = "stop", .where = kAnswers, .types = kString | kArray, .size_most = kLimits.n_stop, .limit = &RequestLimits::n_stop, .flag = "--max-stop", .standard = "none",
     .about = "The answer ends before the first of these texts.", .apply = [](Draft& d, const json::value& v) { d.generate.stop = strings_of(v); }},
    {.path = "stop[]", .where = kAnswers, .types = kString, .size_least = 1, .size_most = kLimits.n_stop_bytes, .limit = &RequestLimits::n_stop_bytes, .flag = "--max-stop-bytes"},
    {.path = "logprobs", .where = kChat, .types = kBoolean, .standard = "false",
     .about = "How likely the model itself found each token: no option of sampling changes it.",
     .apply = [](Draft& d, const json::value& v) { d.logprobs = v.get_bool(); }},
    {.path = "top_logprobs", .where = kChat, .types = kInteger, .least = 0, .most = kLimits.n_top_logprobs, .limit = &RequestLimits::n_top_logprobs, .flag = "--max-top-logprobs", .standard = "0", .about = "Needs logprobs: as many likeliest tokens of each place.",
     .apply = [](Draft& d, const json::value& v) { d.n_top_logprobs = integer_of(v); }},
    {.path = "logprobs", .where = kCompletions, .types = kInteger, .least = 0, .most = kLimits.n_top_logprobs, .limit = &RequestLimits::n_top_logprobs, .flag = "--max-top-logprobs", .standard = "none",
     .about = "How likely the model itself found each token, and as many likeliest ones.",
     .apply = [](Draft& d, const json::value& v) { d.logprobs = true, d.n_top_logprobs = integer_of(v); }},
    {.path = "include", .where = kResponses, .types = kArray, .size_most = 8, .standard = "none"},
    {.path = "include[]", .where = kResponses, .types = kString, .values = "message.output_text.logprobs",
     .about = "How likely the model itself found each token of its text: no option of sampling changes it."},
    {.path = "top_logprobs", .where = kResponses, .types = kInteger, .least = 0, .most = kLimits.n_top_logprobs, .limit = &RequestLimits::n_top_logprobs, .flag = "--max-top-logprobs", .standard = "0",
     .about = "Needs message.output_text.logprobs in include: as many likeliest tokens of each place.",
     .apply = [](Draft& d, const json::value& v) { d.n_top_logprobs = integer_of(v); }},
    {.path = "user", .where = kAnswers | kEmbeddings, .types = kString, .size_most = 512, .standard = "none", .about = "Stands in the log; changes nothing.",
     .apply = [](Draft& d, const json::value& v) { d.user = v.get_string().c_str(); }},
    {.path = "cache_salt", .where = kAnswers, .types = kString, .size_most = 512, .standard = "none",
     .about = "Only requests of one key and one salt share what the cache holds of their prompts.",
     .apply = [](Draft& d, const json::value& v) { d.cache_salt = v.get_string().c_str(); }},

    // Sampling, by the names and in the order of the flags of `assay run`.
    {.path = "seed", .where = kAnswers, .types = kInteger, .least = 0, .most = kSeedMost, .standard = "drawn, and told in the answer",
     .about = "The same request with the same seed has the same answer.",
     .apply = [](Draft& d, const json::value& v) { d.seed = static_cast<uint64_t>(integer_of(v)); }},
    {.path = "logit_bias", .where = kAnswers, .types = kObject, .size_most = kLimits.n_logit_bias, .limit = &RequestLimits::n_logit_bias, .flag = "--max-logit-bias", .standard = "none",
     .about = "By token id, added to its logit; -100 forbids it.", .apply = set_logit_bias},
    {.path = "logit_bias.*", .where = kAnswers, .types = kNumber, .least = -100, .most = 100},
    {.path = "repeat_last_n", .where = kAnswers, .types = kInteger, .least = -1, .most = kCountMost, .standard = kOfSampler,
     .about = "Tokens the penalties look back at; 0: none, -1: all.", .apply = [](Draft& d, const json::value& v) { sampling(d).penalty_last_n = integer_of(v); }},
    {.path = "repeat_penalty", .where = kAnswers, .types = kNumber, .least = 1e-6, .most = kAny, .standard = kOfSampler, .about = "1: off.",
     .apply = [](Draft& d, const json::value& v) { sampling(d).repeat_penalty = number_of(v); }},
    {.path = "frequency_penalty", .where = kAnswers, .types = kNumber, .least = -2, .most = 2, .standard = kOfSampler, .about = "0: off.",
     .apply = [](Draft& d, const json::value& v) { sampling(d).frequency_penalty = number_of(v); }},
    {.path = "presence_penalty", .where = kAnswers, .types = kNumber, .least = -2, .most = 2, .standard = kOfSampler, .about = "0: off.",
     .apply = [](Draft& d, const json::value& v) { sampling(d).presence_penalty = number_of(v); }},
    {.path = "dry_multiplier", .where = kAnswers, .types = kNumber, .least = 0, .most = kAny, .standard = kOfSampler, .about = "Penalty for going on with a repetition; 0: off.",
     .apply = [](Draft& d, const json::value& v) { sampling(d).dry_multiplier = number_of(v); }},
    {.path = "dry_base", .where = kAnswers, .types = kNumber, .least = 1, .most = kAny, .standard = kOfSampler, .about = "Its growth per repeated token.",
     .apply = [](Draft& d, const json::value& v) { sampling(d).dry_base = number_of(v); }},
    {.path = "dry_allowed_length", .where = kAnswers, .types = kInteger, .least = 1, .most = kCountMost, .standard = kOfSampler, .about = "Repetitions this long are free.",
     .apply = [](Draft& d, const json::value& v) { sampling(d).dry_allowed_length = integer_of(v); }},
    {.path = "dry_penalty_last_n", .where = kAnswers, .types = kInteger, .least = -1, .most = kCountMost, .standard = kOfSampler,
     .about = "Tokens it looks back at; 0: none, -1: all.", .apply = [](Draft& d, const json::value& v) { sampling(d).dry_penalty_last_n = integer_of(v); }},
    {.path = "dry_sequence_breakers", .where = kAnswers, .types = kArray, .size_most = 16, .standard = kOfSampler, .about = "What ends a repetition.",
     .apply = [](Draft& d, const json::value& v) { sampling(d).dry_sequence_breakers = strings_of(v); }},
    {.path = "dry_sequence_breakers[]", .where = kAnswers, .types = kString, .size_least = 1, .size_most = 256},
    {.path = "top_n_sigma", .where = kAnswers, .types = kNumber, .least = -1, .most = kAny, .standard = kOfSampler, .about = "Logits this many deviations below the best go; -1: off.",
     .apply = [](Draft& d, const json::value& v) { sampling(d).top_n_sigma = number_of(v); }},
    {.path = "top_k", .where = kAnswers, .types = kInteger, .least = -1, .most = kCountMost, .standard = kOfSampler, .about = "Keeps the N best; 0 or -1: off.",
     .apply = [](Draft& d, const json::value& v) { sampling(d).top_k = integer_of(v); }},
    {.path = "typical_p", .where = kAnswers, .types = kNumber, .least = 0, .most = 1, .standard = kOfSampler, .about = "Locally typical sampling; 1: off.",
     .apply = [](Draft& d, const json::value& v) { sampling(d).typical_p = number_of(v); }},
    {.path = "top_p", .where = kAnswers, .types = kNumber, .least = 0, .most = 1, .standard = kOfSampler, .about = "Keeps the best that together reach it; 1: off.",
     .apply = [](Draft& d, const json::value& v) { sampling(d).top_p = number_of(v); }},
    {.path = "min_p", .where = kAnswers, .types = kNumber, .least = 0, .most = 1, .standard = kOfSampler, .about = "Drops what is less likely than this part of the best; 0: off.",
     .apply = [](Draft& d, const json::value& v) { sampling(d).min_p = number_of(v); }},
    {.path = "xtc_probability", .where = kAnswers, .types = kNumber, .least = 0, .most = 1, .standard = kOfSampler, .about = "How often the best choices are dropped; 0: off.",
     .apply = [](Draft& d, const json::value& v) { sampling(d).xtc_probability = number_of(v); }},
    {.path = "xtc_threshold", .where = kAnswers, .types = kNumber, .least = 0, .most = 1, .standard = kOfSampler, .about = "All but the last of those at least this likely.",
     .apply = [](Draft& d, const json::value& v) { sampling(d).xtc_threshold = number_of(v); }},
    {.path = "temperature", .where = kAnswers, .types = kNumber, .least = 0, .most = 2, .standard = kOfSampler, .about = "0: always the most likely token.",
     .apply = [](Draft& d, const json::value& v) { sampling(d).temperature = number_of(v); }},
    {.path = "dynatemp_range", .where = kAnswers, .types = kNumber, .least = 0, .most = kAny, .standard = kOfSampler, .about = "The temperature moves by this with the entropy; 0: off.",
     .apply = [](Draft& d, const json::value& v) { sampling(d).dynamic_range = number_of(v); }},
    {.path = "dynatemp_exponent", .where = kAnswers, .types = kNumber, .least = 0, .most = 1000, .standard = kOfSampler, .about = "Its exponent.",
     .apply = [](Draft& d, const json::value& v) { sampling(d).dynamic_exponent = number_of(v); }},
    {.path = "ignore_eos", .where = kAnswers, .types = kBoolean, .standard = "false", .about = "Forbids the tokens that end an answer.",
     .apply = [](Draft& d, const json::value& v) { d.generate.ignore_eos = v.get_bool(); }},

    {.path = "stop_token_ids", .where = kAnswers, .types = kArray, .size_most = 128, .standard = "none",
     .about = "The answer ends with the first of these token ids, whose text is not in it.",
     .apply = [](Draft& d, const json::value& v) { d.generate.stop_ids = ids_in(v); }},
    {.path = "stop_token_ids[]", .where = kAnswers, .types = kInteger, .most = kCountMost},
    {.path = "timings_per_token", .where = kAnswers, .types = kBoolean, .standard = "false",
     .about = "Each piece of a stream, and a whole answer, has timings: tokens and milliseconds so far, as llama-server has them.",
     .apply = [](Draft& d, const json::value& v) { d.timings = v.get_bool(); }},

    // The form of an answer.
    {.path = "tools", .where = kChat | kTemplate, .types = kArray, .size_most = kLimits.n_tools, .limit = &RequestLimits::n_tools, .flag = "--max-tools", .about = "Functions that the answer may ask to be called."},
    {.path = "tools[]", .where = kChat | kTemplate, .types = kObject},
    {.path = "tools[].type", .where = kChat | kTemplate, .types = kString, .values = "function", .required = true},
    {.path = "tools[].function", .where = kChat | kTemplate, .types = kObject, .required = true},
    {.path = "tools[].function.name", .where = kChat | kTemplate, .types = kString, .size_least = 1, .size_most = 64, .required = true, .about = "Letters, digits, _ and -."},
    {.path = "tools[].function.description", .where = kChat | kTemplate, .types = kString, .size_most = kTextMost},
    {.path = "tools[].function.parameters", .where = kChat | kTemplate, .types = kObject, .standard = "no arguments", .about = "JSON Schema of an object. Each keyword is enforced, or refused with its pointer.", .is_free = true},
    {.path = "tools[].function.strict", .where = kChat | kTemplate, .types = kBoolean, .about = "Changes nothing: arguments always are what their schema says."},
    {.path = "tool_choice", .where = kChat, .types = kString | kObject, .values = "none|auto|required", .standard = "auto with tools", .about = "Whether the answer may, must or must not call; an object names the function."},
    {.path = "tools", .where = kResponses, .types = kArray, .size_most = kLimits.n_tools, .limit = &RequestLimits::n_tools, .flag = "--max-tools", .about = "Functions that the answer may ask to be called."},
    {.path = "tools[]", .where = kResponses, .types = kObject},
    {.path = "tools[].type", .where = kResponses, .types = kString, .values = "function", .required = true, .about = "Nothing is searched, run or fetched here."},
    {.path = "tools[].name", .where = kResponses, .types = kString, .size_least = 1, .size_most = 64, .required = true, .about = "Letters, digits, _ and -."},
    {.path = "tools[].description", .where = kResponses, .types = kString, .size_most = kTextMost},
    {.path = "tools[].parameters", .where = kResponses, .types = kObject, .standard = "no arguments", .about = "JSON Schema of an object. Each keyword is enforced, or refused with its pointer.", .is_free = true},
    {.path = "tools[].strict", .where = kResponses, .types = kBoolean, .about = "Changes nothing: arguments always are what their schema says."},
    {.path = "tool_choice", .where = kResponses, .types = kString | kObject, .values = "none|auto|required", .standard = "auto with tools", .about = "Whether the answer may, must or must not call; an object names the function."},
    {.path = "tool_choice.type", .where = kResponses, .types = kString, .values = "function", .required = true},
    {.path = "tool_choice.name", .where = kResponses, .types = kString, .size_least = 1, .size_most = 64, .required = true},
    {.path = "text", .where = kResponses, .types = kObject, .about = "The form of the answer's text."},
    {.path = "text.format", .where = kResponses, .types = kObject, .standard = "text"},
    {.path = "text.format.type", .where = kResponses, .types = kString, .values = "text|json_object|json_schema", .required = true},
    {.path = "text.format.name", .where = kResponses, .types = kString, .size_least = 1, .size_most = 256, .about = "Of json_schema, which needs it."},
    {.path = "text.format.description", .where = kResponses, .types = kString, .size_most = kTextMost},
    {.path = "text.format.strict", .where = kResponses, .types = kBoolean, .about = "Changes nothing: the schema is always enforced."},
    {.path = "text.format.schema", .where = kResponses, .types = kBoolean | kObject, .about = "Of json_schema, which needs it. Each keyword is enforced, or refused with its pointer.", .is_free = true},
    {.path = "text.verbosity", .where = kResponses, .types = kString, .refused = "it changes nothing here", .neutral = "\"medium\""},
    {.path = "reasoning", .where = kResponses, .types = kObject},
    {.path = "reasoning.effort", .where = kResponses, .types = kString, .values = "none|minimal|low|medium|high|xhigh", .about = "Goes to a template that knows it; else refused."},
    {.path = "reasoning.summary", .where = kResponses, .types = kString, .refused = "reasoning is told as it is, not in summary"},
    {.path = "reasoning.generate_summary", .where = kResponses, .types = kString, .refused = "reasoning is told as it is, not in summary"},
    {.path = "tool_choice.type", .where = kChat, .types = kString, .values = "function", .required = true},
    {.path = "tool_choice.function", .where = kChat, .types = kObject, .required = true},
    {.path = "tool_choice.function.name", .where = kChat, .types = kString, .size_least = 1, .size_most = 64, .required = true},
    {.path = "parallel_tool_calls", .where = kChat | kResponses, .types = kBoolean, .standard = "true", .about = "Whether an answer may have several calls, where the template can write them."},
    {.path = "response_format", .where = kGenerates, .types = kObject, .standard = "text"},
    {.path = "response_format.type", .where = kGenerates, .types = kString, .values = "text|json_object|json_schema", .required = true},
    {.path = "response_format.json_schema", .where = kGenerates, .types = kObject},
    {.path = "response_format.json_schema.name", .where = kGenerates, .types = kString, .size_least = 1, .size_most = 256, .required = true},
    {.path = "response_format.json_schema.description", .where = kGenerates, .types = kString, .size_most = kTextMost},
    {.path = "response_format.json_schema.strict", .where = kGenerates, .types = kBoolean, .about = "Changes nothing: the schema is always enforced."},
    {.path = "response_format.json_schema.schema", .where = kGenerates, .types = kBoolean | kObject, .required = true, .about = "Each keyword is enforced, or refused with its pointer.", .is_free = true},
    {.path = "json_schema", .where = kGenerates, .types = kObject, .about = "The same schema, as llama-server has it.", .is_free = true},
    {.path = "grammar", .where = kAnswers, .types = kString, .size_least = 1, .size_most = 64 << 10, .about = "GBNF that the whole answer is held to."},
    {.path = "reasoning_effort", .where = kChat | kTemplate, .types = kString, .values = "none|minimal|low|medium|high|xhigh", .about = "Goes to a template that knows it; else refused."},
    {.path = "enable_thinking", .where = kChat | kTemplate | kResponses, .types = kBoolean, .about = "Goes to a template that knows it; else refused."},
    {.path = "chat_template_kwargs", .where = kChat | kTemplate | kResponses, .types = kObject, .size_most = 64, .about = "Further variables of the template, e.g. enable_thinking; one that it does not know is refused.", .is_free = true},

    // What OpenAI has and this server does not: refused by name, unless it asks for nothing.
    {.path = "functions", .where = kChat, .types = kArray, .refused = "tools are served in their place", .neutral = "[]"},
    {.path = "function_call", .where = kChat, .types = kString | kObject, .refused = "tool_choice is served in its place", .neutral = "\"none\"|\"auto\""},
    {.path = "modalities", .where = kChat, .types = kArray, .refused = "only text is served", .neutral = "[\"text\"]"},
    {.path = "audio", .where = kChat, .types = kObject, .refused = "only text is served"},
    {.path = "prediction", .where = kChat, .types = kObject, .refused = "predicted outputs are not served"},
    {.path = "verbosity", .where = kChat, .types = kString, .refused = "it changes nothing here"},
    {.path = "web_search_options", .where = kChat, .types = kObject, .refused = "nothing is searched"},
    {.path = "store", .where = kChat | kResponses, .types = kBoolean, .refused = "answers are not stored", .neutral = "false"},
    {.path = "metadata", .where = kChat | kResponses, .types = kObject, .refused = "answers are not stored", .neutral = "{}"},
    {.path = "service_tier", .where = kChat | kResponses, .types = kString, .refused = "there is one tier", .neutral = "\"auto\"|\"default\""},
    {.path = "prompt_cache_key", .where = kChat | kResponses, .types = kString, .refused = "cache_salt says which requests share the cache"},
    {.path = "safety_identifier", .where = kChat | kResponses, .types = kString, .refused = "user stands in the log"},
    {.path = "previous_response_id", .where = kResponses, .types = kString, .refused = "answers are not stored: input takes the whole conversation"},
    {.path = "conversation", .where = kResponses, .types = kString | kObject, .refused = "conversations are not stored: input takes the whole of one"},
    {.path = "background", .where = kResponses, .types = kBoolean, .refused = "answers are not stored, so they cannot be asked for later", .neutral = "false"},
    {.path = "truncation", .where = kResponses, .types = kString, .refused = "nothing is cut: what does not fit is refused", .neutral = "\"disabled\""},
    {.path = "prompt", .where = kResponses, .types = kObject, .refused = "prompts are not stored: instructions and input take their text"},
    {.path = "max_tool_calls", .where = kResponses, .types = kInteger, .refused = "it counts built-in tools, of which there are none"},
    {.path = "prompt_cache_retention", .where = kResponses, .types = kString, .refused = "the server's flags say what is kept of prompts"},
    {.path = "context_management", .where = kResponses, .types = kArray, .refused = "nothing is cut or summed up: what does not fit is refused", .neutral = "[]"},
    {.path = "best_of", .where = kCompletions, .types = kInteger, .refused = "n gives several answers", .neutral = "1"},
    {.path = "echo", .where = kCompletions, .types = kBoolean, .refused = "prompts are not repeated", .neutral = "false"},
    {.path = "suffix", .where = kCompletions, .types = kString, .refused = "text is not filled in before a suffix"},
};
// clang-format on

}  // namespace

std::span<const Field> fields() { return kFields; }

}  // namespace assay::api
