// Finds how a template writes calls: it is given calls of known names, arguments and ids, and what stands around them
// in its text is read off.
#include <algorithm>
#include <boost/json.hpp>
#include <utility>

#include "assay/error.h"
#include "chat/from_boost.h"
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

// Of templates that write arguments one after the other; some sort them by name.
constexpr std::string_view kTextValue = "probe text", kOtherValue = "70707";
constexpr std::string_view kNamedKeys[] = {"probe_a", "probe_b", "probe_c"};
constexpr std::string_view kNamedArguments = R"({"probe_a": "probe text", "probe_b": 70707, "probe_c": true})";

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
    input.messages = chat::list_of(messages);
    if (with_tools) input.tools = chat::list_of(tools_);
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
    return calls(wish, std::span(kArguments).first(n));
  }

  std::optional<std::string> calls(const Wish& wish, std::span<const std::string_view> all_arguments) const {
    json::array list;
    for (size_t i = 0; i < all_arguments.size(); ++i) {
      const std::string arguments(all_arguments[i]);
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

// An empty block of reasoning that a template writes before calls is none of the call.
void drop_reasoning(std::string& before) {
  for (const std::string_view close : {"</think>", "<|END_THINKING|>", "[/THINK]", "</think:opensource>"}) {
    if (const size_t at = before.find(close); at != std::string::npos) before.erase(0, at + close.size());
  }
}

// Where an answer's call begins in the text of a template.
size_t call_begin(std::string_view text, size_t content, std::string_view with_call) {
  const size_t begin = std::min(common_prefix(text, with_call), content);
  // Not inside a mark: both may begin with "<|START_".
  const size_t open = with_call.substr(0, begin).rfind('<'), close = with_call.substr(0, begin).rfind('>');
  return open != std::string_view::npos && (close == std::string_view::npos || close < open) ? open : begin;
}

void set_before(Format& f, std::string before) {
  drop_reasoning(before);
  const size_t n_blanks = std::min(before.find_first_not_of(kBlanks), before.size());
  f.blanks = before.substr(0, n_blanks);
  f.before = before.substr(n_blanks);
  f.n_opening = opening_size(f.before);
  f.anchored = !f.before.starts_with('<') && !f.before.starts_with('[');
}

// Less what ends every answer: an end-of-generation token and what follows it, or what a text's end has too.
std::string without_end(std::string after, const std::string& ending, std::span<const std::string> ends) {
  for (const std::string& end : ends) {
    if (!end.empty()) after.resize(std::min(after.find(end), after.size()));
  }
  if (after.ends_with(ending)) after.resize(after.size() - ending.size());
  return after.substr(0, after.find_last_not_of(kBlanks) + 1);
}

class Reading {
 public:
  Reading(const Probe& probe, std::span<const std::string> ends) : probe_(probe), ends_(ends) {}

  bool read(Format& f, const Wish& wish) {
    const auto text = probe_.text(), one = probe_.calls(1, wish);
    if (!text || !one) return false;
    const size_t content = text->find(kText);
    if (content == std::string::npos) return false;
    const size_t begin = call_begin(*text, content, *one);
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
    f.after = without_end(two != nullptr ? two->gaps.back() : one.gaps.back(), ending, ends_);
    set_before(f, std::move(before));
    // A name ends where a literal begins, and so does a number or an id.
    const bool name_ends = std::adjacent_find(f.call.begin(), f.call.end(), [](const Part& a, const Part& b) {
                             return a.kind != Kind::literal && b.kind != Kind::literal;
                           }) == f.call.end();
    const bool ends_first = std::any_of(
        ends_.begin(), ends_.end(), [&](const std::string& end) { return !end.empty() && f.before.starts_with(end); });
    return !f.before.empty() && name_ends && !ends_first && !is_in_braces(f);
  }

  // Arguments that were given as text, where the template would write them in a syntax of its own.
  static bool is_in_braces(const Format& f) {
    for (size_t i = 1; i < f.call.size(); ++i) {
      if (f.call[i].kind == Kind::arguments && f.call[i - 1].text.ends_with('{')) return true;
    }
    return false;
  }

  const Probe& probe_;
  std::span<const std::string> ends_;
};

// A call whose arguments stand one after the other.
class NamedReading {
 public:
  NamedReading(const Probe& probe, std::span<const std::string> ends) : probe_(probe), ends_(ends) {}

  bool read(Format& f, const Wish& wish) {
    constexpr std::string_view kOne[] = {kNamedArguments}, kTwo[] = {kNamedArguments, kNamedArguments},
                               kNone[] = {"{}"};
    const auto text = probe_.text(), one = probe_.calls(wish, kOne), two = probe_.calls(wish, kTwo),
               none = probe_.calls(wish, kNone);
    if (!text || !one || !none) return false;
    const size_t content = text->find(kText);
    if (content == std::string::npos) return false;
    const size_t begin = call_begin(*text, content, *one);
    const auto sight = look_at(*one, begin, 0);
    if (!sight || !marks(f.arguments, *sight)) return false;
    std::optional<Seen> second;
    if (two) {
      const auto first = look_at(*two, begin, 0);
      if (first) second = look_at(*two, first->end, 1);
    }
    f.form = Format::Form::named;
    f.parallel = second && second->head == sight->head;
    const std::string ending = text->substr(content + kText.size());
    f.after = without_end((f.parallel ? *two : *one).substr(f.parallel ? second->end : sight->end), ending, ends_);
    if (f.parallel) f.between = second->before;
    set_before(f, sight->before);
    const size_t name = none->find(kNames[0], begin);
    if (name == std::string::npos) return false;
    return finish(f, *sight, one->substr(sight->end), none->substr(name + kNames[0].size()));
  }

 private:
  // What stands before the name, between it and the first argument's name, around values, and where the last one ends.
  struct Seen {
    std::string before, head, text_middle, behind_text, middle, behind;
    size_t end = 0;
  };

  std::optional<Seen> look_at(std::string_view text, size_t at, size_t i_name) const {
    bool found = true;
    const auto to = [&](std::string_view what) {
      const size_t place = found ? text.find(what, at) : std::string_view::npos;
      found = place != std::string_view::npos;
      if (!found) return std::string();
      std::string gap(text.substr(at, place - at));
      at = place + what.size();
      return gap;
    };
    Seen s;
    s.before = to(kNames[i_name]);
    s.head = to(kNamedKeys[0]);
    s.text_middle = to(kTextValue);
    s.behind_text = to(kNamedKeys[1]);
    s.middle = to(kOtherValue);
    s.behind = to(kNamedKeys[2]);
    if (!found || !text.substr(at).starts_with(s.middle)) return std::nullopt;
    at += s.middle.size();
    if (text.substr(at, 4) != "true" && text.substr(at, 4) != "True") return std::nullopt;
    s.end = at + 4;
    for (const std::string* gap : {&s.before, &s.head, &s.text_middle, &s.behind_text, &s.middle, &s.behind}) {
      if (gap->find("probe_") != std::string::npos || gap->find("prob3id") != std::string::npos) return std::nullopt;
    }
    return s;
  }

  static bool marks(tools::ArgumentMarks& a, const Seen& s) {
    a = {};
    a.middle = s.middle;
    a.text_middle = s.text_middle;
    if (s.middle.empty()) return false;
    if (s.text_middle.size() > s.middle.size() && s.text_middle.starts_with(s.middle) && s.head.ends_with('{')) {
      a.quote = s.text_middle.substr(s.middle.size());  // a notation of its own
      a.text_middle = s.middle;
      a.begin = "{";
      a.end = "}";
      a.between = s.behind;
      return s.behind_text == a.quote + a.between && a.quote.size() > 1 && a.middle == ":" && a.between == ",";
    }
    const size_t open = s.head.rfind('<');
    if (open == std::string::npos || s.behind_text != s.behind) return false;
    a.open = s.head.substr(open);
    const size_t first = s.behind.find_first_not_of(kBlanks), close = s.behind.find('>');
    if (first == std::string::npos || s.behind[first] != '<' || !s.behind.ends_with(a.open)) return false;
    if (close == std::string::npos || close + 1 + a.open.size() > s.behind.size()) return false;
    a.close = s.behind.substr(0, close + 1);
    a.between = s.behind.substr(close + 1, s.behind.size() - close - 1 - a.open.size());
    return true;
  }

  // With what follows the last value, and what a call without arguments has behind its name.
  bool finish(Format& f, const Seen& s, std::string tail, const std::string& of_none) const {
    tools::ArgumentMarks& a = f.arguments;
    const auto cut = [&](std::string& text, const std::string& part) {
      const bool fits = text.starts_with(part);
      if (fits) text.erase(0, part.size());
      return fits;
    };
    const auto cut_all = [&](const std::string& part) {
      if (!cut(tail, part) || !cut(f.after, part)) return false;
      return !f.parallel || cut(f.between, part);
    };
    std::string head = s.head.substr(0, s.head.size() - a.open.size() - a.begin.size());
    if (!cut_all(a.close)) return false;
    if (a.quote.empty()) {
      if (!a.between.empty() && of_none != head + tail) {  // it stands behind the last one too
        if (!cut_all(a.between)) return false;
        a.behind = std::exchange(a.between, "");
      }
      a.end = f.parallel ? f.after.substr(0, common_prefix(f.after, f.between)) : f.after;
      a.end.resize(a.end.rfind('>') + 1);
      if (a.end.empty()) return false;
    }
    if (of_none != head + a.begin + tail || !cut_all(a.end)) return false;
    f.call = {{Kind::name}};
    if (!head.empty()) f.call.push_back({Kind::literal, head});
    f.call.push_back({Kind::arguments});
    const std::string& behind_name = head.empty() ? a.begin.empty() ? a.open : a.begin : head;
    return !f.before.empty() && !behind_name.empty() && a.close.find(a.close.front(), 1) == std::string::npos;
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

bool find_json(const Probe& probe, std::span<const std::string> ends, bool as_text, Format& f) {
  for (const bool null_content : {false, true}) {
    for (const bool ids_of_nine : {false, true}) {
      Format found = f;
      if (!Reading(probe, ends).read(found, {as_text, null_content, ids_of_nine})) continue;
      found.arguments_as_text = as_text;
      found.null_content = null_content;
      found.ids_of_nine = ids_of_nine;
      found.name = "template";
      confirm(found);
      f = std::move(found);
      return true;
    }
  }
  return false;
}

bool find_named(const Probe& probe, std::span<const std::string> ends, Format& f) {
  for (const bool null_content : {false, true}) {
    Format found = f;
    if (!NamedReading(probe, ends).read(found, {false, null_content, false})) continue;
    found.null_content = null_content;
    found.name = "template";
    confirm(found);
    f = std::move(found);
    return true;
  }
  return false;
}

}  // namespace

Format find_format(const ChatTemplate& chat_template, std::string_view source, const std::string& bos,
                   const std::string& eos, std::span<const std::string> ends) {
  const Probe probe(chat_template, bos, eos);
  Format f;
  find_habits(probe, f);
  if (find_by_mark(source, f)) return f;
  if (find_json(probe, ends, false, f) || find_named(probe, ends, f) || find_json(probe, ends, true, f)) return f;
  make_generic(f);
  return f;
}

}  // namespace assay::tools
