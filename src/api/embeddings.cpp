// Embeddings: bodies to texts, and vectors to OpenAI's JSON.
#include <fmt/format.h>

#include <cmath>

#include "api/api.h"
#include "api/error.h"
#include "api/json_text.h"
#include "assay/error.h"
#include "base/base64.h"

namespace assay::api {
namespace {

constexpr int64_t kTextsMax = 2048;

}  // namespace

int64_t AskedEmbeddings::n_tokens() const noexcept {
  int64_t n = 0;
  for (const std::vector<TokenId>& text : texts) n += static_cast<int64_t>(text.size());
  return n;
}

AskedEmbeddings Api::read_embeddings(std::string_view text) const {
  AskedEmbeddings asked;
  const boost::json::object body = checked_body(kEmbeddings, text, asked.ignored);
  asked.draft = read_draft(body, kEmbeddings, {});
  check_model(asked.draft.model);
  try {
    asked.texts = texts_of(body, "input", kTextsMax, {});
  } catch (const Error& error) {
    if (error.code == Errc::bad_request) throw ApiError(400, error.what(), "input", "invalid_value");
    throw;
  }
  for (size_t i = 0; i < asked.texts.size(); ++i) {
    const auto n = static_cast<int64_t>(asked.texts[i].size());
    const std::string field =
        body.at("input").is_array() && asked.texts.size() > 1 ? fmt::format("input[{}]", i) : "input";
    if (n == 0)
      throw ApiError(400, fmt::format("{}: needs at least one token, found none", field), field, "invalid_value");
    if (n > options_.n_ctx) {
      throw ApiError(
          400,
          fmt::format("{}: has {} tokens, the context holds {}: -c of the server raises it", field, n, options_.n_ctx),
          field, "context_length_exceeded");
    }
  }
  return asked;
}

std::string Api::embeddings_answer(const AskedEmbeddings& asked,
                                   const std::vector<std::vector<double>>& vectors) const {
  std::string list;
  for (size_t i = 0; i < vectors.size(); ++i) {
    std::vector<float> values;
    for (const double x : vectors[i]) {
      if (!std::isfinite(x))
        throw ApiError(500, fmt::format("the embedding of text {} holds {}, which is no number", i, x));
      values.push_back(static_cast<float>(x));
    }
    const std::string vector = asked.draft.base64 ? json_quoted(base::base64(std::as_bytes(std::span(values))))
                                                  : fmt::format("[{}]", fmt::join(values, ","));
    list += fmt::format(R"({}{{"object":"embedding","index":{},"embedding":{}}})", i > 0 ? "," : "", i, vector);
  }
  const int64_t n = asked.n_tokens();
  return fmt::format(R"({{"object":"list","data":[{}],"model":{},"usage":{{"prompt_tokens":{},"total_tokens":{}}}}})",
                     list, json_quoted(options_.names.front()), n, n);
}

}  // namespace assay::api
