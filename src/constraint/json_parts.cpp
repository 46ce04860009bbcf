// See json_parts.h.
#include "constraint/json_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <set>
#include <tuple>

#include "assay/error.h"

namespace assay::constraint {
namespace json = boost::json;
namespace {

const CodePoints& plain_characters() {
  static const CodePoints kSet = {{0x20, '"' - 1}, {'"' + 1, '\\' - 1}, {'\\' + 1, 0xD7FF}, {0xE000, 0x10FFFF}};
  return kSet;
}

void hex_digit(NetworkBuilder& net, StateId from, char first, char last, StateId to) {  // letters in both cases
  const auto byte = [](char c) { return static_cast<uint8_t>(c); };
  if (first <= '9') net.byte(from, byte(first), byte(std::min(last, '9')), to);
  if (last < 'a') return;
  const char low = std::max(first, 'a');
  net.byte(from, byte(low), byte(last), to);
  net.byte(from, static_cast<uint8_t>(low - 'a' + 'A'), static_cast<uint8_t>(last - 'a' + 'A'), to);
}

// What a text without escapes may have: what the tokens of a text are made of.
const CodePoints& raw_characters() {
  static const CodePoints kSet = {{'\t', '\n'}, {'\r', '\r'}, {0x20, 0xD7FF}, {0xE000, 0x10FFFF}};
  return kSet;
}

const CodePoints& bare_characters() {
  static const CodePoints kSet = {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}, {'_', '_'}, {'-', '.'}};
  return kSet;
}

// \uXXXX for anything but half a surrogate pair.
void escaped_code_unit(NetworkBuilder& net, StateId from, StateId to) {
  const StateId last = net.state(), third = net.state(), low_second = net.state(), high_second = net.state();
  hex_digit(net, last, '0', 'f', to);
  hex_digit(net, third, '0', 'f', last);
  const StateId second = net.state();
  hex_digit(net, second, '0', 'f', third);
  hex_digit(net, from, '0', 'c', second);
  hex_digit(net, from, 'e', 'f', second);
  hex_digit(net, from, 'd', 'd', low_second);
  hex_digit(net, low_second, '0', '7', third);
  net.jump(low_second, high_second);  // d8 to db: a pair follows
  const StateId pair_third = net.state(), pair_last = net.state(), pair_end = net.state(), tail_second = net.state();
  hex_digit(net, high_second, '8', 'b', pair_third);
  hex_digit(net, pair_third, '0', 'f', pair_last);
  hex_digit(net, pair_last, '0', 'f', pair_end);
  const StateId tail = net.literal(pair_end, "\\u");
  hex_digit(net, tail, 'd', 'd', tail_second);
  hex_digit(net, tail_second, 'c', 'f', third);
}

constexpr std::array<std::pair<char, char>, 7> kEscapes = {
    {{'"', '"'}, {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'}, {'\n', 'n'}, {'\r', 'r'}, {'\t', 't'}}};

// x digits and, behind a point, y of them, x + y <= n_max.
void free_number(NetworkBuilder& net, StateId from, bool integer, StateId to) {
  std::vector<StateId> fractions(kDigitsMax);  // [n]: n more digits may come, one has
  const StateId exponent = net.state();
  for (size_t n = 0; n < fractions.size(); ++n) {
    fractions[n] = net.state();
    net.jump(fractions[n], to);
    net.jump(fractions[n], exponent);
    if (n > 0) net.byte(fractions[n], '0', '9', fractions[n - 1]);
  }
  const StateId mark = net.state(), sign = net.state(), tens = net.state();
  net.byte(exponent, 'e', 'e', mark);
  net.byte(exponent, 'E', 'E', mark);
  net.byte(mark, '+', '+', sign);
  net.byte(mark, '-', '-', sign);
  net.jump(mark, sign);
  net.byte(sign, '0', '9', tens);
  net.jump(tens, to);
  net.byte(tens, '0', '9', to);
  const auto after_digit = [&](StateId s, size_t n_left) {
    net.jump(s, to);
    if (integer) return;
    net.jump(s, exponent);
    if (n_left == 0) return;
    const StateId point = net.state();
    net.byte(s, '.', '.', point);
    net.byte(point, '0', '9', fractions[n_left - 1]);
  };
  const StateId minus = net.state(), zero = net.state();
  net.byte(from, '-', '-', minus);
  net.jump(from, minus);
  net.byte(minus, '0', '0', zero);
  after_digit(zero, kDigitsMax - 1);
  StateId digit = net.state();
  net.byte(minus, '1', '9', digit);
  for (size_t n_left = kDigitsMax - 1;; --n_left) {
    after_digit(digit, n_left);
    if (n_left == 0) break;
    const StateId next = net.state();
    net.byte(digit, '0', '9', next);
    digit = next;
  }
}

// Numbers without a sign between two bounds, digit by digit: as long as the digits are those of a bound, it decides the
// next one.
class Between {
 public:
  Between(NetworkBuilder& net, const std::optional<Bound>& least, const std::optional<Bound>& most, bool integer,
          int digits_max, StateId to)
      : net_(net), least_(least), most_(most), integer_(integer), digits_max_(static_cast<size_t>(digits_max)),
        to_(to) {}

  void from(StateId state) {
    const size_t first = least_ ? std::max<size_t>(1, least_->value.whole.size()) : 1;
    const size_t last = most_ ? std::max<size_t>(1, most_->value.whole.size()) : digits_max_;
    for (size_t n = first; n <= std::min(last, digits_max_); ++n) {
      whole(state, n, 0, least_ && n == first, most_ && n == last);
    }
  }

 private:
  static char digit_at(const std::string& digits, size_t i) { return i < digits.size() ? digits[i] : '0'; }
  static std::string padded(const std::string& whole) { return whole.empty() ? "0" : whole; }

  void whole(StateId state, size_t n, size_t i, bool at_least, bool at_most) {
    // One list of what is open in place of calls: a place has at most two ways that stay on a bound, and one that
    // leaves both.
    struct Open {
      StateId state;
      size_t i;
      bool at_least, at_most;
    };
    std::vector<Open> open = {{state, i, at_least, at_most}};
    std::map<std::tuple<size_t, bool, bool>, StateId> known;
    while (!open.empty()) {
      const Open o = open.back();
      open.pop_back();
      if (o.i == n) {
        fraction(o.state, n, o.at_least, o.at_most);
        continue;
      }
      const char zero = o.i == 0 && n > 1 ? '1' : '0';
      const char low = std::max(zero, o.at_least ? padded(least_->value.whole)[o.i] : zero);
      const char high = o.at_most ? padded(most_->value.whole)[o.i] : '9';
      each_digit(low, high, o.at_least, o.at_most, [&](char first, char last, bool on_least, bool on_most) {
        const auto [it, is_new] = known.try_emplace({o.i + 1, on_least, on_most}, -1);
        if (is_new) {
          it->second = net_.state();
          open.push_back({it->second, o.i + 1, on_least, on_most});
        }
        net_.byte(o.state, static_cast<uint8_t>(first), static_cast<uint8_t>(last), it->second);
      });
    }
  }

  void fraction(StateId state, size_t n_whole, bool at_least, bool at_most) {
    if (may_end(0, at_least, at_most)) net_.jump(state, to_);
    const size_t n = digits_max_ - n_whole;
    if (integer_ || n == 0) return;
    StateId point = net_.state();
    net_.byte(state, '.', '.', point);
    std::map<std::pair<bool, bool>, StateId> level = {{{at_least, at_most}, point}};
    for (size_t i = 0; i < n; ++i) {
      std::map<std::pair<bool, bool>, StateId> next;
      for (const auto& [on, s] : level) {
        const char low = on.first ? digit_at(least_->value.fraction, i) : '0';
        const char high = on.second ? digit_at(most_->value.fraction, i) : '9';
        each_digit(low, high, on.first, on.second, [&, s = s](char first, char last, bool on_least, bool on_most) {
          const auto [it, is_new] = next.try_emplace({on_least, on_most}, -1);
          if (is_new) {
            it->second = net_.state();
            if (may_end(i + 1, on_least, on_most)) net_.jump(it->second, to_);
          }
          net_.byte(s, static_cast<uint8_t>(first), static_cast<uint8_t>(last), it->second);
        });
      }
      level = std::move(next);
    }
  }

  // Whether a number may end behind i digits of its fraction.
  bool may_end(size_t i, bool at_least, bool at_most) const {
    if (at_least && (least_->value.fraction.size() > i || least_->exclusive)) return false;
    return !at_most || most_->value.fraction.size() > i || !most_->exclusive;
  }

  template <class F>
  static void each_digit(char low, char high, bool at_least, bool at_most, const F& f) {
    if (low > high) return;
    if (low == high) return f(low, high, at_least, at_most);
    if (at_least) f(low, low, true, false);
    const char first = static_cast<char>(low + (at_least ? 1 : 0)), last = static_cast<char>(high - (at_most ? 1 : 0));
    if (first <= last) f(first, last, false, false);
    if (at_most) f(high, high, false, true);
  }

  NetworkBuilder& net_;
  const std::optional<Bound>&least_, &most_;
  bool integer_;
  size_t digits_max_;
  StateId to_;
};

int compare(const Decimal& a, const Decimal& b) {  // of the numbers without their signs
  if (a.whole.size() != b.whole.size()) return a.whole.size() < b.whole.size() ? -1 : 1;
  const int whole = a.whole.compare(b.whole);
  return whole != 0 ? whole : a.fraction.compare(b.fraction);
}

// As a model has to spell it: with no escape that JSON does not ask for, which engine::json_string, for printing, has.
std::string json_string(std::string_view text) { return json::serialize(json::string_view(text.data(), text.size())); }

std::string name_in(const Spelling& spelling, std::string_view name) {
  return (spelling.bare_names ? std::string(name) : json_string(name)) + spelling.colon;
}

}  // namespace

Decimal decimal_of(const json::value& number) {
  std::string text;
  if (number.is_int64()) {
    text = fmt::format("{}", number.get_int64());
  } else if (number.is_uint64()) {
    text = fmt::format("{}", number.get_uint64());
  } else {
    std::array<char, 1200> buffer{};  // the smallest double has 1074 digits behind the point
    const auto result =
        std::to_chars(buffer.data(), buffer.data() + buffer.size(), number.get_double(), std::chars_format::fixed);
    text.assign(buffer.data(), result.ptr);
  }
  Decimal d;
  d.negative = text.starts_with('-');
  if (d.negative) text.erase(0, 1);
  const size_t point = text.find('.');
  d.whole = text.substr(0, point);
  if (point != std::string::npos) d.fraction = text.substr(point + 1);
  d.whole.erase(0, std::min(d.whole.find_first_not_of('0'), d.whole.size()));
  const size_t last = d.fraction.find_last_not_of('0');
  d.fraction.resize(last == std::string::npos ? 0 : last + 1);
  if (d.is_zero()) d.negative = false;
  return d;
}

RuleId JsonParts::plain_character() {
  if (character_ >= 0) return character_;
  character_ = net_.rule("a character");
  const StateId begin = net_.begin(character_), end = net_.end(character_);
  net_.set_plain(begin, kInsidePlain);
  net_.code_points(begin, plain_characters(), end);
  const StateId escape = net_.literal(begin, "\\");
  for (const char c : {'"', '\\', '/', 'b', 'f', 'n', 'r', 't'})
    net_.byte(escape, static_cast<uint8_t>(c), static_cast<uint8_t>(c), end);
  escaped_code_unit(net_, net_.literal(escape, "u"), end);
  return character_;
}

bool is_bare_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(),
                                      [](char c) { return bare_characters().contains(static_cast<unsigned char>(c)); });
}

JsonParts::JsonParts(NetworkBuilder& net, Spelling spelling) : net_(net), spelling_(std::move(spelling)) {
  for (size_t i = 0; i < spelling_.excluded.size();) excluded_.push_back(next_code_point(spelling_.excluded, i));
}

void JsonParts::character(StateId from, const CodePoints& set, StateId to) {
  if (spelling_.raw) return net_.code_points(from, set & raw_characters(), to);
  net_.code_points(from, set & plain_characters(), to);
  StateId escape = -1;
  for (const auto& [character, letter] : kEscapes) {
    if (!set.contains(static_cast<unsigned char>(character))) continue;
    if (escape < 0) escape = net_.literal(from, "\\");
    net_.byte(escape, static_cast<uint8_t>(letter), static_cast<uint8_t>(letter), to);
  }
}

std::vector<std::pair<CodePoints, size_t>> JsonParts::ways(size_t n_excluded, const CodePoints& set) const {
  if (excluded_.empty()) return {{set, 0}};
  std::map<size_t, CodePoints> by_place;
  CodePoints special;
  std::vector<uint32_t> text(excluded_.begin(), excluded_.begin() + static_cast<std::ptrdiff_t>(n_excluded));
  for (const uint32_t c : std::set<uint32_t>(excluded_.begin(), excluded_.end())) {
    special.add(c, c);
    if (!set.contains(c)) continue;
    text.push_back(c);
    size_t n = text.size();  // of its end, as much as the excluded begins with
    while (!std::equal(excluded_.begin(), excluded_.begin() + static_cast<std::ptrdiff_t>(n),
                       text.end() - static_cast<std::ptrdiff_t>(n)))
      --n;
    text.pop_back();
    if (n < excluded_.size()) by_place[n].add(c, c);
  }
  by_place[0].add(set & special.complement());
  std::erase_if(by_place, [](const auto& way) { return way.second.empty(); });
  std::vector<std::pair<CodePoints, size_t>> ways;
  for (auto& [n, part] : by_place) ways.emplace_back(std::move(part), n);
  return ways;
}

// Whether plain characters cannot complete what is excluded.
bool JsonParts::stays_inside(size_t n_excluded) const {
  return excluded_.empty() || std::any_of(excluded_.begin() + static_cast<std::ptrdiff_t>(n_excluded), excluded_.end(),
                                          [](uint32_t c) { return !plain_characters().contains(c); });
}

StateId JsonParts::raw_text(StateId from, int64_t least, std::optional<int64_t> most) {
  const StateId end = net_.state();
  const int64_t count_max = most.value_or(least);
  std::map<std::pair<int64_t, size_t>, StateId> known;
  std::vector<std::pair<int64_t, size_t>> open;
  const auto place = [&](int64_t count, size_t n_excluded) {
    const auto [it, is_new] = known.try_emplace({count, n_excluded}, -1);
    if (is_new) {
      it->second = net_.state();
      open.emplace_back(count, n_excluded);
    }
    return it->second;
  };
  net_.literal(from, spelling_.quote, place(0, 0));
  while (!open.empty()) {
    const auto [count, n_excluded] = open.back();
    open.pop_back();
    const StateId here = known.at({count, n_excluded});
    if (count >= least) net_.literal(here, spelling_.quote, end);
    if (stays_inside(n_excluded)) net_.set_plain(here, most ? static_cast<int32_t>(*most - count) : kPlainUnlimited);
    if (most && count == *most) continue;
    for (const auto& [set, n] : ways(n_excluded, CodePoints::all()))
      character(here, set, place(std::min(count + 1, count_max), n));
  }
  return end;
}

StateId JsonParts::string(StateId from, int64_t least, std::optional<int64_t> most) {
  if (spelling_.raw && least == 0 && !most) {
    if (string_ < 0) {
      string_ = net_.rule("a text");
      net_.jump(raw_text(net_.begin(string_), 0, {}), net_.end(string_));
    }
    return net_.call(from, string_);
  }
  if (spelling_.raw) return raw_text(from, least, most);
  const RuleId character = plain_character();
  if (least == 0 && !most) {
    if (string_ < 0) {
      string_ = net_.rule("a string");
      const StateId body = net_.literal(net_.begin(string_), "\"");
      net_.set_plain(body, kPlainUnlimited);
      net_.call(body, character, body);
      net_.literal(body, "\"", net_.end(string_));
    }
    return net_.call(from, string_);
  }
  const StateId end = net_.state();
  StateId body = net_.literal(from, "\"");
  for (int64_t n = 0;; ++n) {
    if (n >= least) net_.literal(body, "\"", end);
    if (most && n == *most) {
      net_.set_plain(body, 0);
      return end;
    }
    net_.set_plain(body, most ? static_cast<int32_t>(std::min<int64_t>(*most - n, kPlainUnlimited)) : kPlainUnlimited);
    if (!most && n == least) {
      net_.call(body, character, body);
      return end;
    }
    body = net_.call(body, character);
  }
}

StateId JsonParts::number(StateId from, bool integer) {
  RuleId& rule = integer ? integer_ : number_;
  if (rule < 0) {
    rule = net_.rule(integer ? "an integer" : "a number");
    free_number(net_, net_.begin(rule), integer, net_.end(rule));
  }
  return net_.call(from, rule);
}

StateId JsonParts::number(StateId from, const NumberRange& range) {
  const int digits_max = range.integer ? kDigitsMax : kBoundedDigitsMax;
  const auto too_many = [&](const Decimal& d) {
    return d.whole.size() + d.fraction.size() > static_cast<size_t>(kDigitsMax);
  };
  std::optional<Bound> least = range.least, most = range.most;
  // A bound beyond what is written at all: it holds by itself, or nothing can be written.
  for (std::optional<Bound>* bound : {&least, &most}) {
    if (!*bound || !too_many((*bound)->value)) continue;
    const bool is_far = (*bound)->value.whole.size() > static_cast<size_t>(kDigitsMax);
    const bool is_open = (*bound)->value.negative == (bound == &least);
    if (!is_far || !is_open)
      throw Error(Errc::bad_request, fmt::format("the bound has more digits than the {} that are written", kDigitsMax));
    bound->reset();
  }
  const auto beyond = [&](const std::optional<Bound>& bound, bool negative) {
    return bound && bound->value.negative == negative && bound->value.whole.size() > static_cast<size_t>(digits_max);
  };
  if (beyond(least, false) || beyond(most, true))
    throw Error(Errc::bad_request, fmt::format("the bound has more digits than the {} that are written", digits_max));
  const StateId end = net_.state();
  const auto between = [&](StateId start, const std::optional<Bound>& low, const std::optional<Bound>& high) {
    Between(net_, low, high, range.integer, digits_max, end).from(start);
  };
  if (!most || !most->value.negative) {
    const std::optional<Bound> low = least && !least->value.negative ? least : std::nullopt;
    if (!low || !most || compare(low->value, most->value) <= 0) between(from, low, most);
  }
  if (!least || least->value.negative) {
    std::optional<Bound> low = most && most->value.negative ? most : std::nullopt;
    if (!low) low = Bound{Decimal{}, true};  // 0 has no sign
    if (!least || compare(low->value, least->value) <= 0) between(net_.literal(from, "-"), low, least);
  }
  return end;
}

RuleId JsonParts::any_rule(int depth) {
  while (static_cast<int>(any_.size()) <= depth) {  // each needs the one below it
    const int d = static_cast<int>(any_.size());
    const RuleId rule = net_.rule(fmt::format("a value of depth {}", d));
    const StateId begin = net_.begin(rule), end = net_.end(rule);
    for (const char* word : {"true", "false", "null"}) net_.literal(begin, word, end);
    net_.jump(string(begin, 0, {}), end);
    net_.jump(number(begin, false), end);
    if (d > 0) {
      net_.jump(any_object(begin, d - 1), end);
      net_.jump(any_array(begin, d - 1), end);
    }
    any_.push_back(rule);
  }
  return any_[static_cast<size_t>(depth)];
}

StateId JsonParts::any(StateId from, int depth) { return net_.call(from, any_rule(depth)); }

StateId JsonParts::any_object(StateId from, int depth) {
  const RuleId inner = any_rule(depth);
  const StateId open = net_.literal(from, "{"), name = net_.state(), end = net_.state();
  net_.literal(open, "}", end);
  net_.jump(open, name);
  const StateId value = net_.call(net_.literal(free_name(name), spelling_.colon), inner);
  net_.literal(value, "}", end);
  net_.literal(value, spelling_.comma, name);
  return end;
}

StateId JsonParts::any_array(StateId from, int depth) {
  const RuleId inner = any_rule(depth);
  const StateId open = net_.literal(from, "["), item = net_.state(), end = net_.state();
  net_.literal(open, "]", end);
  net_.jump(open, item);
  const StateId value = net_.call(item, inner);
  net_.literal(value, "]", end);
  net_.literal(value, spelling_.comma, item);
  return end;
}

StateId JsonParts::free_name(StateId from) {
  if (!spelling_.bare_names) return string(from, 0, {});
  const StateId name = net_.state();
  net_.code_points(from, bare_characters(), name);
  net_.code_points(name, bare_characters(), name);
  return name;
}

std::string JsonParts::spelled(const json::value& value) const { return constraint::spelled(value, spelling_); }

std::string JsonParts::spelled_name(std::string_view name) const { return name_in(spelling_, name); }

StateId JsonParts::other_name(StateId from, const std::vector<std::string>& names) {
  // A tree of the names: along it, everything but its branches leaves it for good, and only an inner place may end.
  struct Place {
    StateId state;
    std::map<uint32_t, size_t> next;
    bool is_name = false;
  };
  const bool bare = spelling_.bare_names;
  const std::string quote = bare ? "" : "\"";
  const CodePoints& characters = bare ? bare_characters() : plain_characters();
  std::vector<Place> tree = {{net_.literal(from, quote), {}, bare}};  // a bare name has a character
  for (const std::string& name : names) {
    size_t place = 0;
    for (size_t i = 0; i < name.size();) {
      const uint32_t c = next_code_point(name, i);
      const auto [it, is_new] = tree[place].next.try_emplace(c, tree.size());
      const size_t next = it->second;
      if (is_new) tree.push_back({net_.state(), {}, false});
      place = next;
    }
    tree[place].is_name = true;
  }
  const StateId end = net_.state(), outside = net_.state();
  net_.code_points(outside, characters, outside);
  net_.literal(outside, quote, end);
  for (const Place& place : tree) {
    CodePoints branches;
    for (const auto& [c, next] : place.next) {
      branches.add(c, c);
      net_.code_points(place.state, CodePoints{{c, c}} & characters, tree[next].state);
    }
    net_.code_points(place.state, branches.complement() & characters, outside);
    if (!place.is_name) net_.literal(place.state, quote, end);
  }
  return end;
}

std::string json_dumps(const json::value& root) { return spelled(root, {}); }

std::string spelled(const json::value& root, const Spelling& spelling) {
  const auto quoted_text = [&](std::string_view s) {
    return spelling.raw ? spelling.quote + std::string(s) + spelling.quote : json_string(s);
  };
  struct Open {  // an array or object whose items are written one after the other
    const json::value* value;
    size_t next = 0;
  };
  std::string text;
  std::vector<Open> open;
  const auto begin = [&](const json::value& v) {
    if (v.is_object() || v.is_array()) {
      text += v.is_object() ? '{' : '[';
      open.push_back({&v, 0});
    } else if (v.is_string()) {
      text += quoted_text({v.get_string().data(), v.get_string().size()});
    } else if (v.is_double()) {
      text += fmt::format("{}", v.get_double());
    } else {
      text += json::serialize(v);
    }
  };
  begin(root);
  while (!open.empty()) {
    Open& o = open.back();
    const bool is_object = o.value->is_object();
    const size_t n = is_object ? o.value->get_object().size() : o.value->get_array().size();
    if (o.next == n) {
      text += is_object ? '}' : ']';
      open.pop_back();
      continue;
    }
    if (o.next > 0) text += spelling.comma;
    const size_t i = o.next++;
    if (!is_object) {
      begin(o.value->get_array()[i]);
      continue;
    }
    const auto& member = *(o.value->get_object().begin() + static_cast<std::ptrdiff_t>(i));
    text += name_in(spelling, {member.key().data(), member.key().size()});
    begin(member.value());
  }
  return text;
}

}  // namespace assay::constraint
