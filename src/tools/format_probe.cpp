// Finds how a template writes calls: it is given calls of known names, arguments and ids, and what stands around them
// in its text is read off.
#include <algorithm>
#include <boost/json.hpp>

#include "assay/error.h"
#include "tools/format.h"

namespace assay::tools {
namespace {

namespace json = boost::json;
using Kind = Part::Kind;

constexpr std::string_view kText = "~probe of a text~";
constexpr std::string_view kNames[] = {"probe_first", "probe_second"};
constexpr std::string_view kIds[] = {"prob3id01", "prob3id02"};
constexpr std::string_view kArguments[] = {
    R"({"probe_key": "probe \"value\"", "probe_count": 7, "probe_list": ["x", "y"]})",
    R"({"probe_key": "other", "probe_count": -2.5, "probe_list": []})"};
constexpr std::string_view kBlanks = " \t\r\n";

struct Wish {
  bool as_text = false, null_content = false, ids_of_nine = false;
};

class Probe {
 public:
  Probe(const ChatTemplate& chat_template, const std::string& bos, const std::string& eos)
      : template_(chat_template), bos_(bos), eos_(eos) {
    for (const std::string_view name : kNames) {
      json::object parameters = {
          {"type", "object"},
          {"properties",
           json::object{{"probe_key", json::object{{"type", "string"}, {"description", "a text"}}},
                        {"probe_count", json::object{{"type", "number"}, {"description", "a number"}}},
                        {"probe_list", json::object{{"type", "array"}, {"items", json::object{{"type", "string"}}}}}}},
          {"required", json::array{"probe_key"}}};
      tools_.push_back({{"type", "function"},
                        {"function", json::object{{"name", std::string(name)},
                                                  {"description", "a function"},
                                                  {"parameters", std::move(parameters)}}}});
    }
  }

  // Nothing where the template refuses the messages.
  std::optional<std::string> render(const json::array& messages, bool with_tools = true) const {
    TemplateInput input;
    input.messages_json = json::serialize(messages);
    if (with_tools) input.tools_json = json::serialize(tools_);
    input.add_generation_prompt = false;
    input.bos_token = bos_;
    input.eos_token = eos_;
    input.now_unix = 0;
    try {
      return template_.render(input);
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  std::optional<std::string> calls(size_t n, const Wish& wish) const {
    json::array list;
    for (size_t i = 0; i < n; ++i) {
      const std::string arguments(kArguments[i]);
      const json::value value = wish.as_text ? json::value(arguments) : json::parse(arguments);
      list.push_back({{"id", wish.ids_of_nine ? std::string(kIds[i]) : "call_" + std::string(kIds[i])},
                      {"type", "function"},
                      {"function", json::object{{"name", std::string(kNames[i])}, {"arguments", value}}}});
    }
    const json::value content = wish.null_content ? json::value(nullptr) : json::value("");
    return render({user(), json::object{{"role", "assistant"}, {"content", content}, {"tool_calls", std::move(list)}}});
  }

  std::optional<std::string> text() const {
    return render({user(), json::object{{"role", "assistant"}, {"content", std::string(kText)}}});
  }

  static json::object user() { return {{"role", "user"}, {"content", "Hi"}}; }

 private:
  const ChatTemplate& template_;
  std::string bos_, eos_;
  json::array tools_;
};

size_t common_prefix(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}
size_t common_suffix(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend()).first - a.rbegin());
}

// What stands around the slots of n calls: gaps[0], first slot, gaps[1], ..., last slot, gaps.back().
struct Sight {
  std::vector<std::string> gaps;
  std::vector<Part> slots;
};

// From `at` on; nothing where a name or its arguments are not there in this order.
std::optional<Sight> look(std::string_view text, size_t at, size_t n, bool ids_of_nine) {
  Sight sight;
  const auto take = [&](Kind kind, size_t begin, size_t size) {
    sight.gaps.emplace_back(text.substr(at, begin - at));
    sight.slots.push_back({kind});
    at = begin + size;
  };
  for (size_t i = 0; i < n; ++i) {
    const std::string id = ids_of_nine ? std::string(kIds[i]) : "call_" + std::string(kIds[i]);
    const auto maybe_id = [&](size_t before) {
      const size_t found = text.find(id, at);
      if (found < before) take(Kind::id, found, id.size());
    };
    size_t name = text.find(kNames[i], at);
    if (name == std::string_view::npos) return std::nullopt;
    maybe_id(name);
    name = text.find(kNames[i], at);
    if (name == std::string_view::npos) return std::nullopt;
    take(Kind::name, name, kNames[i].size());
    const size_t arguments = text.find(kArguments[i], at);
    if (arguments == std::string_view::npos) return std::nullopt;
    maybe_id(arguments);
    take(Kind::arguments, text.find(kArguments[i], at), kArguments[i].size());
    maybe_id(i + 1 < n ? text.find(kNames[i + 1], at) : std::string_view::npos);
  }
  sight.gaps.emplace_back(text.substr(at));
  return sight;
}

// Where two gaps that should be the same have "0" and "1" in one place, the calls are counted there.
std::optional<size_t> count_at(std::string_view first, std::string_view second) {
  const size_t tail = common_suffix(first, second);
  if (tail >= first.size() || tail >= second.size()) return std::nullopt;
  const size_t at = first.size() - tail - 1;
  return first[at] == '0' && second[second.size() - tail - 1] == '1' ? std::optional(at) : std::nullopt;
}

// Up to the first blank or mark that tells a call from text.
size_t opening_size(std::string_view before) {
  if (before.starts_with('<') || before.starts_with('[')) {
    const size_t end = before.find(before[0] == '<' ? '>' : ']');
    const size_t equals = before.find('=');  // "<function=NAME>"
    if (equals < end) return equals + 1;
    if (end != std::string_view::npos) return end + 1;
  }
  return before.size();
}

class Reading {
 public:
  Reading(const Probe& probe, std::span<const std::string> ends) : probe_(probe), ends_(ends) {}

  bool read(Format& f, const Wish& wish) {
    const auto text = probe_.text(), one = probe_.calls(1, wish);
    if (!text || !one) return false;
    const size_t content = text->find(kText);
    if (content == std::string::npos) return false;
    size_t begin = std::min(common_prefix(*text, *one), content);
    // Not inside a mark: both may begin with "<|START_".
    const size_t open = std::string_view(*one).substr(0, begin).rfind('<'),
                 close = std::string_view(*one).substr(0, begin).rfind('>');
    if (open != std::string::npos && (close == std::string::npos || close < open)) begin = open;
    const std::string ending = text->substr(content + kText.size());
    auto sight = look(*one, begin, 1, wish.ids_of_nine);
    if (!sight) return false;
    auto two_text = probe_.calls(2, wish);
    std::optional<Sight> two;
    if (two_text) two = look(*two_text, begin, 2, wish.ids_of_nine);
    f.parallel = two.has_value() && two->slots.size() == 2 * sight->slots.size();
    return arrange(f, *sight, f.parallel ? &*two : nullptr, ending);
  }

 private:
  bool arrange(Format& f, const Sight& one, const Sight* two, const std::string& ending) {
    const size_t n = one.slots.size();
    std::string before = one.gaps[0];
    f.call.clear();
    if (two != nullptr) f.between = two->gaps[n];
    std::optional<size_t> counted;
    if (two != nullptr) counted = count_at(before, f.between);
    if (counted) {  // the count is the call's first slot
      f.call.push_back({Kind::index});
      f.call.push_back({Kind::literal, before.substr(*counted + 1)});
      const size_t tail = before.size() - *counted;
      f.between.resize(f.between.size() - tail);
      before.resize(*counted);
    }
    for (size_t i = 0; i < n; ++i) {
      f.call.push_back(one.slots[i]);
      if (i + 1 == n) break;
      const std::string& gap = one.gaps[i + 1];
      const auto here = two != nullptr ? count_at(gap, two->gaps[n + i + 1]) : std::nullopt;
      if (here) {
        if (*here > 0) f.call.push_back({Kind::literal, gap.substr(0, *here)});
        f.call.push_back({Kind::index});
        if (*here + 1 < gap.size()) f.call.push_back({Kind::literal, gap.substr(*here + 1)});
      } else if (!gap.empty()) {
        f.call.push_back({Kind::literal, gap});
      }
    }
    drop_reasoning(before);
    f.after = without_end(two != nullptr ? two->gaps.back() : one.gaps.back(), ending);
    const size_t n_blanks = std::min(before.find_first_not_of(kBlanks), before.size());
    f.blanks = before.substr(0, n_blanks);
    f.before = before.substr(n_blanks);
    f.n_opening = opening_size(f.before);
    f.anchored = !f.before.starts_with('<') && !f.before.starts_with('[');
    // A name ends where a literal begins, and so does a number or an id.
    const bool name_ends = std::adjacent_find(f.call.begin(), f.call.end(), [](const Part& a, const Part& b) {
                             return a.kind != Kind::literal && b.kind != Kind::literal;
                           }) == f.call.end();
    const bool ends_first = std::any_of(
        ends_.begin(), ends_.end(), [&](const std::string& end) { return !end.empty() && f.before.starts_with(end); });
    return !f.before.empty() && name_ends && !ends_first && !is_in_braces(f);
  }

  // An empty block of reasoning that a template writes before calls is none of the call.
  static void drop_reasoning(std::string& before) {
    for (const std::string_view close : {"</think>", "<|END_THINKING|>", "[/THINK]"}) {
      if (const size_t at = before.find(close); at != std::string::npos) before.erase(0, at + close.size());
    }
  }

  // Arguments that were given as text, where the template would write them in a syntax of its own.
  static bool is_in_braces(const Format& f) {
    for (size_t i = 1; i < f.call.size(); ++i) {
      if (f.call[i].kind == Kind::arguments && f.call[i - 1].text.ends_with('{')) return true;
    }
    return false;
  }

  // Less what ends every answer: an end-of-generation token and what follows it, or what a text's end has too.
  std::string without_end(std::string after, const std::string& ending) const {
    for (const std::string& end : ends_) {
      if (!end.empty()) after.resize(std::min(after.find(end), after.size()));
    }
    if (after.ends_with(ending)) after.resize(after.size() - ending.size());
    return after.substr(0, after.find_last_not_of(kBlanks) + 1);
  }

  const Probe& probe_;
  std::span<const std::string> ends_;
};

void find_habits(const Probe& probe, Format& f) {
  const json::object system = {{"role", "system"}, {"content", "Be brief."}};
  const json::object assistant = {{"role", "assistant"}, {"content", "Yes."}};
  f.system_role = probe.render({system, Probe::user(), assistant}, false).has_value();
  const auto listed = probe.render({Probe::user(), assistant});
  f.lists_tools = listed && listed->find(kNames[0]) != std::string::npos;
  f.merges_users = !probe.render({Probe::user(), Probe::user()}, false).has_value();
}

}  // namespace

Format find_format(const ChatTemplate& chat_template, std::string_view source, const std::string& bos,
                   const std::string& eos, std::span<const std::string> ends) {
  const Probe probe(chat_template, bos, eos);
  Format f;
  find_habits(probe, f);
  if (find_by_mark(source, f)) return f;
  for (const bool as_text : {false, true}) {
    for (const bool null_content : {false, true}) {
      for (const bool ids_of_nine : {false, true}) {
        const Wish wish{as_text, null_content, ids_of_nine};
        Format found = f;
        if (!Reading(probe, ends).read(found, wish)) continue;
        found.arguments_as_text = as_text;
        found.null_content = null_content;
        found.ids_of_nine = ids_of_nine;
        found.name = "template";
        confirm(found);
        return found;
      }
    }
  }
  make_generic(f);
  return f;
}

}  // namespace assay::tools
