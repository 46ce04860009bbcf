// Token ids as users write them.
#include "io/id_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>
#include <limits>

#include "assay/error.h"

namespace assay::cli {
namespace {

namespace json = boost::json;

std::vector<TokenId> from_json(std::string_view text) {
  json::error_code failure;
  const json::value all = json::parse(json::string_view(text.data(), text.size()), failure);
  if (failure) throw Error(Errc::bad_request, fmt::format("the ids are no JSON: {}", failure.message()));
  const json::object* object = all.if_object();
  const json::value* list = object ? object->if_contains("ids") : &all;
  if (!list || !list->is_array())
    throw Error(Errc::bad_request, "the ids are no JSON array, nor an object with one under \"ids\"");
  std::vector<TokenId> ids;
  for (const json::value& v : list->get_array()) {
    json::error_code no_id;
    ids.push_back(v.to_number<TokenId>(no_id));
    if (no_id) throw Error(Errc::bad_request, fmt::format("{} is no token id", json::serialize(v)));
  }
  return ids;
}

bool separates(char c) { return c == ',' || c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

}  // namespace

std::vector<TokenId> parse_ids(std::string_view text) {
  const auto begin = std::find_if_not(text.begin(), text.end(), separates);
  if (begin != text.end() && (*begin == '[' || *begin == '{')) return from_json(text);
  std::vector<TokenId> ids;
  for (auto at = begin; at != text.end(); at = std::find_if_not(at, text.end(), separates)) {
    const auto end = std::find_if(at, text.end(), separates);
    const std::string_view word(&*at, static_cast<size_t>(end - at));
    TokenId id = 0;
    const auto parsed = std::from_chars(word.data(), word.data() + word.size(), id);
    if (parsed.ec != std::errc() || parsed.ptr != word.data() + word.size()) {
      throw Error(Errc::bad_request, fmt::format("'{}' is no token id: needs numbers such as 1,2,3", word));
    }
    ids.push_back(id);
    at = end;
  }
  return ids;
}

}  // namespace assay::cli
