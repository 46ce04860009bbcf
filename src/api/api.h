// OpenAI's requests and answers as JSON, over a model: what is asked becomes requests of the scheduler, and what comes of them
// becomes text. Knows no sockets.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/fields.h"
#include "assay/scheduler.h"
#include "assay/session.h"

namespace assay::api {

struct ApiOptions {
  std::vector<std::string> names;      // the model is served under; the first one stands in answers
  GenerateOptions defaults;            // of what a request leaves out
  std::optional<uint64_t> seed;        // of a request that has none; nothing: drawn for each
  std::string chat_template;           // Jinja; empty: the model's own
  bool lenient = false;                // fields that are not known are noted, not refused
  int64_t n_ctx = 0;                   // positions of a request
  std::string fingerprint;             // of everything that decides about an answer but the request
};

// One HTTP request for answers. Choice i of prompt p is request p * n + i.
struct Asked {
  Draft draft;
  bool is_chat = false;
  uint64_t seed = 0;
  std::string id;         // "chatcmpl-..."
  int64_t created = 0;    // seconds since 1970
  std::vector<Request> requests;
  std::vector<std::string> ignored;
};

// One HTTP request for embeddings.
struct AskedEmbeddings {
  Draft draft;
  std::vector<std::vector<TokenId>> texts;
  std::vector<std::string> ignored;
  int64_t n_tokens() const noexcept;
};

// What came of one choice so far.
struct Choice {
  std::string text;
  std::vector<TokenLogprobs> logprobs;
  RequestFinished finished;
};

class Api {
 public:
  Api(std::shared_ptr<const Model> model, ApiOptions options);

  // ApiError for what cannot be served, before any work on the model. client: whose request it is; salt and weight go with it.
  Asked read(Where where, std::string_view body, const std::string& client, double weight) const;
  std::string answer(const Asked& asked, const std::vector<Choice>& choices) const;
  AskedEmbeddings read_embeddings(std::string_view body) const;
  std::string embeddings_answer(const AskedEmbeddings& asked, const std::vector<std::vector<double>>& vectors) const;

  // A stream, as JSON texts: first the head of each choice, then pieces, each choice's end, and the usage where it was asked for.
  std::string chunk_head(const Asked& asked, size_t i_choice) const;  // empty: there is none
  std::string chunk(const Asked& asked, size_t i_choice, std::string_view text, std::span<const TokenLogprobs> logprobs,
                    size_t offset) const;  // offset: bytes of the choice's text before it
  std::string chunk_end(const Asked& asked, size_t i_choice, const RequestFinished& finished) const;
  std::string chunk_usage(const Asked& asked, const std::vector<Choice>& choices) const;

  std::string tokenize(std::string_view body) const;
  std::string detokenize(std::string_view body) const;
  std::string apply_template(std::string_view body) const;
  std::string models() const;
  std::string model(std::string_view name) const;  // ApiError(404) for another name
  const ApiOptions& options() const noexcept { return options_; }
  const Model& engine_model() const noexcept { return *model_; }
  std::string template_source() const;

 private:
  boost::json::object checked_body(Where where, std::string_view body, std::vector<std::string>& ignored) const;
  void check_model(const std::string& name) const;
  std::vector<Message> messages_of(const boost::json::object& body) const;
  // A text, ids, or a list of either, under `name`; n_max lists at most.
  std::vector<std::vector<TokenId>> texts_of(const boost::json::object& body, std::string_view name, int64_t n_max, std::optional<bool> add_eos) const;
  void check_room(size_t n_prompt, const Draft& draft) const;
  std::string envelope(const Asked& asked, std::string_view object, std::string_view choices, std::string_view rest) const;
  std::string usage(const Asked& asked, const std::vector<Choice>& choices) const;
  std::string legacy_logprobs(std::span<const TokenLogprobs> logprobs, size_t offset) const;
  std::string logprobs_of(const Asked& asked, std::span<const TokenLogprobs> logprobs, size_t offset) const;

  std::shared_ptr<const Model> model_;
  ApiOptions options_;
  std::shared_ptr<const ChatTemplate> chat_template_;  // null: there is none
};

// The OpenAPI 3.1 document: every path, field, limit and error.
std::string openapi_json(std::string_view version);

// Identifies file and numerics: answers of the same fingerprint are the same for the same request.
std::string fingerprint(const Context& context);

}  // namespace assay::api
