// See answer_shapes.h. An object's members are all there in every answer unless its schema says otherwise.
#include "api/answer_shapes.h"

#include <string>
#include <string_view>

namespace assay::api {

namespace json = boost::json;

namespace {

constexpr std::string_view kShared = R"json({
"Error": {"type": "object", "required": ["error"], "properties": {"error": {"type": "object", "required": ["message", "type", "param", "code"], "properties": {
  "message": {"type": "string", "description": "Which thing, what was needed, what was found"},
  "type": {"enum": ["invalid_request_error", "authentication_error", "permission_error", "not_found_error", "rate_limit_error", "server_error"]},
  "param": {"type": ["string", "null"], "description": "The field, with its path"},
  "code": {"type": ["string", "null"], "description": "For programs, e.g. context_length_exceeded, model_not_found, unknown_parameter, queue_full"}}}}},
"Health": {"type": "object", "required": ["status"], "properties": {"status": {"enum": ["ok", "draining"]}}},
"Model": {"type": "object", "required": ["id", "object", "created", "owned_by", "max_model_len"], "properties": {
  "id": {"type": "string"}, "object": {"const": "model"}, "created": {"type": "integer"}, "owned_by": {"type": "string"},
  "max_model_len": {"type": "integer", "description": "Positions that a request may use"}}},
"ModelList": {"type": "object", "required": ["object", "data"], "properties": {"object": {"const": "list"}, "data": {"type": "array", "items": {"$ref": "#/components/schemas/Model"}}}},
"Tokens": {"type": "object", "required": ["tokens"], "properties": {"tokens": {"type": "array", "items": {"anyOf": [{"type": "integer"},
  {"type": "object", "required": ["id", "piece"], "properties": {"id": {"type": "integer"}, "piece": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 255}}]}}}]}}}},
"Text": {"type": "object", "required": ["content"], "properties": {"content": {"type": "string"}}},
"Prompt": {"type": "object", "required": ["prompt"], "properties": {"prompt": {"type": "string"}}},
"Document": {"type": "object", "required": ["openapi", "info", "paths"], "properties": {"openapi": {"type": "string"}, "info": {"type": "object"}, "paths": {"type": "object"}}},
"Props": {"type": "object", "required": ["default_generation_settings", "total_slots", "model_alias", "chat_template", "limits", "numerics", "system_fingerprint"], "properties": {
  "default_generation_settings": {"type": "object", "required": ["n_ctx", "params"], "properties": {"n_ctx": {"type": "integer"}, "params": {"type": "object"}}},
  "total_slots": {"type": "integer"}, "model_alias": {"type": "string"}, "model_path": {"type": "string", "description": "The served name: no path of the machine"},
  "chat_template": {"type": "string"}, "build_info": {"type": "string"}, "limits": {"type": "object"}, "tool_calls": {"type": ["object", "null"]},
  "reasoning": {"type": ["object", "null"]}, "numerics": {"type": "object"}, "system_fingerprint": {"type": "string"}}},
"Embeddings": {"type": "object", "required": ["object", "data", "model", "usage"], "properties": {"object": {"const": "list"}, "model": {"type": "string"},
  "data": {"type": "array", "items": {"type": "object", "required": ["object", "index", "embedding"], "properties": {"object": {"const": "embedding"}, "index": {"type": "integer"},
    "embedding": {"anyOf": [{"type": "array", "items": {"type": "number"}}, {"type": "string", "description": "base64 of float32 numbers, the lowest byte first"}]}}}},
  "usage": {"type": "object", "required": ["prompt_tokens", "total_tokens"], "properties": {"prompt_tokens": {"type": "integer"}, "total_tokens": {"type": "integer"}}}}}
})json";

constexpr std::string_view kCompletionShapes = R"json({
"Usage": {"type": "object", "required": ["prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details", "completion_tokens_details"], "properties": {
  "prompt_tokens": {"type": "integer"}, "completion_tokens": {"type": "integer"}, "total_tokens": {"type": "integer"},
  "prompt_tokens_details": {"type": "object", "required": ["cached_tokens"], "properties": {"cached_tokens": {"type": "integer", "description": "Of the prompt's tokens: in the cache already"}}},
  "completion_tokens_details": {"type": "object", "required": ["accepted_prediction_tokens", "rejected_prediction_tokens"], "properties": {
    "reasoning_tokens": {"type": "integer", "description": "Of a conversation's answer"},
    "accepted_prediction_tokens": {"type": "integer", "description": "Guessed ahead, and what the model itself drew"},
    "rejected_prediction_tokens": {"type": "integer", "description": "Guessed ahead in vain"}}}}},
"Timings": {"description": "With timings_per_token. Of several choices, added up", "type": "object", "required": ["cache_n", "prompt_n", "prompt_ms", "prompt_per_token_ms", "prompt_per_second", "predicted_n", "predicted_ms", "predicted_per_token_ms", "predicted_per_second"], "properties": {
  "cache_n": {"type": "integer", "description": "Tokens of the prompt that the cache held"}, "prompt_n": {"type": "integer", "description": "Those that were read"},
  "prompt_ms": {"type": "number", "description": "From the request's first step to its first token"}, "prompt_per_token_ms": {"type": ["number", "null"]}, "prompt_per_second": {"type": ["number", "null"]},
  "predicted_n": {"type": "integer", "description": "Tokens of the answer"}, "predicted_ms": {"type": "number", "description": "From the first of them on"},
  "predicted_per_token_ms": {"type": ["number", "null"], "description": "Of those after the first; null: there are none"}, "predicted_per_second": {"type": ["number", "null"]},
  "draft_n": {"type": "integer", "description": "Tokens guessed ahead"}, "draft_n_accepted": {"type": "integer"}}},
"TokenLogprob": {"type": "object", "required": ["token", "id", "bytes", "logprob"], "properties": {"token": {"type": "string"}, "id": {"type": "integer"},
  "bytes": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 255}}, "logprob": {"type": ["number", "null"], "description": "null: none, as of a forbidden token"},
  "top_logprobs": {"type": "array", "items": {"$ref": "#/components/schemas/TokenLogprob"}}}},
"ChatLogprobs": {"type": ["object", "null"], "properties": {"content": {"type": "array", "items": {"$ref": "#/components/schemas/TokenLogprob"}}}},
"Logprobs": {"type": ["object", "null"], "properties": {"tokens": {"type": "array", "items": {"type": "string"}}, "token_logprobs": {"type": "array", "items": {"type": ["number", "null"]}},
  "top_logprobs": {"type": "array", "items": {"type": "object", "additionalProperties": {"type": ["number", "null"]}}}, "text_offset": {"type": "array", "items": {"type": "integer"}}}},
"ToolCall": {"type": "object", "required": ["function"], "properties": {"index": {"type": "integer", "description": "In streams"}, "id": {"type": "string"}, "type": {"const": "function"},
  "function": {"type": "object", "required": ["arguments"], "properties": {"name": {"type": "string"}, "arguments": {"type": "string"}}}}},
"ChatCompletion": {"type": "object", "required": ["id", "object", "created", "model", "system_fingerprint", "seed", "choices", "usage"], "properties": {
  "id": {"type": "string"}, "object": {"const": "chat.completion"}, "created": {"type": "integer"}, "model": {"type": "string"}, "system_fingerprint": {"type": "string"}, "seed": {"type": "integer"},
  "choices": {"type": "array", "items": {"type": "object", "required": ["index", "message", "logprobs", "finish_reason"], "properties": {"index": {"type": "integer"},
    "message": {"type": "object", "required": ["role", "content"], "properties": {"role": {"const": "assistant"}, "content": {"type": ["string", "null"]}, "refusal": {"type": "null"},
      "reasoning_content": {"type": "string"}, "tool_calls": {"type": "array", "items": {"$ref": "#/components/schemas/ToolCall"}}}},
    "logprobs": {"$ref": "#/components/schemas/ChatLogprobs"}, "finish_reason": {"enum": ["stop", "length", "tool_calls"]}}}},
  "usage": {"$ref": "#/components/schemas/Usage"}, "timings": {"$ref": "#/components/schemas/Timings"}}},
"ChatCompletionChunk": {"type": "object", "required": ["id", "object", "created", "model", "system_fingerprint", "seed", "choices"], "properties": {
  "id": {"type": "string"}, "object": {"const": "chat.completion.chunk"}, "created": {"type": "integer"}, "model": {"type": "string"}, "system_fingerprint": {"type": "string"}, "seed": {"type": "integer"},
  "choices": {"type": "array", "items": {"type": "object", "required": ["index", "delta", "logprobs", "finish_reason"], "properties": {"index": {"type": "integer"},
    "delta": {"type": "object", "properties": {"role": {"const": "assistant"}, "content": {"type": "string"}, "reasoning_content": {"type": "string"}, "tool_calls": {"type": "array", "items": {"$ref": "#/components/schemas/ToolCall"}}}},
    "logprobs": {"$ref": "#/components/schemas/ChatLogprobs"}, "finish_reason": {"enum": ["stop", "length", "tool_calls", null]}}}},
  "usage": {"$ref": "#/components/schemas/Usage"}, "timings": {"$ref": "#/components/schemas/Timings"}}},
"Completion": {"type": "object", "required": ["id", "object", "created", "model", "system_fingerprint", "seed", "choices", "usage"], "properties": {
  "id": {"type": "string"}, "object": {"const": "text_completion"}, "created": {"type": "integer"}, "model": {"type": "string"}, "system_fingerprint": {"type": "string"}, "seed": {"type": "integer"},
  "choices": {"type": "array", "items": {"type": "object", "required": ["index", "text", "logprobs", "finish_reason"], "properties": {"index": {"type": "integer"}, "text": {"type": "string"},
    "logprobs": {"$ref": "#/components/schemas/Logprobs"}, "finish_reason": {"enum": ["stop", "length", null]}}}},
  "usage": {"$ref": "#/components/schemas/Usage"}, "timings": {"$ref": "#/components/schemas/Timings"}}},
"CompletionChunk": {"description": "As Completion, with usage in the last one alone", "type": "object", "required": ["id", "object", "choices"], "properties": {"id": {"type": "string"}, "object": {"const": "text_completion"}, "choices": {"type": "array"}}}
})json";

constexpr std::string_view kResponseShapes = R"json({
"ResponseUsage": {"type": "object", "required": ["input_tokens", "input_tokens_details", "output_tokens", "output_tokens_details", "total_tokens"], "properties": {
  "input_tokens": {"type": "integer"}, "output_tokens": {"type": "integer"}, "total_tokens": {"type": "integer"},
  "input_tokens_details": {"type": "object", "required": ["cached_tokens"], "properties": {"cached_tokens": {"type": "integer"}}},
  "output_tokens_details": {"type": "object", "required": ["reasoning_tokens"], "properties": {"reasoning_tokens": {"type": "integer"}}}}},
"ResponseItem": {"oneOf": [
  {"type": "object", "required": ["id", "type", "status", "role", "content"], "properties": {"id": {"type": "string"}, "type": {"const": "message"}, "status": {"$ref": "#/components/schemas/ResponseItemStatus"}, "role": {"const": "assistant"},
    "content": {"type": "array", "items": {"type": "object", "required": ["type", "text", "annotations", "logprobs"], "properties": {"type": {"const": "output_text"}, "text": {"type": "string"}, "annotations": {"type": "array"},
      "logprobs": {"type": "array", "items": {"$ref": "#/components/schemas/TokenLogprob"}}}}}}},
  {"type": "object", "required": ["id", "type", "status", "call_id", "name", "arguments"], "properties": {"id": {"type": "string"}, "type": {"const": "function_call"}, "status": {"$ref": "#/components/schemas/ResponseItemStatus"},
    "call_id": {"type": "string"}, "name": {"type": "string"}, "arguments": {"type": "string"}}},
  {"type": "object", "required": ["id", "type", "status", "summary", "content"], "properties": {"id": {"type": "string"}, "type": {"const": "reasoning"}, "status": {"$ref": "#/components/schemas/ResponseItemStatus"}, "summary": {"type": "array", "maxItems": 0},
    "content": {"type": "array", "items": {"type": "object", "required": ["type", "text"], "properties": {"type": {"const": "reasoning_text"}, "text": {"type": "string"}}}}}}]},
"ResponseItemStatus": {"enum": ["in_progress", "completed", "incomplete"]},
"Response": {"type": "object", "required": ["id", "object", "created_at", "status", "error", "incomplete_details", "model", "system_fingerprint", "seed", "output", "instructions", "max_output_tokens", "tool_choice",
    "parallel_tool_calls", "tools", "text", "reasoning", "temperature", "top_p", "store", "truncation", "usage"], "properties": {
  "id": {"type": "string"}, "object": {"const": "response"}, "created_at": {"type": "integer"}, "status": {"enum": ["in_progress", "completed", "incomplete", "failed"]},
  "error": {"type": ["object", "null"], "properties": {"code": {"type": "string"}, "message": {"type": "string"}}},
  "incomplete_details": {"type": ["object", "null"], "properties": {"reason": {"const": "max_output_tokens"}}},
  "model": {"type": "string"}, "system_fingerprint": {"type": "string"}, "seed": {"type": "integer"}, "output": {"type": "array", "items": {"$ref": "#/components/schemas/ResponseItem"}},
  "instructions": {"type": ["string", "null"]}, "max_output_tokens": {"type": ["integer", "null"]}, "tool_choice": {"type": ["string", "object"]}, "parallel_tool_calls": {"type": "boolean"},
  "tools": {"type": "array", "items": {"type": "object"}}, "text": {"type": "object"}, "reasoning": {"type": "object"}, "temperature": {"type": "number"}, "top_p": {"type": "number"}, "top_logprobs": {"type": "integer"},
  "store": {"const": false}, "truncation": {"const": "disabled"}, "usage": {"anyOf": [{"$ref": "#/components/schemas/ResponseUsage"}, {"type": "null"}]},
  "timings": {"$ref": "#/components/schemas/Timings"}}},
"ResponseEvent": {"type": "object", "required": ["type", "sequence_number"], "properties": {"sequence_number": {"type": "integer"}, "timings": {"$ref": "#/components/schemas/Timings"}, "type": {"enum": ["response.created", "response.in_progress", "response.output_item.added",
  "response.content_part.added", "response.output_text.delta", "response.output_text.done", "response.reasoning_text.delta", "response.reasoning_text.done", "response.content_part.done", "response.function_call_arguments.delta",
  "response.function_call_arguments.done", "response.output_item.done", "response.completed", "response.incomplete", "response.failed", "error"]}}}
})json";

}  // namespace

json::object answer_shapes() {
  json::object all;
  for (const std::string_view text : {kShared, kCompletionShapes, kResponseShapes}) {
    const json::value shapes = json::parse(json::string_view(text.data(), text.size()));
    for (const auto& [name, shape] : shapes.get_object()) all[name] = shape;
  }
  return all;
}

}  // namespace assay::api
