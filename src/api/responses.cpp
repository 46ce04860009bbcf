// See responses.h.
#include "api/responses.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "api/error.h"
#include "api/form.h"
#include "api/json_text.h"

namespace assay::api {

namespace json = boost::json;

namespace {

struct ItemType {
  std::string_view name;
  std::vector<std::string_view> needs, may;
};

const ItemType& item_type(std::string_view name) {
  static const std::vector<ItemType> kTypes = {
      {"message", {"role", "content"}, {"id", "status"}},
      {"function_call", {"call_id", "name", "arguments"}, {"id", "status"}},
      {"function_call_output", {"call_id", "output"}, {"id", "status"}},
      {"reasoning", {}, {"content", "summary", "id", "status"}},
  };
  return *std::find_if(kTypes.begin(), kTypes.end(), [&](const ItemType& t) { return t.name == name; });
}

// What the table of fields cannot say: which of the members belong to which type.
void check_item(const json::object& item, const ItemType& type, const std::string& at) {
  const auto stands_in = [](const std::vector<std::string_view>& list, std::string_view name) {
    return std::find(list.begin(), list.end(), name) != list.end();
  };
  for (const auto& [key, value] : item) {
    const std::string_view name(key.data(), key.size());
    if (value.is_null() || name == "type" || stands_in(type.needs, name) || stands_in(type.may, name)) continue;
    const std::string field = fmt::format("{}.{}", at, name);
    throw ApiError(400, fmt::format("{}: an item of type {} has no such member", field, type.name), field,
                   "unknown_parameter");
  }
  for (const std::string_view name : type.needs) {
    if (member(item, std::string(name).c_str()) != nullptr) continue;
    const std::string field = fmt::format("{}.{}", at, name);
    throw ApiError(400, fmt::format("{} is missing: an item of type {} needs it", field, type.name), field,
                   "missing_required_parameter");
  }
}

// A text, or parts that are joined; of parts only those of a type that belongs there.
std::string joined_text(const json::object& item, const char* name, std::string_view types, const std::string& at) {
  const json::value* content = member(item, name);
  if (content == nullptr) return {};
  if (content->is_string()) return std::string(content->get_string());
  std::string text;
  size_t i = 0;
  for (const json::value& part : content->get_array()) {
    const json::object& p = part.get_object();
    const std::string type = text_member(p, "type");
    if (types.find(type) == std::string_view::npos) {
      const std::string field = fmt::format("{}.{}[{}].type", at, name, i);
      throw ApiError(400, fmt::format("{}: needs {} here, found {}", field, types, type), field, "invalid_value");
    }
    text += text_member(p, "text");
    ++i;
  }
  return text;
}

class Conversation {
 public:
  void add(const json::object& item, const std::string& at) {
    const std::string named = text_member(item, "type");
    const ItemType& type = item_type(named.empty() ? "message" : named);
    check_item(item, type, at);
    if (type.name == "message") {
      add_message(item, at);
    } else if (type.name == "function_call") {
      add_call(item);
    } else if (type.name == "function_call_output") {
      add_output(item, at);
    } else {
      const std::string text = joined_text(item, "content", "reasoning_text", at);
      reasoning_ += text.empty() ? joined_text(item, "summary", "summary_text", at) : text;
    }
  }
  std::vector<Message> take() && { return std::move(messages_); }

 private:
  // The answer that is being put together: items of one turn are one message.
  Message& answer() {
    if (!in_answer_) {
      messages_.emplace_back();
      messages_.back().role = "assistant";
      messages_.back().reasoning_content = std::exchange(reasoning_, {});
      in_answer_ = true;
    }
    return messages_.back();
  }
  void add_message(const json::object& item, const std::string& at) {
    const std::string role = text_member(item, "role");
    const std::string text = joined_text(item, "content", "input_text or output_text", at);
    if (role == "assistant") {
      if (in_answer_ && !messages_.back().content.empty()) in_answer_ = false;  // another one
      answer().content += text;
      return;
    }
    in_answer_ = false;
    messages_.emplace_back();
    messages_.back().role = role == "developer" ? "system" : role;
    messages_.back().content = text;
  }
  void add_call(const json::object& item) {
    const std::string id = text_member(item, "call_id"), name = text_member(item, "name");
    answer().tool_calls.push_back({id, name, text_member(item, "arguments")});
    names_.emplace_back(id, name);
  }
  void add_output(const json::object& item, const std::string& at) {
    const std::string id = text_member(item, "call_id");
    const auto call = std::find_if(names_.rbegin(), names_.rend(), [&](const auto& n) { return n.first == id; });
    if (call == names_.rend()) {
      throw ApiError(400, fmt::format("{}.call_id: no function_call before it has the id {}", at, json_quoted(id)),
                     at + ".call_id", "invalid_value");
    }
    in_answer_ = false;
    messages_.emplace_back();
    messages_.back().role = "tool";
    messages_.back().content = joined_text(item, "output", "input_text or output_text", at);
    messages_.back().tool_call_id = id;
    messages_.back().name = call->second;
  }

  std::vector<Message> messages_;
  std::vector<std::pair<std::string, std::string>> names_;  // of calls, by their ids
  std::string reasoning_;                                   // of the answer that comes next
  bool in_answer_ = false;
};

json::value or_else(const json::object& body, const char* name, json::value standard) {
  const json::value* v = member(body, name);
  return v == nullptr ? std::move(standard) : *v;
}

}  // namespace

std::vector<Message> response_messages(const json::object& body) {
  Conversation conversation;
  if (const std::string text = text_member(body, "instructions"); !text.empty()) {
    conversation.add({{"role", "system"}, {"content", text}}, "instructions");
  }
  const json::value& input = body.at("input");
  if (input.is_string()) {
    conversation.add({{"role", "user"}, {"content", input}}, "input");
  } else {
    size_t i = 0;
    for (const json::value& item : input.get_array()) {
      conversation.add(item.get_object(), fmt::format("input[{}]", i++));
    }
  }
  return std::move(conversation).take();
}

void read_included(const json::object& body, Draft& draft) {
  const json::value* list = member(body, "include");
  draft.logprobs = list != nullptr && !list->get_array().empty();  // the table knows one value
}

std::string told_of_response(const json::object& body, const Draft& draft) {
  json::object told;
  told["instructions"] = or_else(body, "instructions", nullptr);
  told["max_output_tokens"] = or_else(body, "max_output_tokens", nullptr);
  told["tool_choice"] = or_else(body, "tool_choice", "auto");
  told["parallel_tool_calls"] = or_else(body, "parallel_tool_calls", true);
  json::array tools;
  const json::value asked = or_else(body, "tools", json::array());
  for (const json::value& item : asked.get_array()) {
    json::object tool = item.get_object();
    for (const auto& [name, standard] :
         {std::pair("description", json::value()), {"parameters", json::value()}, {"strict", json::value(true)}}) {
      if (member(tool, name) == nullptr) tool[name] = standard;
    }
    tools.emplace_back(std::move(tool));
  }
  told["tools"] = std::move(tools);
  json::object text = or_else(body, "text", json::object()).get_object();
  if (member(text, "format") == nullptr) text["format"] = json::object{{"type", "text"}};
  told["text"] = std::move(text);
  json::object reasoning = or_else(body, "reasoning", json::object()).get_object();
  for (const char* name : {"effort", "summary"}) {
    if (member(reasoning, name) == nullptr) reasoning[name] = nullptr;
  }
  told["reasoning"] = std::move(reasoning);
  told["user"] = or_else(body, "user", nullptr);
  const SamplerOptions& s = draft.generate.sampling;
  const std::string members = json::serialize(told);
  return fmt::format(
      R"({},"temperature":{},"top_p":{},"top_logprobs":{},"background":false,"metadata":{{}},"previous_response_id":null,"service_tier":"default","store":false,"truncation":"disabled")",
      std::string_view(members).substr(1, members.size() - 2), s.temperature, s.top_p, draft.n_top_logprobs);
}

}  // namespace assay::api
