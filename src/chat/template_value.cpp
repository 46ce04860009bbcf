// TemplateValue (assay/chat.h): JSON text from outside becomes values here.
#include <boost/json/basic_parser_impl.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "assay/chat.h"
#include "assay/error.h"
#include "chat/builtins/numbers.h"
#include "chat/value.h"

namespace assay {

namespace json = boost::json;

namespace {

constexpr size_t kIntegerDigitsMax = 4300;  // Python's own limit

[[noreturn]] void refuse(std::string_view what, const std::string& found) {
  throw Error(Errc::bad_request, std::string(what) + ": " + found);
}

// Receives the parser's events and builds values, without a tree of Boost's in between: that one
// would turn large integers into floats.
class Builder {
 public:
  static constexpr size_t max_object_size = static_cast<size_t>(-1);
  static constexpr size_t max_array_size = static_cast<size_t>(-1);
  static constexpr size_t max_key_size = static_cast<size_t>(-1);
  static constexpr size_t max_string_size = static_cast<size_t>(-1);

  Builder(std::string_view what, int64_t bytes_max) : what_(what), bytes_max_(bytes_max) {}
  TemplateValue take() { return std::move(result_); }

  bool on_document_begin(json::error_code&) { return true; }
  bool on_document_end(json::error_code&) { return true; }
  bool on_array_begin(json::error_code&) { return open(TemplateValue::List()); }
  bool on_array_end(size_t, json::error_code&) { return close(); }
  bool on_object_begin(json::error_code&) { return open(TemplateValue::Dict()); }
  bool on_object_end(size_t, json::error_code&) { return close(); }
  bool on_string_part(json::string_view s, size_t, json::error_code&) { return gather(s); }
  bool on_string(json::string_view s, size_t, json::error_code&) {
    gather(s);
    charge(text_.size());
    return put(std::exchange(text_, {}));
  }
  bool on_key_part(json::string_view s, size_t, json::error_code&) { return gather(s); }
  bool on_key(json::string_view s, size_t, json::error_code&) {
    gather(s);
    charge(text_.size());
    frames_.back().key = std::exchange(text_, {});
    return true;
  }
  bool on_number_part(json::string_view s, json::error_code&) { return gather(s); }
  bool on_int64(int64_t number, json::string_view, json::error_code&) {
    text_.clear();
    return put(number);
  }
  bool on_uint64(uint64_t, json::string_view s, json::error_code&) { return big(s); }
  bool on_double(double, json::string_view s, json::error_code&) {
    gather(s);
    if (text_.find_first_of(".eE") == std::string::npos) return big({});
    const double number = chat::parse_real(text_);
    text_.clear();
    return put(number);
  }
  bool on_bool(bool b, json::error_code&) { return put(b); }
  bool on_null(json::error_code&) { return put(nullptr); }
  bool on_comment_part(json::string_view, json::error_code&) { return true; }
  bool on_comment(json::string_view, json::error_code&) { return true; }

 private:
  struct Frame {
    TemplateValue container;
    std::string key = {};
  };

  // As a template's heap counts, or less: what passes there passes here.
  void charge(size_t bytes) {
    bytes_ += static_cast<int64_t>(bytes);
    if (bytes_ > bytes_max_)
      refuse(what_, "more than " + std::to_string(bytes_max_) + " bytes of values (limit value_bytes_max)");
  }
  bool gather(json::string_view s) {
    text_.append(s.data(), s.size());
    return true;
  }
  bool open(TemplateValue container) {
    frames_.push_back({std::move(container)});
    return true;
  }
  bool close() {
    TemplateValue container = std::move(frames_.back().container);
    frames_.pop_back();
    return put(std::move(container));
  }
  bool put(TemplateValue value) {
    charge(sizeof(chat::Value));
    if (frames_.empty()) {
      result_ = std::move(value);
    } else if (auto* dict = std::get_if<TemplateValue::Dict>(&frames_.back().container.held)) {
      dict->emplace_back(std::move(frames_.back().key), std::move(value));
    } else {
      std::get<TemplateValue::List>(frames_.back().container.held).push_back(std::move(value));
    }
    return true;
  }
  bool big(json::string_view s) {
    gather(s);
    if (text_.size() > kIntegerDigitsMax)
      refuse(what_, "an integer of more than " + std::to_string(kIntegerDigitsMax) + " digits");
    return put(TemplateValue::Digits{std::exchange(text_, {})});
  }

  std::string_view what_;
  int64_t bytes_max_;
  int64_t bytes_ = 0;
  std::vector<Frame> frames_;
  std::string text_;
  TemplateValue result_;
};

}  // namespace

const TemplateValue* TemplateValue::find(std::string_view key) const noexcept {
  const TemplateValue* found = nullptr;
  if (const Dict* items = dict()) {
    for (const auto& [name, value] : *items)
      if (name == key) found = &value;
  }
  return found;
}

TemplateValue TemplateValue::from_json(std::string_view text, std::string_view what, const TemplateLimits& limits) {
  json::parse_options options;
  options.max_depth = static_cast<size_t>(limits.depth_max);
  json::basic_parser<Builder> parser(options, what, limits.value_bytes_max);
  json::error_code ec;
  const size_t n = parser.write_some(false, text.data(), text.size(), ec);
  if (!ec && n < text.size()) ec = json::error::extra_data;
  if (ec) {
    const std::string reason = ec == json::error::too_deep
                                   ? "nested deeper than " + std::to_string(limits.depth_max) + " (limit depth_max)"
                                   : ec.message();
    refuse(what, "not valid JSON at byte " + std::to_string(n) + ": " + reason);
  }
  return parser.handler().take();
}

TemplateValue::List template_list(std::string_view json, std::string_view what, const TemplateLimits& limits) {
  TemplateValue value = TemplateValue::from_json(json, what, limits);
  auto* list = std::get_if<TemplateValue::List>(&value.held);
  if (list == nullptr) refuse(what, "an array is needed");
  return std::move(*list);
}

TemplateValue::Dict template_dict(std::string_view json, std::string_view what, const TemplateLimits& limits) {
  TemplateValue value = TemplateValue::from_json(json, what, limits);
  auto* dict = std::get_if<TemplateValue::Dict>(&value.held);
  if (dict == nullptr) refuse(what, "an object is needed");
  return std::move(*dict);
}

}  // namespace assay
