// What an output file holds already (assay/batch.h).
#include <fmt/format.h>

#include <boost/json.hpp>

#include "assay/batch.h"
#include "assay/error.h"

namespace assay {
namespace {

namespace json = boost::json;

// The key and whether it is an answer; nothing where it is no line of ours.
std::optional<std::pair<std::string, bool>> key_of(const json::value& v) {
  const json::object* object = v.if_object();
  if (!object) return std::nullopt;
  const json::value* error = object->if_contains("error");
  if (const json::value* custom_id = object->if_contains("custom_id")) {
    if (!custom_id->is_string() || !error || !object->contains("response")) return std::nullopt;
    return std::pair(std::string("custom_id ").append(json::serialize(*custom_id)), error->is_null());
  }
  const json::value* id = object->if_contains("id");
  if (!id || (!error && !object->contains("text"))) return std::nullopt;
  return std::pair(std::string("id ").append(json::serialize(*id)), error == nullptr);
}

}  // namespace

BatchOutput read_batch_output(std::string_view text) {
  BatchOutput output;
  int64_t number = 0;
  for (size_t begin = 0, end = 0; (end = text.find('\n', begin)) != std::string_view::npos; begin = end + 1) {
    ++number;
    const std::string_view line = text.substr(begin, end - begin);
    json::error_code failure;
    const json::value v = json::parse(json::string_view(line.data(), line.size()), failure);
    const auto key = failure ? std::nullopt : key_of(v);
    if (!key)
      throw Error(Errc::bad_request,
                  fmt::format("line {} of the output is no answer of a batch: it is another file", number));
    output.keys.insert(key->first);
    output.n_failed += key->second ? 0 : 1;
    output.n_bytes_whole = static_cast<int64_t>(end + 1);
  }
  return output;
}

}  // namespace assay
