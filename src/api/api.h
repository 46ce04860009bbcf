// OpenAI's requests and answers as JSON, over a model: what is asked becomes requests of the scheduler, and what comes
// of them becomes text. Knows no sockets.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/error.h"
#include "api/fields.h"
#include "api/form.h"
#include "assay/constraint.h"
#include "assay/scheduler.h"
#include "assay/server.h"
#include "assay/session.h"
#include "assay/tools.h"
#include "engine/sampling/after_reasoning.h"

namespace assay::api {

struct ApiOptions {
  std::vector<std::string> names;  // the model is served under; the first one stands in answers
  GenerateOptions defaults;        // of what a request leaves out
  std::optional<uint64_t> seed;    // of a request that has none; nothing: drawn for each
  std::string chat_template;       // Jinja; empty: the model's own
  bool lenient = false;            // fields that are not known are noted, not refused
  std::string template_variables;  // a JSON object, under those of the request; empty: none
  bool parts_reasoning = true;     // reasoning is apart from the answer
  int64_t n_reasoning_max = -1;    // tokens of it; < 0: no limit
  int64_t n_ctx = 0;               // positions of a request
  RequestLimits limits;
  std::string fingerprint;  // of everything that decides about an answer but the request
};

// One HTTP request for answers. Choice i of prompt p is request p * n + i.
struct Asked {
  Draft draft;
  Where where = kChat;
  uint64_t seed = 0;
  std::string id;       // "chatcmpl-..."
  int64_t created = 0;  // seconds since 1970
  std::vector<Request> requests;
  std::vector<std::string> ignored;
  AnswerReader::Options reading;  // of a chat's answers
  bool has_tools = false;         // calls may come
  std::string told = {};          // of a response: the members that tell what was asked
  bool is_chat() const noexcept { return where != kCompletions; }  // a conversation, through the template
};

// One HTTP request for embeddings.
struct AskedEmbeddings {
  Draft draft;
  std::vector<std::vector<TokenId>> texts;
  std::vector<std::string> ignored;
  int64_t n_tokens() const noexcept;
};

// How long a choice, or several, took so far.
struct Timings {
  int64_t n_cached = 0, n_prompt = 0;  // of the prompt: in the cache; read
  double prompt_ms = 0;                // until the first token
  int64_t n_answer = 0;
  double answer_ms = 0;  // from the first token on
  int64_t n_drafted = 0, n_accepted = 0;
  int64_t n_choices = 1;  // whose first tokens took no time
};
Timings timings_of(const RequestFinished& finished) noexcept;
std::string timings_member(const Timings& timings);  // ,"timings":{...}, by llama-server's names

// What came of one choice so far.
struct Choice {
  std::string text, reasoning;
  std::vector<ToolCall> calls;
  bool calls_are_whole = false;
  struct Piece {
    AnswerPiece piece;
    std::vector<TokenLogprobs> logprobs;  // of the tokens that made it certain
  };
  std::vector<Piece> pieces;  // all of these as they came
  std::vector<TokenLogprobs> logprobs;
  int64_t n_reasoning = 0;  // tokens
  RequestFinished finished;
};

// Reads one choice as it comes.
class ChoiceReader {
 public:
  ChoiceReader(const Asked& asked, size_t i_choice);
  std::vector<AnswerPiece> token(const RequestToken& token);  // what became certain, calls with their ids
  std::vector<AnswerPiece> finish(const RequestFinished& finished);
  const Choice& choice() const noexcept { return choice_; }

 private:
  std::vector<AnswerPiece> add(std::vector<AnswerPiece> pieces);

  std::string id_;  // that calls' ids are made of
  std::optional<AnswerReader> reader_;
  std::vector<TokenLogprobs> coming_;  // of tokens whose text is not certain yet
  Choice choice_;
};

class Api {
 public:
  Api(std::shared_ptr<const Model> model, ApiOptions options);

  // ApiError for what cannot be served, before any work on the model. client: whose request it is; salt and weight go
  // with it.
  Asked read(Where where, std::string_view body, const std::string& client, double weight) const;
  std::string answer(const Asked& asked, const std::vector<Choice>& choices) const;
  AskedEmbeddings read_embeddings(std::string_view body) const;
  std::string embeddings_answer(const AskedEmbeddings& asked, const std::vector<std::vector<double>>& vectors) const;

  // A stream, as JSON texts: first the head of each choice, then pieces, each choice's end, and the usage where it was
  // asked for.
  std::string chunk_head(const Asked& asked, size_t i_choice) const;  // empty: there is none
  std::string chunk(const Asked& asked, size_t i_choice, const AnswerPiece& piece,
                    std::span<const TokenLogprobs> logprobs, size_t offset, std::string_view rest = {})
      const;  // offset: bytes of the choice's text before it; rest: further members
  std::string chunk_end(const Asked& asked, size_t i_choice, const Choice& choice) const;
  std::string chunk_usage(const Asked& asked, const std::vector<Choice>& choices) const;

  std::string response_usage(const Choice& choice) const;

  std::string tokenize(std::string_view body) const;
  std::string detokenize(std::string_view body) const;
  std::string apply_template(std::string_view body) const;
  std::string models() const;
  std::string model(std::string_view name) const;  // ApiError(404) for another name
  const ApiOptions& options() const noexcept { return options_; }
  const Model& engine_model() const noexcept { return *model_; }
  std::string template_source() const;
  std::string habits() const;  // members of /props: how calls are written and reasoning is marked

 private:
  boost::json::object checked_body(Where where, std::string_view body, std::vector<std::string>& ignored) const;
  void check_model(const std::string& name) const;
  std::vector<TextPiece> rendered(const std::vector<Message>& messages, const PromptExtras& extras) const;
  std::string variables_of(const boost::json::object& body, std::string_view effort_field) const;
  // form.cpp
  std::shared_ptr<const Constraint> form_of(const FormAsked& asked, bool is_chat) const;
  std::shared_ptr<const Constraint> compiled(const std::string& key,
                                             const std::function<std::shared_ptr<const Constraint>()>& compile) const;
  std::shared_ptr<const TokenTree> token_tree() const;
  std::shared_ptr<const engine::TokensWithMore> tokens_with_more() const;  // of the marks of reasoning
  void hold(Asked& asked, const std::shared_ptr<const Constraint>& form, std::span<const TokenId> prompt,
            GenerateOptions& generate) const;
  // A text, ids, or a list of either, under `name`; n_max lists at most.
  std::vector<std::vector<TokenId>> texts_of(const boost::json::object& body, std::string_view name, int64_t n_max,
                                             std::optional<bool> add_eos) const;
  void check_room(size_t n_prompt, const Draft& draft) const;
  std::string envelope(const Asked& asked, std::string_view object, std::string_view choices,
                       std::string_view rest) const;
  std::string usage(const Asked& asked, const std::vector<Choice>& choices) const;
  std::string legacy_logprobs(std::span<const TokenLogprobs> logprobs, size_t offset) const;
  std::string logprobs_of(const Asked& asked, std::span<const TokenLogprobs> logprobs, size_t offset) const;

  std::shared_ptr<const Model> model_;
  ApiOptions options_;
  std::shared_ptr<const ChatTemplate> chat_template_;  // null: there is none
  std::shared_ptr<const ToolFormat> tool_format_;      // of it
  std::optional<ReasoningMarks> marks_;

  struct Cache {  // several threads read requests
    std::mutex mutex;
    std::shared_ptr<const TokenTree> tokens;
    std::shared_ptr<const engine::TokensWithMore> with_more;
    std::list<std::pair<std::string, std::shared_ptr<const Constraint>>> forms;  // used last first
  };
  std::unique_ptr<Cache> cache_ = std::make_unique<Cache>();
};

// The library's refusals of what a request asks for are the request's fault.
template <class F>
auto as_bad_request(F&& f) {
  try {
    return f();
  } catch (const Error& error) {
    if (error.code == Errc::bad_request) throw ApiError(400, error.what());
    throw;
  }
}

// The OpenAPI 3.1 document: every path, field, limit and error.
std::string openapi_json(std::string_view version, const RequestLimits& limits, boost::json::object told_limits);

// Identifies file, numerics, and what requests that leave it out are given: answers of the same fingerprint are the same
// for the same request with its seed.
std::string fingerprint(const Context& context, const ApiOptions& options);

}  // namespace assay::api
