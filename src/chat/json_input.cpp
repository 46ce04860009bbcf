// See json_input.h.
#include "chat/json_input.h"

#include <algorithm>
#include <boost/json/basic_parser_impl.hpp>
#include <memory>

#include "assay/error.h"
#include "chat/builtins/numbers.h"
#include "chat/builtins/unicode.h"

namespace assay::chat {

namespace {

namespace json = boost::json;

constexpr size_t kIntegerDigitsMax = 4300;  // Python's own limit

// A role like "user" or "tool_result": some templates build a special token around it, and a word
// alone cannot be one.
bool is_plain_role(std::string_view text) {
  return !text.empty() && text.size() <= 32 && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

// Receives the parser's events and builds values, without a tree of Boost's in between: that one
// would turn large integers into floats.
class Builder {
 public:
  static constexpr size_t max_object_size = static_cast<size_t>(-1);
  static constexpr size_t max_array_size = static_cast<size_t>(-1);
  static constexpr size_t max_key_size = static_cast<size_t>(-1);
  static constexpr size_t max_string_size = static_cast<size_t>(-1);

  Builder(Heap& heap, bool is_messages) : heap_(heap), is_messages_(is_messages) {}
  Value take() { return std::move(result_); }

  bool on_document_begin(json::error_code&) { return true; }
  bool on_document_end(json::error_code&) { return true; }
  bool on_array_begin(json::error_code&) { return open(false); }
  bool on_array_end(size_t, json::error_code&) { return close(); }
  bool on_object_begin(json::error_code&) { return open(true); }
  bool on_object_end(size_t, json::error_code&) { return close(); }
  bool on_string_part(json::string_view s, size_t, json::error_code&) { return gather(s); }
  bool on_string(json::string_view s, size_t, json::error_code&) {
    gather(s);
    const bool is_role = is_messages_ && frames_.size() == 2 && frames_.back()->is_dict && frames_.back()->key_is_role;
    const Value text = make_text(heap_, text_, is_role && is_plain_role(text_));
    text_.clear();
    return put(text);
  }
  bool on_key_part(json::string_view s, size_t, json::error_code&) { return gather(s); }
  bool on_key(json::string_view s, size_t, json::error_code&) {
    gather(s);
    frames_.back()->key = make_text(heap_, text_, false);
    frames_.back()->key_is_role = text_ == "role";
    text_.clear();
    return true;
  }
  bool on_number_part(json::string_view s, json::error_code&) { return gather(s); }
  bool on_int64(int64_t number, json::string_view, json::error_code&) {
    text_.clear();
    return put(Value::integer(number));
  }
  bool on_uint64(uint64_t, json::string_view s, json::error_code&) { return big(s); }
  bool on_double(double, json::string_view s, json::error_code&) {
    const bool whole =
        text_.find_first_of(".eE") == std::string::npos && s.find_first_of(".eE") == json::string_view::npos;
    if (whole) return big(s);
    gather(s);
    const double number = parse_real(text_);
    text_.clear();
    return put(Value::real(number));
  }
  bool on_bool(bool b, json::error_code&) { return put(Value::boolean(b)); }
  bool on_null(json::error_code&) { return put(Value()); }
  bool on_comment_part(json::string_view, json::error_code&) { return true; }
  bool on_comment(json::string_view, json::error_code&) { return true; }

 private:
  struct Frame {
    Frame(Heap& heap, bool dict) : is_dict(dict), list(heap), pairs(heap) {}
    bool is_dict;
    bool key_is_role = false;
    ListBuilder list;
    DictBuilder pairs;
    Value key;
  };

  bool gather(json::string_view s) {
    heap_.need(static_cast<int64_t>(text_.size() + s.size()));
    text_.append(s.data(), s.size());
    return true;
  }
  bool open(bool dict) {
    frames_.push_back(std::make_unique<Frame>(heap_, dict));
    return true;
  }
  bool close() {
    const std::unique_ptr<Frame> frame = std::move(frames_.back());
    frames_.pop_back();
    return put(frame->is_dict ? frame->pairs.take() : frame->list.take(Kind::list));
  }
  bool put(Value value) {
    heap_.step();
    if (frames_.empty())
      result_ = std::move(value);
    else if (frames_.back()->is_dict)
      frames_.back()->pairs.push(std::move(frames_.back()->key), std::move(value));
    else
      frames_.back()->list.push(std::move(value));
    return true;
  }
  bool big(json::string_view s) {
    gather(s);
    if (text_.size() > kIntegerDigitsMax)
      fail("an integer of more than " + std::to_string(kIntegerDigitsMax) + " digits");
    const Value digits = make_text(heap_, text_, true);
    text_.clear();
    return put(Value(Kind::big, digits.object()));
  }

  Heap& heap_;
  bool is_messages_;
  std::vector<std::unique_ptr<Frame>> frames_;
  std::string text_;
  Value result_;
};

}  // namespace

Value parse_json(Heap& heap, std::string_view text, const char* what, bool is_messages) {
  json::parse_options options;
  options.max_depth = static_cast<size_t>(heap.limits().depth_max);
  json::basic_parser<Builder> parser(options, heap, is_messages);
  json::error_code ec;
  const size_t n = parser.write_some(false, text.data(), text.size(), ec);
  if (!ec && n < text.size()) ec = json::error::extra_data;
  if (ec) {
    std::string reason = ec == json::error::too_deep
                             ? "nested deeper than " + std::to_string(heap.limits().depth_max) + " (limit depth_max)"
                             : ec.message();
    fail(std::string(what) + ": not valid JSON at byte " + std::to_string(n) + ": " + reason);
  }
  return parser.handler().take();
}

void define_json(Heap& heap, const TemplateInput& input, const Define& define) {
  const Value messages = parse_json(heap, input.messages_json, "messages", true);
  if (!messages.is(Kind::list)) fail("messages: an array is needed");
  size_t i = 0;
  for (const Value& message : messages.as<Seq>().items) {
    if (!message.is(Kind::dict)) fail("messages[" + std::to_string(i) + "]: an object is needed");
    ++i;
  }
  define("messages", messages);
  Value tools;
  if (!input.tools_json.empty()) {
    tools = parse_json(heap, input.tools_json, "tools");
    if (!tools.is(Kind::list) && !tools.is(Kind::none)) fail("tools: an array is needed");
  }
  define("tools", tools);
  define("add_generation_prompt", Value::boolean(input.add_generation_prompt));
  if (input.extra_json.empty()) return;
  const Value extra = parse_json(heap, input.extra_json, "extra");
  if (!extra.is(Kind::dict)) fail("extra: an object is needed");
  for (const auto& [key, value] : extra.as<Dict>().items) {
    const std::string& name = bytes_of(key);
    if (name == "messages" || name == "tools" || name == "add_generation_prompt")
      fail("extra: '" + name + "' is given already");
    define(name, value);
  }
}

}  // namespace assay::chat
