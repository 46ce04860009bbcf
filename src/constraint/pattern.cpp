// See pattern.h.
#include "constraint/pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "assay/error.h"

namespace assay::constraint {
namespace {

constexpr int64_t kPatternStatesMax = 20'000;
constexpr int64_t kRepeatsMax = 10'000;

// What a class as \w stands for. Readers of patterns disagree about characters beyond ASCII: `sure` are those that
// belong to it for every reader, `maybe` those that belong to it for some.
struct CharacterClass {
  CodePoints sure, maybe;
};

CharacterClass negated(const CharacterClass& c) { return {c.maybe.complement(), c.sure.complement()}; }

std::optional<CharacterClass> class_of(char letter) {
  static const CharacterClass kDigit = {{{'0', '9'}}, {{'0', '9'}, {0x660, 0x10FFFF}}};
  static const CharacterClass kWord = {{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
                                       {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}, {0x80, 0x10FFFF}}};
  static const CharacterClass kSpace = {{{'\t', '\r'}, {' ', ' '}},
                                        {{'\t', '\r'},
                                         {0x1C, ' '},
                                         {0x85, 0x85},
                                         {0xA0, 0xA0},
                                         {0x1680, 0x1680},
                                         {0x180E, 0x180E},
                                         {0x2000, 0x200A},
                                         {0x2028, 0x2029},
                                         {0x202F, 0x202F},
                                         {0x205F, 0x205F},
                                         {0x3000, 0x3000},
                                         {0xFEFF, 0xFEFF}}};
  switch (letter) {
    case 'd': return kDigit;
    case 'D': return negated(kDigit);
    case 'w': return kWord;
    case 'W': return negated(kWord);
    case 's': return kSpace;
    case 'S': return negated(kSpace);
    default: return std::nullopt;
  }
}

// How often an atom comes; no `most`: without end.
struct Repeats {
  int64_t least = 1;
  std::optional<int64_t> most = 1;
};

// The pattern's text, read from its beginning: what is made of characters alone.
class PatternReader {
 public:
  explicit PatternReader(std::string_view text) : text_(text) {}

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(Errc::bad_request, fmt::format("{} at byte {}", what, at_));
  }
  bool more() const { return at_ < text_.size(); }
  bool is(char c) const { return more() && text_[at_] == c; }
  bool is(std::string_view s) const { return text_.substr(at_).starts_with(s); }
  bool take(char c) {
    if (!is(c)) return false;
    ++at_;
    return true;
  }
  bool is_repetition() const { return is('*') || is('+') || is('?') || is('{'); }

  // What follows an atom; once, where nothing says more.
  Repeats quantifier() {
    Repeats times;
    if (take('*')) {
      times = {0, {}};
    } else if (take('+')) {
      times = {1, {}};
    } else if (take('?')) {
      times = {0, 1};
    } else if (take('{')) {
      times = braces();
    } else {
      return times;
    }
    take('?');  // as few as possible: the same texts
    if (is_repetition()) fail("a repetition of a repetition");
    return times;
  }

  // One character's choice: a class, a bracket, an escape, a letter.
  CodePoints single() {
    if (take('.')) return CodePoints{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}.complement();
    if (take('[')) return bracket();
    if (take('\\')) return escape(false).sure;
    const uint32_t c = next_code_point(text_, at_);
    return {{c, c}};
  }

  // What stands between ( and the group's first alternative, which names it or not.
  void group_kind() {
    if (!take('?')) return;
    if (is("=") || is("!") || is("<=") || is("<!")) fail("look-around, which is not served,");
    if (take('<')) {
      while (more() && !is('>')) ++at_;
      if (!take('>')) fail("a (?< without its >");
    } else if (!take(':')) {
      fail("a (? of a kind that is not served");
    }
  }

 private:
  Repeats braces() {
    const int64_t least = count();
    std::optional<int64_t> most = least;
    if (take(',')) most = is('}') ? std::nullopt : std::optional(count());
    if (!take('}')) fail("a { without its }");
    if (most && *most < least) fail(fmt::format("a repetition of at least {} and at most {}", least, *most));
    return {least, most};
  }

  int64_t count() {
    const size_t begin = at_;
    int64_t n = 0;
    while (more() && text_[at_] >= '0' && text_[at_] <= '9') {
      n = n * 10 + (text_[at_++] - '0');
      if (n > kRepeatsMax) fail(fmt::format("a repetition of more than {}", kRepeatsMax));
    }
    if (at_ == begin) fail("a { without a count");
    return n;
  }

  CodePoints bracket() {
    const bool is_negated = take('^');
    CharacterClass set;
    while (!is(']')) {
      if (!more()) fail("a [ without its ]");
      CharacterClass item = member();
      if (is('-') && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        const CharacterClass last = member();
        const auto one = [](const CharacterClass& c) {
          return c.sure.ranges().size() == 1 && c.sure.ranges()[0].first == c.sure.ranges()[0].second;
        };
        if (!one(item) || !one(last)) fail("a range whose end is no character");
        const uint32_t a = item.sure.ranges()[0].first, b = last.sure.ranges()[0].first;
        if (a > b) fail("a range that ends before it begins");
        item.sure = item.maybe = CodePoints{{a, b}};
      }
      set.sure.add(item.sure);
      set.maybe.add(item.maybe);
    }
    ++at_;
    return is_negated ? set.maybe.complement() : set.sure;
  }

  CharacterClass member() {
    if (!more()) fail("a [ without its ]");
    if (take('\\')) return escape(true);
    const uint32_t c = next_code_point(text_, at_);
    return {{{c, c}}, {{c, c}}};
  }

  CharacterClass escape(bool in_bracket) {
    if (!more()) fail("a \\ before nothing");
    const char letter = text_[at_++];
    if (auto known = class_of(letter)) return *known;
    const auto one = [](uint32_t c) { return CharacterClass{{{c, c}}, {{c, c}}}; };
    constexpr std::string_view kLetters = "tnrfv", kStandFor = "\t\n\r\f\v";
    if (const size_t i = kLetters.find(letter); i != std::string_view::npos)
      return one(static_cast<unsigned char>(kStandFor[i]));
    if (letter == 'b' && in_bracket) return one('\b');
    if (letter == 'b' || letter == 'B') fail("a word boundary, which is not served,");
    if (letter == '0' && !(more() && text_[at_] >= '0' && text_[at_] <= '9')) return one(0);
    if (letter >= '0' && letter <= '9') fail("a back-reference, which is not served,");
    if (letter == 'k') fail("a back-reference, which is not served,");
    if (letter == 'p' || letter == 'P') fail("a property of characters (\\p), which is not served,");
    if (letter == 'x') return one(hex(2));
    if (letter == 'u') return one(unicode());
    if ((letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z'))
      fail(fmt::format("\\{}, which is not served,", letter));
    --at_;
    return one(next_code_point(text_, at_));
  }

  uint32_t hex(int n) {
    uint32_t c = 0;
    for (int i = 0; i < n; ++i) {
      const char d = more() ? text_[at_] : '?';
      const int v = d >= '0' && d <= '9'   ? d - '0'
                    : d >= 'a' && d <= 'f' ? d - 'a' + 10
                    : d >= 'A' && d <= 'F' ? d - 'A' + 10
                                           : -1;
      if (v < 0) fail("an escape without its hexadecimal digits");
      c = c * 16 + static_cast<uint32_t>(v);
      ++at_;
    }
    return c;
  }

  uint32_t unicode() {
    uint32_t c = 0;
    if (take('{')) {
      size_t n = 0;
      for (; more() && !is('}') && n < 6; ++n) c = c * 16 + hex(1);
      if (n == 0 || !take('}')) fail("a \\u{ without its }");
    } else {
      c = hex(4);
    }
    if (c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) fail("half a surrogate pair or what is no character");
    return c;
  }

  std::string_view text_;
  size_t at_ = 0;
};

// A part of the network that is being built: from its first state to its last.
struct Part {
  int32_t begin = 0, end = 0;
  bool from_start = false, to_end = false;  // it holds ^ or $, which only whole alternatives of the whole pattern may
};

class PatternParser {
 public:
  explicit PatternParser(std::string_view text) : in_(text) {}

  PatternNetwork parse() {
    const int32_t begin = state(), end = state();
    do {
      alternative(begin, end);
    } while (in_.take('|'));
    if (in_.more()) in_.fail("a ) that closes nothing");
    net_.end = end;
    return std::move(net_);
  }

 private:
  int32_t state() {
    if (static_cast<int64_t>(net_.states.size()) >= kPatternStatesMax)
      throw Error(Errc::bad_request, fmt::format("it needs more than {} states", kPatternStatesMax));
    net_.states.emplace_back();
    return static_cast<int32_t>(net_.states.size() - 1);
  }
  PatternNetwork::State& at(int32_t s) { return net_.states[static_cast<size_t>(s)]; }
  void jump(int32_t from, int32_t to) { at(from).jumps.push_back(to); }
  void anything(int32_t s) { at(s).edges.push_back({CodePoints::all(), s}); }

  // One alternative of the whole pattern: found anywhere, unless ^ and $ hold it.
  void alternative(int32_t begin, int32_t end) {
    const int32_t first = state();
    jump(begin, first);
    if (!in_.take('^')) anything(first);
    int32_t last = first;
    while (in_.more() && !in_.is('|') && !in_.is(')') && !in_.is('$')) last = repeated(last, 0);
    const int32_t rest = state();
    jump(last, rest);
    if (in_.take('$')) {
      if (in_.more() && !in_.is('|')) in_.fail("a $ that ends no alternative of the whole pattern");
    } else {
      anything(rest);
    }
    jump(rest, end);
  }

  // An atom and how often it comes. It is built apart from `from`, so that it can be copied.
  int32_t repeated(int32_t from, int depth) {
    const auto first = static_cast<int32_t>(net_.states.size());
    const Part part = atom(depth);
    const auto last = static_cast<int32_t>(net_.states.size());
    const auto [least, most] = in_.quantifier();
    return copies(from, part, first, last, least, most);
  }

  int32_t copies(int32_t from, const Part& part, int32_t first, int32_t last, int64_t least,
                 std::optional<int64_t> most) {
    const std::vector<PatternNetwork::State> model(net_.states.begin() + first, net_.states.begin() + last);
    bool is_used = false;
    const auto copy = [&]() -> Part {
      if (!is_used) {
        is_used = true;
        return part;
      }
      const auto base = static_cast<int32_t>(net_.states.size());
      for (const PatternNetwork::State& s : model) {
        const int32_t id = state();
        at(id) = s;
        for (auto& e : at(id).edges) e.to += base - first;
        for (int32_t& to : at(id).jumps) to += base - first;
      }
      return {part.begin + base - first, part.end + base - first};
    };
    int32_t here = from;
    for (int64_t i = 0; i < least; ++i) {
      const Part p = copy();
      jump(here, p.begin);
      here = p.end;
    }
    const int32_t out = state();
    if (!most) {
      const int32_t loop = state();
      const Part p = copy();
      jump(here, loop);
      jump(loop, p.begin);
      jump(p.end, loop);
      jump(loop, out);
      return out;
    }
    for (int64_t i = least; i < *most; ++i) {
      const Part p = copy();
      jump(here, out);
      jump(here, p.begin);
      here = p.end;
    }
    jump(here, out);
    return out;
  }

  Part atom(int depth) {
    if (in_.is_repetition()) in_.fail("a repetition of nothing");
    if (in_.is('}')) in_.fail("a } that closes nothing");
    if (in_.is(']')) in_.fail("a ] that closes nothing");
    if (in_.is('^')) in_.fail("a ^ that begins no alternative of the whole pattern, which is not served,");
    if (in_.take('(')) return group(depth + 1);
    const CodePoints set = in_.single();
    const Part part{state(), state()};
    at(part.begin).edges.push_back({set, part.end});
    return part;
  }

  Part group(int depth) {
    if (depth > kPatternDepthMax) in_.fail(fmt::format("groups nested deeper than {}", kPatternDepthMax));
    in_.group_kind();
    const Part part{state(), state()};
    do {
      int32_t here = state();
      jump(part.begin, here);
      while (in_.more() && !in_.is('|') && !in_.is(')')) {
        if (in_.is('$')) in_.fail("a $ inside a group, which is not served,");
        here = repeated(here, depth);
      }
      jump(here, part.end);
    } while (in_.take('|'));
    if (!in_.take(')')) in_.fail("a ( without its )");
    return part;
  }

  PatternReader in_;
  PatternNetwork net_;
};

constexpr std::string_view kDate =
    "([1-9][0-9]{3}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-"
    "8]))"
    "|([1-9][0-9](0[48]|[2468][048]|[13579][26])|([2468][048]|[13579][26])00)-02-29)";
constexpr std::string_view kTime =
    "(([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9]))";
constexpr std::string_view kByte = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
constexpr std::string_view kLabel = "[A-Za-z0-9]([A-Za-z0-9-]{0,30}[A-Za-z0-9])?";

std::string ipv6_pattern() {
  const std::string group = "[0-9a-fA-F]{1,4}";
  std::string all = fmt::format("({}:){{7}}{}", group, group);
  for (int before = 0; before <= 7; ++before) {  // so many groups, ::, and at most 7 - before more
    const std::string head = before == 0 ? ":" : fmt::format("({}:){{{}}}", group, before);
    const int after = 7 - before;
    all += fmt::format("|{}:", head);
    if (after > 0) all += fmt::format("({}(:{}){{0,{}}})?", group, group, after - 1);
  }
  return "^(" + all + ")$";
}

}  // namespace

PatternNetwork parse_pattern(std::string_view pattern) { return PatternParser(pattern).parse(); }

// The pattern's states times the characters so far times what was read of a text that may not come: all hold together,
// exactly.
StateId pattern_string(NetworkBuilder& net, JsonParts& parts, StateId from, const PatternNetwork& pattern,
                       int64_t least, std::optional<int64_t> most) {
  using Place = std::tuple<int32_t, int64_t, size_t>;
  const StateId end = net.state();
  const int64_t count_max = most.value_or(least);  // without a limit, more than `least` is as good as `least`
  const std::string& quote = parts.spelling().quote;
  std::map<Place, StateId> known;
  std::vector<Place> open;
  const auto place = [&](int32_t state, int64_t count, size_t n_excluded) {
    const auto [it, is_new] = known.try_emplace({state, count, n_excluded}, -1);
    if (is_new) {
      it->second = net.state();
      open.emplace_back(state, count, n_excluded);
    }
    return it->second;
  };
  net.literal(from, quote, place(0, 0, 0));
  while (!open.empty()) {
    const auto [state, count, n_excluded] = open.back();
    open.pop_back();
    const StateId here = known.at({state, count, n_excluded});
    if (state == pattern.end && count >= least) net.literal(here, quote, end);
    const PatternNetwork::State& s = pattern.states[static_cast<size_t>(state)];
    for (const int32_t to : s.jumps) net.jump(here, place(to, count, n_excluded));
    if (most && count == *most) continue;
    for (const auto& e : s.edges) {
      for (const auto& [set, n] : parts.ways(n_excluded, e.on))
        parts.character(here, set, place(e.to, std::min(count + 1, count_max), n));
    }
  }
  return end;
}

std::string_view format_pattern(std::string_view format) {
  static const std::map<std::string_view, std::string> kPatterns = {
      {"date", fmt::format("^{}$", kDate)},
      {"time", fmt::format("^{}$", kTime)},
      {"date-time", fmt::format("^{}T{}$", kDate, kTime)},
      {"uuid", "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"},
      {"ipv4", fmt::format("^{}(\\.{}){{3}}$", kByte, kByte)},
      {"ipv6", ipv6_pattern()},
      {"email", fmt::format("^[A-Za-z0-9]([A-Za-z0-9]|[._+-][A-Za-z0-9]){{0,30}}@{}(\\.{}){{1,3}}$", kLabel, kLabel)},
  };
  const auto it = kPatterns.find(format);
  return it == kPatterns.end() ? std::string_view() : std::string_view(it->second);
}

}  // namespace assay::constraint
