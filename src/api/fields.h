// The table of fields: every member that the body of a request may have, with its type, its range, what it stands for
// when it is left out, where it is allowed and what it does. Parsing, refusal and the OpenAPI document are read off
// this one table.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "assay/generate.h"
#include "assay/server.h"

namespace assay::api {

enum Where : unsigned {
  kChat = 1,
  kCompletions = 2,
  kTokenize = 4,
  kDetokenize = 8,
  kTemplate = 16,
  kEmbeddings = 32,
  kResponses = 64
};
enum Type : unsigned { kBoolean = 1, kInteger = 2, kNumber = 4, kString = 8, kArray = 16, kObject = 32 };

// What the fields of a body ask for. Fields without a line here are read where they are used: prompts and messages.
struct Draft {
  GenerateOptions generate;  // begins as the server's defaults
  std::optional<uint64_t> seed;
  std::optional<int64_t> max_tokens;
  std::string_view max_tokens_field;  // that said so
  std::string model, cache_salt, user;
  bool stream = false, include_usage = false;
  bool logprobs = false, base64 = false, timings = false;
  int64_t n = 1, n_top_logprobs = 0;
};

struct Field {
  std::string_view path;  // "messages[].content"; a last part "*" is any name
  unsigned where = 0;
  unsigned types = 0;
  double least = 0, most = 0;               // of a number; both 0: any
  int64_t size_least = 0, size_most = 0;    // bytes of a string, items of an array, members of an object; most 0: any
  int64_t RequestLimits::*limit = nullptr;  // that most, or size_most, is; null: it is the same for every server
  std::string_view flag = {};               // that raises this limit
  std::string_view values = {};             // of a string: the allowed ones, between bars; empty: any
  bool required = false;
  std::string_view standard = {};  // what is meant where it is left out or null
  std::string_view about = {};
  std::string_view refused = {};  // why it is not served; then it may only be null or one of `neutral`
  std::string_view neutral = {};  // JSON texts between bars
  bool is_free = false;           // an object or array whose inside is read elsewhere, and may be anything here
  void (*apply)(Draft&, const boost::json::value&) = nullptr;
};

std::span<const Field> fields();
double most_of(const Field& field, const RequestLimits& limits) noexcept;
int64_t size_most_of(const Field& field, const RequestLimits& limits) noexcept;

// Whether every member, however deep, is in the table, of its type and in its range; ApiError(400) that names it with
// its path. lenient: members that are not in the table are taken out of the body and noted in `ignored`.
void check_fields(boost::json::object& body, Where where, bool lenient, std::vector<std::string>& ignored,
                  const RequestLimits& limits = {});

// After check_fields.
Draft read_draft(const boost::json::object& body, Where where, const GenerateOptions& defaults);

double number_of(const boost::json::value& value);    // an integer or a double
int64_t integer_of(const boost::json::value& value);  // also of a double without a fraction

}  // namespace assay::api
