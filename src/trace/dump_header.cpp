// See dump_header.h.
#include "trace/dump_header.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <cmath>
#include <cstdint>
#include <utility>

#include "assay/error.h"
#include "base/utf8.h"

namespace assay::trace {
namespace {

namespace json = boost::json;

constexpr std::pair<ops::CacheType, std::string_view> kCacheTypes[] = {
    {ops::CacheType::f32, "f32"}, {ops::CacheType::f16, "f16"}, {ops::CacheType::q8_0, "q8_0"}};

std::string_view cache_name(ops::CacheType type) {
  for (const auto& [known, name] : kCacheTypes) {
    if (known == type) return name;
  }
  return "f16";
}

[[noreturn]] void refuse(std::string_view key, std::string_view needed, const json::value& found) {
  std::string text = json::serialize(found);
  if (text.size() > 60) text = base::repaired_utf8(text.substr(0, 60)) + "...";
  throw Error(Errc::bad_file, fmt::format("header: {}: needs {}, found {}", key, needed, text));
}

// The members of one object of the header; an absent one is the default, or an Error where it has none.
class Members {
 public:
  explicit Members(const json::object& object) : object_(object) {}

  const json::value& required(std::string_view key) const {
    const json::value* value = object_.if_contains(key);
    if (value == nullptr) throw Error(Errc::bad_file, fmt::format("header: needs the key \"{}\"", key));
    return *value;
  }
  std::string text(std::string_view key, bool needed) const {
    const json::value* value = needed ? &required(key) : object_.if_contains(key);
    if (value == nullptr) return {};
    if (!value->is_string()) refuse(key, "a text", *value);
    return std::string(value->get_string());
  }
  int64_t count(std::string_view key, int64_t smallest, int64_t largest) const {
    return to_count(key, required(key), smallest, largest);
  }
  int64_t count_or(std::string_view key, int64_t otherwise, int64_t smallest, int64_t largest) const {
    const json::value* value = object_.if_contains(key);
    return value == nullptr ? otherwise : to_count(key, *value, smallest, largest);
  }
  bool flag(std::string_view key) const {
    const json::value* value = object_.if_contains(key);
    if (value == nullptr) return false;
    if (!value->is_bool()) refuse(key, "true or false", *value);
    return value->get_bool();
  }
  ops::CacheType cache(std::string_view key) const {
    const json::value& value = required(key);
    for (const auto& [type, name] : kCacheTypes) {
      if (value.is_string() && value.get_string() == name) return type;
    }
    refuse(key, "\"f32\", \"f16\" or \"q8_0\"", value);
  }

 private:
  static int64_t to_count(std::string_view key, const json::value& value, int64_t smallest, int64_t largest) {
    if (!value.is_int64() || value.get_int64() < smallest || value.get_int64() > largest) {
      refuse(key, fmt::format("an integer from {} to {}", smallest, largest), value);
    }
    return value.get_int64();
  }
  const json::object& object_;
};

Declared parse_declared(const json::value& value) {
  if (!value.is_object()) refuse("declared", "an object", value);
  const Members members(value.get_object());
  Declared declared;
  declared.unit_roundoff = std::ldexp(1.0, static_cast<int>(members.count("unit_roundoff_log2", -64, -1)));
  declared.activation_bits = static_cast<int>(members.count("activation_bits", 0, 15));
  if (declared.activation_bits != 0 && declared.activation_bits != 8 && declared.activation_bits != 15) {
    refuse("activation_bits", "0, 8 or 15", members.required("activation_bits"));
  }
  declared.activation_block = members.count_or("activation_block", 0, 0, 256);
  if (declared.activation_block != 0 && declared.activation_block != 32 && declared.activation_block != 256) {
    refuse("activation_block", "0, 32 or 256", members.required("activation_block"));
  }
  declared.own_sums = members.flag("own_sums");
  declared.activation_scale_f16 = members.flag("activation_scale_f16");
  declared.activations_f16 = members.flag("activations_f16");
  declared.as_llama_cpp = members.flag("as_llama_cpp");
  declared.cache_k = members.cache("cache_k");
  declared.cache_v = members.cache("cache_v");
  declared.gelu_table_f16 = members.flag("gelu_table_f16");
  declared.rope_angle_f32 = members.flag("rope_angle_f32");
  return declared;
}

}  // namespace

std::string header_to_json(const DumpHeader& header) {
  const Declared& d = header.declared;
  const json::object object = {{"engine", base::repaired_utf8(header.engine)},
                               {"model", base::repaired_utf8(header.model)},
                               {"architecture", base::repaired_utf8(header.architecture)},
                               {"text", base::repaired_utf8(header.text)},
                               {"n_layers", header.n_layers},
                               {"d_model", header.d_model},
                               {"vocab_size", header.vocab_size},
                               {"declared",
                                {{"unit_roundoff_log2", static_cast<int64_t>(std::llround(std::log2(d.unit_roundoff)))},
                                 {"own_sums", d.own_sums},
                                 {"activation_bits", d.activation_bits},
                                 {"activation_block", d.activation_block},
                                 {"activation_scale_f16", d.activation_scale_f16},
                                 {"activations_f16", d.activations_f16},
                                 {"as_llama_cpp", d.as_llama_cpp},
                                 {"cache_k", cache_name(d.cache_k)},
                                 {"cache_v", cache_name(d.cache_v)},
                                 {"gelu_table_f16", d.gelu_table_f16},
                                 {"rope_angle_f32", d.rope_angle_f32}}}};
  return json::serialize(object);
}

DumpHeader parse_header(std::string_view text) {
  json::error_code error;
  const json::value value = json::parse(text, error);
  if (error) throw Error(Errc::bad_file, fmt::format("header: needs JSON in UTF-8: {}", error.message()));
  if (!value.is_object()) refuse("the whole", "a JSON object", value);
  const Members members(value.get_object());
  DumpHeader header;
  header.engine = members.text("engine", true);
  header.model = members.text("model", false);
  header.architecture = members.text("architecture", true);
  header.text = members.text("text", false);
  header.n_layers = members.count("n_layers", 1, 1 << 16);
  header.d_model = members.count("d_model", 1, 1 << 24);
  header.vocab_size = members.count("vocab_size", 1, 1 << 24);
  header.declared = parse_declared(members.required("declared"));
  return header;
}

}  // namespace assay::trace
