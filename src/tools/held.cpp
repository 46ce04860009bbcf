// An answer with calls as a network: free text until a call opens, then the format's own text around names and
// arguments.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>

#include "assay/error.h"
#include "constraint/constraint_state.h"
#include "constraint/json_parts.h"
#include "constraint/schema.h"
#include "constraint/token_tree.h"
#include "json/reader.h"
#include "tools/format.h"

namespace assay {

namespace json = boost::json;
using constraint::JsonParts;
using constraint::NetworkBuilder;
using constraint::RuleId;
using constraint::StateId;
using tools::Format;
using tools::Part;

namespace {

constexpr size_t kSchemasBytesMax = 256 << 10;
constexpr int kSchemasDepthMax = 64;

json::value schema_of(const std::string& text, const std::string& what) {
  return json_text::read(text, what, {kSchemasDepthMax, 1'000'000});
}

class NetworkWriter {
 public:
  NetworkWriter(const Format& format, const CallRules& rules)
      : f_(format), rules_(rules), texts_(net_, {"", true, format.arguments.close, ", ", ": ", true,
                                                 format.arguments.middle == format.arguments.text_middle}),
        notation_(net_, {bytes(format.arguments.quote), true, format.arguments.quote, ",", ":", true, true}) {}

  constraint::Network run() {
    size_t n_bytes = rules_.content_schema.size();
    for (const Tool& tool : rules_.tools) n_bytes += tool.parameters.size();
    if (n_bytes > kSchemasBytesMax) {
      throw Error(Errc::bad_request,
                  fmt::format("the tools' schemas have {} bytes, {} are served", n_bytes, kSchemasBytesMax));
    }
    const RuleId root = net_.rule("the answer");
    for (size_t i = 0; i < rules_.tools.size(); ++i) arguments_.push_back(arguments_rule(rules_.tools[i], i));
    if (!rules_.content_schema.empty())
      content_ = schema_rule(schema_of(rules_.content_schema, "the schema of the content"), "/content");
    if (!problems_.empty()) throw SchemaError(std::move(problems_));
    if (f_.form == Format::Form::harmony) {
      channels(root);
    } else if (rules_.must) {
      begin_call(net_.begin(root), net_.end(root));
    } else if (content_ >= 0) {
      net_.jump(net_.call(net_.begin(root), content_), net_.end(root));
      begin_call(net_.begin(root), net_.end(root));
    } else {
      free_text(root);
    }
    return net_.finish(root);
  }

 private:
  RuleId schema_rule(const json::value& schema, const std::string& at) {
    std::vector<SchemaProblem> problems;
    const RuleId rule = constraint::add_schema(net_, parts_, schema, problems);
    for (SchemaProblem& p : problems) problems_.push_back({at + p.pointer, std::move(p.message)});
    return rule;
  }

  RuleId arguments_rule(const Tool& tool, size_t i) {
    const std::string at = fmt::format("/tools/{}/function/parameters", i);
    json::value schema =
        json::object{{"type", "object"}, {"properties", json::object()}, {"additionalProperties", false}};
    if (!tool.parameters.empty()) schema = schema_of(tool.parameters, at);
    json::object* object = schema.if_object();
    if (object == nullptr) {
      problems_.push_back({at, "needs an object"});
      return -1;
    }
    json::value* type = object->if_contains("type");
    if (type == nullptr && !object->contains("$ref") && !object->contains("anyOf") && !object->contains("oneOf") &&
        !object->contains("allOf")) {
      object->emplace("type", "object");
    } else if (type != nullptr && *type != "object") {
      problems_.push_back({at + "/type", "arguments are an object: needs \"object\""});
      return -1;
    }
    if (f_.form != Format::Form::named) return schema_rule(schema, at);
    std::vector<SchemaProblem> problems;
    const RuleId rule = named_rule(schema, problems);
    for (SchemaProblem& p : problems) problems_.push_back({at + p.pointer, std::move(p.message)});
    return rule;
  }

  RuleId named_rule(const json::value& schema, std::vector<SchemaProblem>& problems) {
    const tools::ArgumentMarks& a = f_.arguments;
    if (!a.quote.empty()) return constraint::add_schema(net_, notation_, schema, problems);
    const constraint::MemberMarks marks = {bytes(a.begin),       bytes(a.open),  bytes(a.middle),
                                           bytes(a.text_middle), bytes(a.close), bytes(a.behind),
                                           bytes(a.between),     bytes(a.end),   &texts_};
    return constraint::add_members(net_, parts_, marks, schema, problems);
  }

  // The text with its control tokens as such.
  StateId marked(StateId from, std::string_view text) { return net_.literal(from, bytes(text)); }
  std::string bytes(std::string_view text) const {
    std::string result;
    while (!text.empty()) {
      size_t at = text.size();
      const std::string* mark = nullptr;
      for (const std::string& m : f_.marks) {
        const size_t found = text.find(m);
        if (found < at) at = found, mark = &m;
      }
      result += text.substr(0, at);
      if (mark == nullptr) break;
      result += constraint::kControlByte + *mark;
      text.remove_prefix(at + mark->size());
    }
    return result;
  }

  StateId characters(StateId from, const constraint::CodePoints& set, int least, int most) {
    const StateId end = net_.state();
    for (int i = 0; i < most; ++i) {
      if (i >= least) net_.jump(from, end);
      const StateId next = net_.state();
      net_.code_points(from, set, next);
      from = next;
    }
    net_.jump(from, end);
    return end;
  }

  // Calls from the first slot of the first one on, behind all that stands before it.
  void calls(StateId from, StateId end) {
    const constraint::CodePoints digits = {{'0', '9'}}, letters = {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}};
    const StateId after = net_.state();
    for (size_t i = 0; i < rules_.tools.size(); ++i) {
      StateId at = from;
      for (const Part& part : f_.call) {
        switch (part.kind) {
          case Part::Kind::literal: at = marked(at, part.text); break;
          case Part::Kind::name: at = net_.literal(at, rules_.tools[i].name); break;
          case Part::Kind::arguments: at = net_.call(at, arguments_[i]); break;
          case Part::Kind::index: at = characters(at, digits, 1, 3); break;
          case Part::Kind::id:
            at = f_.ids_of_nine ? characters(at, letters, 9, 9) : characters(at, letters, 1, 40);
            break;
        }
      }
      net_.jump(at, after);
    }
    if (f_.parallel && rules_.parallel) net_.jump(marked(after, f_.between), from);
    net_.jump(marked(after, f_.after), end);
  }

  void begin_call(StateId from, StateId end) {
    if (!f_.blanks.empty()) {
      const StateId behind = net_.state();
      net_.jump(from, behind);
      net_.literal(from, f_.blanks, behind);
      from = behind;
    }
    calls(marked(from, f_.before), end);
  }

  // All bytes, but that `mark` leads on; [n]: behind n bytes of it.
  void free_text(RuleId root) {
    const std::string mark(f_.opening());
    const size_t n = mark.size();
    std::vector<StateId> states = {net_.begin(root)};
    for (size_t i = 1; i < n; ++i) states.push_back(net_.state());
    StateId elsewhere = -1;  // of an opening that counts at the beginning only
    if (f_.anchored) {
      elsewhere = net_.state();
      net_.byte(elsewhere, 0, 255, elsewhere);
      net_.jump(elsewhere, net_.end(root));
    }
    const StateId opened = net_.state();
    for (size_t i = 0; i < n; ++i) {
      std::array<StateId, 256> to{};
      for (int b = 0; b < 256; ++b) {
        const std::string text = mark.substr(0, i) + static_cast<char>(b);
        size_t k = std::min(text.size(), n);
        while (!(text.ends_with(std::string_view(mark).substr(0, k)))) --k;
        to[static_cast<size_t>(b)] = k == n ? opened : states[k];
        const bool is_blank =
            i == 0 && std::string_view(" \t\r\n").find(static_cast<char>(b)) != std::string_view::npos;
        if (f_.anchored && k != i + 1 && !is_blank) to[static_cast<size_t>(b)] = elsewhere;
      }
      for (int b = 0; b < 256;) {
        int last = b;
        while (last + 1 < 256 && to[static_cast<size_t>(last) + 1] == to[static_cast<size_t>(b)]) ++last;
        net_.byte(states[i], static_cast<uint8_t>(b), static_cast<uint8_t>(last), to[static_cast<size_t>(b)]);
        b = last + 1;
      }
      net_.jump(states[i], net_.end(root));
    }
    calls(marked(opened, std::string_view(f_.before).substr(n)), net_.end(root));
  }

  // gpt-oss: messages on channels. What is thought and what introduces a call is free; the last message is the answer
  // or a call.
  void channels(RuleId root) {
    const StateId begin = net_.begin(root), end = net_.end(root);
    const auto text_from = [&](StateId from) {  // any bytes but control tokens
      net_.byte(from, 0, 254, from);
      return from;
    };
    const StateId channel = marked(begin, "<|channel|>");
    const StateId thought = net_.state();
    net_.jump(marked(net_.literal(channel, "analysis"), "<|message|>"), thought);
    net_.jump(marked(net_.literal(channel, "commentary"), "<|message|>"), thought);
    const StateId next = marked(marked(text_from(thought), "<|end|>"), "<|start|>");
    net_.literal(next, "assistant", begin);
    if (!rules_.must) {
      const StateId answer = marked(net_.literal(channel, "final"), "<|message|>");
      if (content_ >= 0) {
        net_.jump(net_.call(answer, content_), end);
      } else {
        const StateId text = net_.state();
        net_.jump(answer, text);
        net_.jump(text_from(text), end);
      }
    }
    const StateId by_channel = net_.literal(channel, "commentary to=functions."),
                  by_role = net_.literal(begin, " to=functions.");
    for (size_t i = 0; i < rules_.tools.size(); ++i) {
      const StateId named = net_.literal(by_channel, rules_.tools[i].name), message = net_.state();
      net_.jump(marked(named, " <|constrain|>json<|message|>"), message);
      net_.jump(marked(named, "<|message|>"), message);
      net_.jump(marked(net_.literal(by_role, rules_.tools[i].name), "<|channel|>commentary json<|message|>"), message);
      net_.jump(net_.call(message, arguments_[i]), end);
    }
  }

  const Format& f_;
  const CallRules& rules_;
  NetworkBuilder net_;
  JsonParts parts_{net_};
  JsonParts texts_, notation_;  // of values without quotes; of a notation of its own
  std::vector<RuleId> arguments_;
  RuleId content_ = -1;
  std::vector<SchemaProblem> problems_;
};

}  // namespace

std::shared_ptr<const Constraint> call_constraint(const ToolFormat& format, const CallRules& rules) {
  auto state = std::make_unique<Constraint::State>();
  state->network = std::make_shared<const constraint::Network>(NetworkWriter(format.format(), rules).run());
  return std::make_shared<const Constraint>(std::move(state));
}

}  // namespace assay
