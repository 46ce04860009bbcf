// See grammar.h. Groups call their parser as deep as they are nested, 64 at most; rules are calls in the network, not
// here.
#include "constraint/grammar.h"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "assay/error.h"
#include "assay/utf8.h"

namespace assay::constraint {
namespace {

// How often something comes; no `most`: without end.
struct Times {
  int64_t least = 1;
  std::optional<int64_t> most = 1;
};

// The grammar's text, read from its beginning: what is made of characters alone.
class GrammarReader {
 public:
  explicit GrammarReader(std::string_view text) : text_(text) {}

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(Errc::bad_request, fmt::format("line {}: {}", line_, what));
  }
  bool more() const { return at_ < text_.size(); }
  bool is(char c) const { return more() && text_[at_] == c; }
  bool is(std::string_view s) const { return text_.substr(at_).starts_with(s); }
  bool take(char c) {
    if (!is(c)) return false;
    ++at_;
    return true;
  }
  std::string found() const {
    if (!more()) return "the end";
    return fmt::format("'{}'", text_[at_] >= ' ' && text_[at_] <= '~'
                                   ? std::string(1, text_[at_])
                                   : fmt::format("\\x{:02x}", static_cast<unsigned char>(text_[at_])));
  }

  void blanks(bool past_lines) {
    while (more()) {
      const char c = text_[at_];
      if (c == '#') {
        while (more() && text_[at_] != '\n' && text_[at_] != '\r') ++at_;
      } else if (c == ' ' || c == '\t') {
        ++at_;
      } else if (past_lines && (c == '\n' || c == '\r')) {
        line_ += c == '\n' ? 1 : 0;
        ++at_;
      } else {
        return;
      }
    }
  }

  std::string name() {
    const size_t begin = at_;
    while (more() && is_name(text_[at_])) ++at_;
    if (at_ == begin) fail(fmt::format("needs the name of a rule, found {}", found()));
    return std::string(text_.substr(begin, at_ - begin));
  }

  bool is_name() const { return more() && is_name(text_[at_]); }
  bool is_line_end() const { return is('\n') || is('\r'); }
  bool is_repetition() const { return is('*') || is('+') || is('?') || is('{'); }
  int64_t line() const { return line_; }

  void need(std::string_view text, const std::string& where) {
    if (!is(text)) fail(fmt::format("needs {} {}, found {}", text, where, found()));
    at_ += text.size();
  }

  CodePoints bracket() {
    const bool negated = take('^');
    CodePoints set;
    while (!take(']')) {
      if (!more() || is_line_end()) fail("a [ does not end");
      const uint32_t first = character();
      uint32_t last = first;
      if (is('-') && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        last = character();
      }
      if (last < first) fail("a range ends before it begins");
      set.add(first, last);
    }
    return negated ? set.complement() : set;
  }

  uint32_t character() {
    if (!take('\\')) return next_code_point(text_, at_);
    if (!more()) fail("a \\ before nothing");
    const char letter = text_[at_++];
    switch (letter) {
      case 'x': return hex(2);
      case 'u': return hex(4);
      case 'U': return hex(8);
      case 't': return '\t';
      case 'r': return '\r';
      case 'n': return '\n';
      case '\\':
      case '"':
      case '[':
      case ']': return static_cast<unsigned char>(letter);
      default: --at_; fail(fmt::format("\\{} is no escape", found()));
    }
  }

  // What says how often the part before it comes; none: it comes once.
  std::optional<Times> times() {
    if (take('*')) return Times{0, {}};
    if (take('+')) return Times{1, {}};
    if (take('?')) return Times{0, 1};
    return take('{') ? std::optional(braces()) : std::nullopt;
  }

 private:
  static bool is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  }

  uint32_t hex(int n) {
    uint64_t c = 0;
    for (int i = 0; i < n; ++i) {
      const char d = more() ? text_[at_] : '?';
      const int v = d >= '0' && d <= '9'   ? d - '0'
                    : d >= 'a' && d <= 'f' ? d - 'a' + 10
                    : d >= 'A' && d <= 'F' ? d - 'A' + 10
                                           : -1;
      if (v < 0) fail(fmt::format("needs {} hexadecimal digits, found {}", n, found()));
      c = c * 16 + static_cast<uint64_t>(v);
      ++at_;
    }
    if (c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) fail("an escape stands for no character");
    return static_cast<uint32_t>(c);
  }

  Times braces() {
    const int64_t least = count().value_or(-1);
    if (least < 0) fail(fmt::format("needs a count behind {{, found {}", found()));
    std::optional<int64_t> most = least;
    blanks(false);
    if (take(',')) most = count();
    if (!take('}')) fail(fmt::format("needs }} behind a count, found {}", found()));
    if (most && *most < least) fail(fmt::format("a repetition of at least {} and at most {}", least, *most));
    return {least, most};
  }

  std::optional<int64_t> count() {
    blanks(false);
    const size_t begin = at_;
    int64_t n = 0;
    while (more() && text_[at_] >= '0' && text_[at_] <= '9') {
      n = n * 10 + (text_[at_++] - '0');
      if (n > kGrammarRepeatsMax) fail(fmt::format("a repetition of more than {}", kGrammarRepeatsMax));
    }
    const bool has_any = at_ > begin;
    blanks(false);
    return has_any ? std::optional(n) : std::nullopt;
  }

  std::string_view text_;
  size_t at_ = 0;
  int64_t line_ = 1;
};

class GrammarParser {
 public:
  explicit GrammarParser(std::string_view text) : in_(text) {}

  Network parse() {
    in_.blanks(true);
    while (in_.more()) {
      definition();
      in_.blanks(true);
    }
    for (const auto& [name, known] : rules_) {
      if (!known.is_defined)
        throw Error(Errc::bad_request, fmt::format("line {}: the rule {} is used, but not defined", known.line, name));
    }
    const auto root = rules_.find(std::string("root"));
    if (root == rules_.end()) throw Error(Errc::bad_request, "there is no rule root, with which every answer begins");
    return net_.finish(root->second.rule);
  }

 private:
  struct Known {
    RuleId rule = -1;
    bool is_defined = false;
    int64_t line = 0;
  };

  RuleId add_rule(std::string name) {
    if (++n_rules_ > kGrammarRulesMax) in_.fail(fmt::format("more than {} rules and repetitions", kGrammarRulesMax));
    return net_.rule(std::move(name));
  }

  Known& known(const std::string& name) {
    const auto [it, is_new] = rules_.try_emplace(name);
    if (is_new) it->second = {add_rule("the rule " + name), false, in_.line()};
    return it->second;
  }

  void definition() {
    const std::string rule_name = in_.name();
    in_.blanks(false);
    in_.need("::=", "behind " + rule_name);
    Known& rule = known(rule_name);
    if (rule.is_defined) in_.fail(fmt::format("the rule {} is defined twice", rule_name));
    rule.is_defined = true;
    const RuleId id = rule.rule;
    in_.blanks(true);
    alternatives(net_.begin(id), net_.end(id), 0);
    if (in_.more() && !in_.is_line_end()) in_.fail(fmt::format("needs the end of the rule, found {}", in_.found()));
  }

  void alternatives(StateId from, StateId to, int depth) {
    while (true) {
      net_.jump(sequence(from, depth), to);
      if (!in_.take('|')) return;
      in_.blanks(true);
    }
  }

  StateId sequence(StateId from, int depth) {
    while (in_.is('"') || in_.is('[') || in_.is('(') || in_.is('.') || in_.is_name()) {
      const StateId begin = net_.state();  // nothing leads here yet: what is repeated can become a rule
      const StateId end = element(begin, depth);
      in_.blanks(depth > 0);
      from = repeated(from, begin, end);
      in_.blanks(depth > 0);
    }
    if (in_.is_repetition()) in_.fail(fmt::format("a repetition of nothing: {}", in_.found()));
    if (in_.is('<') || in_.is('!')) in_.fail("tokens as parts of a grammar are not served");
    return from;
  }

  StateId element(StateId from, int depth) {
    if (in_.take('"')) return literal(from);
    const StateId end = net_.state();
    if (in_.take('.')) {
      net_.code_points(from, CodePoints::all(), end);
    } else if (in_.take('[')) {
      net_.code_points(from, in_.bracket(), end);
    } else if (in_.take('(')) {
      if (depth + 1 > kGrammarDepthMax) in_.fail(fmt::format("groups nested deeper than {}", kGrammarDepthMax));
      in_.blanks(true);
      alternatives(from, end, depth + 1);
      in_.need(")", "to end a group");
    } else {
      net_.call(from, known(in_.name()).rule, end);
    }
    return end;
  }

  StateId literal(StateId from) {
    while (!in_.take('"')) {
      if (!in_.more() || in_.is_line_end()) in_.fail("a text in quotes does not end");
      const StateId to = net_.state();
      const uint32_t c = in_.character();
      net_.code_points(from, {{c, c}}, to);
      from = to;
    }
    return from;
  }

  // Joins what stands from `begin` to `end` to `from`, as often as what follows it says; returns the state behind it.
  StateId repeated(StateId from, StateId begin, StateId end) {
    const std::optional<Times> times = in_.times();
    if (!times) {
      net_.jump(from, begin);
      return end;
    }
    in_.blanks(false);
    if (in_.is_repetition()) in_.fail("a repetition of a repetition needs ( )");
    const RuleId rule = add_rule("a repetition");
    net_.jump(net_.begin(rule), begin);
    net_.jump(end, net_.end(rule));
    for (int64_t i = 0; i < times->least; ++i) from = net_.call(from, rule);
    if (!times->most) {
      const StateId loop = net_.state();
      net_.jump(from, loop);
      net_.call(loop, rule, loop);
      return loop;
    }
    const StateId out = net_.state();
    for (int64_t i = times->least; i < *times->most; ++i) {
      net_.jump(from, out);
      from = net_.call(from, rule);
    }
    net_.jump(from, out);
    return out;
  }

  GrammarReader in_;
  int64_t n_rules_ = 0;
  NetworkBuilder net_;
  std::map<std::string, Known> rules_;
};

}  // namespace

Network grammar_network(std::string_view gbnf) {
  if (gbnf.size() > kGrammarBytesMax) {
    throw Error(Errc::bad_request,
                fmt::format("the grammar has {} bytes, {} are served", gbnf.size(), kGrammarBytesMax));
  }
  if (const auto at = find_invalid_utf8(gbnf))
    throw Error(Errc::bad_request, fmt::format("the grammar is no UTF-8: byte {}", *at));
  try {
    return GrammarParser(gbnf).parse();
  } catch (const Error& error) {
    throw Error(error.code, fmt::format("the grammar is refused: {}", error.what()));
  }
}

}  // namespace assay::constraint
