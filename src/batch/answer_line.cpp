// See answer_line.h.
#include "batch/answer_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "engine/metadata_json.h"

namespace assay::batch {
namespace {

using engine::json_string;

std::string usage(const Generation& g) {
  const auto n_answer = static_cast<int64_t>(g.ids.size());
  return fmt::format("{{\"prompt_tokens\":{},\"completion_tokens\":{},\"total_tokens\":{}}}", g.n_prompt, n_answer,
                     g.n_prompt + n_answer);
}

std::string logprobs(const Line& line, const Generation& g, const AnswerFacts& facts) {
  return line.options.n_top_logprobs < 0 ? "null" : logprobs_json(facts.model->tokenizer().get(), g.logprobs);
}

std::string reasoning(const Generation& g) {
  return g.reasoning.empty() ? "" : fmt::format(",\"reasoning_content\":{}", json_string(g.reasoning));
}

std::string openai_answer(const Line& line, const Generation& g, const AnswerFacts& facts) {
  const std::string message =
      fmt::format("{{\"role\":\"assistant\",\"content\":{}{}}}", json_string(g.text), reasoning(g));
  const std::string choice = fmt::format("{{\"index\":0,\"message\":{},\"logprobs\":{},\"finish_reason\":{}}}", message,
                                         logprobs(line, g, facts), json_string(name(g.finish_reason)));
  const std::string body = fmt::format(
      "{{\"id\":\"chatcmpl-{}\",\"object\":\"chat.completion\",\"created\":{},\"model\":{},\"choices\":[{}],"
      "\"usage\":{}}}",
      line.number, facts.created_unix, json_string(facts.model->name()), choice, usage(g));
  return fmt::format(
      "{{\"id\":\"batch_req_{0}\",\"custom_id\":{1},\"response\":{{\"status_code\":200,\"request_id\":\"req_{0}\","
      "\"body\":{2}}},"
      "\"error\":null}}\n",
      line.number, line.id_json, body);
}

}  // namespace

std::string answer_line(const Line& line, const Generation& g, const AnswerFacts& facts) {
  if (line.is_openai) return openai_answer(line, g, facts);
  std::string text = fmt::format("{{\"id\":{},\"text\":{}{},\"ids\":[{}],\"finish_reason\":{},\"usage\":{},\"seed\":{}",
                                 line.id_json, json_string(g.text), reasoning(g), fmt::join(g.ids, ","),
                                 json_string(name(g.finish_reason)), usage(g), line.options.sampling.seed);
  if (line.options.n_top_logprobs >= 0) text += fmt::format(",\"logprobs\":{}", logprobs(line, g, facts));
  return text + "}\n";
}

std::string error_line(const Line& line, std::string_view problem) {
  if (!line.is_openai) return fmt::format("{{\"id\":{},\"error\":{}}}\n", line.id_json, json_string(problem));
  return fmt::format(
      "{{\"id\":\"batch_req_{}\",\"custom_id\":{},\"response\":null,\"error\":{{\"code\":\"bad_request\",\"message\":{}"
      "}}}}\n",
      line.number, line.id_json, json_string(problem));
}

}  // namespace assay::batch
