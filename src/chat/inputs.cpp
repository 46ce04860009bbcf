// See inputs.h.
#include "chat/inputs.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "base/utf8.h"

namespace assay::chat {

namespace {

// A role like "user" or "tool_result": some templates build a special token around it, and a word
// alone cannot be one.
bool is_plain_role(std::string_view text) {
  return !text.empty() && text.size() <= 32 && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

// Copies one of the inputs to the heap; no deeper than depth_max, which bounds the recursion.
class Copier {
 public:
  Copier(Heap& heap, const char* what) : heap_(heap), what_(what) {}

  Value text(std::string_view bytes, bool own = false) const {
    if (!base::is_utf8(bytes)) fail(std::string(what_) + ": a text is not valid UTF-8");
    return make_text(heap_, bytes, own);
  }

  Value value(const TemplateValue& from, int depth) const {
    if (const auto* items = from.list()) return list(*items, depth);
    if (const auto* items = from.dict()) return dict(*items, depth, false);
    heap_.step();
    if (const auto* digits = std::get_if<TemplateValue::Digits>(&from.held))
      return Value(Kind::big, make_text(heap_, digits->text, true).object());
    if (const auto* bytes = std::get_if<std::string>(&from.held)) return text(*bytes);
    if (const auto* b = std::get_if<bool>(&from.held)) return Value::boolean(*b);
    if (const auto* number = std::get_if<int64_t>(&from.held)) return Value::integer(*number);
    if (const auto* number = std::get_if<double>(&from.held)) return Value::real(*number);
    return Value();
  }

  Value list(const TemplateValue::List& from, int depth) const {
    enter(depth);
    ListBuilder to(heap_);
    for (const TemplateValue& item : from) to.push(value(item, depth + 1));
    return to.take(Kind::list);
  }

  Value dict(const TemplateValue::Dict& from, int depth, bool is_message) const {
    enter(depth);
    DictBuilder to(heap_);
    for (const auto& [key, item] : from) {
      const auto* bytes = is_message && key == "role" ? std::get_if<std::string>(&item.held) : nullptr;
      if (bytes == nullptr || !is_plain_role(*bytes)) {
        to.push(text(key), value(item, depth + 1));
        continue;
      }
      heap_.step();
      to.push(text(key), text(*bytes, true));
    }
    return to.take();
  }

  Value messages(const TemplateValue::List& from) const {
    enter(1);
    ListBuilder to(heap_);
    for (size_t i = 0; i < from.size(); ++i) {
      const TemplateValue::Dict* message = from[i].dict();
      if (message == nullptr) fail("messages[" + std::to_string(i) + "]: an object is needed");
      to.push(dict(*message, 2, true));
    }
    return to.take(Kind::list);
  }

 private:
  void enter(int depth) const {
    const int max = heap_.limits().depth_max;
    if (depth > max) fail(std::string(what_) + ": nested deeper than " + std::to_string(max) + " (limit depth_max)");
    heap_.step();
  }

  Heap& heap_;
  const char* what_;
};

}  // namespace

void define_values(Heap& heap, const TemplateInput& input, const Define& define) {
  define("messages", Copier(heap, "messages").messages(input.messages));
  define("tools", input.tools ? Copier(heap, "tools").list(*input.tools, 1) : Value());
  define("add_generation_prompt", Value::boolean(input.add_generation_prompt));
  const Copier extra(heap, "extra");
  const Value variables = extra.dict(input.extra, 1, false);
  for (const auto& [key, value] : variables.as<Dict>().items) {
    const std::string& name = bytes_of(key);
    if (name == "messages" || name == "tools" || name == "add_generation_prompt")
      fail("extra: '" + name + "' is given already");
    define(name, value);
  }
}

}  // namespace assay::chat
