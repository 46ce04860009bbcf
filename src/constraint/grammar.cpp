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

class GrammarParser {
 public:
  explicit GrammarParser(std::string_view text) : text_(text) {}

  Network parse() {
    blanks(true);
    while (more()) {
      definition();
      blanks(true);
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

  static bool is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  }

  std::string name() {
    const size_t begin = at_;
    while (more() && is_name(text_[at_])) ++at_;
    if (at_ == begin) fail(fmt::format("needs the name of a rule, found {}", found()));
    return std::string(text_.substr(begin, at_ - begin));
  }

  RuleId add_rule(std::string name) {
    if (++n_rules_ > kGrammarRulesMax) fail(fmt::format("more than {} rules and repetitions", kGrammarRulesMax));
    return net_.rule(std::move(name));
  }

  Known& known(const std::string& name) {
    const auto [it, is_new] = rules_.try_emplace(name);
    if (is_new) it->second = {add_rule("the rule " + name), false, line_};
    return it->second;
  }

  void definition() {
    const std::string rule_name = name();
    blanks(false);
    if (!is("::=")) fail(fmt::format("needs ::= behind {}, found {}", rule_name, found()));
    at_ += 3;
    Known& rule = known(rule_name);
    if (rule.is_defined) fail(fmt::format("the rule {} is defined twice", rule_name));
    rule.is_defined = true;
    const RuleId id = rule.rule;
    blanks(true);
    alternatives(net_.begin(id), net_.end(id), 0);
    if (more() && !is('\n') && !is('\r')) fail(fmt::format("needs the end of the rule, found {}", found()));
  }

  void alternatives(StateId from, StateId to, int depth) {
    while (true) {
      net_.jump(sequence(from, depth), to);
      if (!take('|')) return;
      blanks(true);
    }
  }

  StateId sequence(StateId from, int depth) {
    while (is('"') || is('[') || is('(') || is('.') || (more() && is_name(text_[at_]))) {
      const StateId begin = net_.state();  // nothing leads here yet: what is repeated can become a rule
      const StateId end = element(begin, depth);
      blanks(depth > 0);
      from = repeated(from, begin, end);
      blanks(depth > 0);
    }
    if (is('*') || is('+') || is('?') || is('{')) fail(fmt::format("a repetition of nothing: {}", found()));
    if (is('<') || is('!')) fail("tokens as parts of a grammar are not served");
    return from;
  }

  StateId element(StateId from, int depth) {
    if (take('"')) return literal(from);
    const StateId end = net_.state();
    if (take('.')) {
      net_.code_points(from, CodePoints::all(), end);
    } else if (take('[')) {
      net_.code_points(from, bracket(), end);
    } else if (take('(')) {
      if (depth + 1 > kGrammarDepthMax) fail(fmt::format("groups nested deeper than {}", kGrammarDepthMax));
      blanks(true);
      alternatives(from, end, depth + 1);
      if (!take(')')) fail(fmt::format("needs ) to end a group, found {}", found()));
    } else {
      net_.call(from, known(name()).rule, end);
    }
    return end;
  }

  StateId literal(StateId from) {
    while (!take('"')) {
      if (!more() || is('\n') || is('\r')) fail("a text in quotes does not end");
      const StateId to = net_.state();
      const uint32_t c = character();
      net_.code_points(from, {{c, c}}, to);
      from = to;
    }
    return from;
  }

  CodePoints bracket() {
    const bool negated = take('^');
    CodePoints set;
    while (!take(']')) {
      if (!more() || is('\n') || is('\r')) fail("a [ does not end");
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
      case 'x':
        return hex(2);
      case 'u':
        return hex(4);
      case 'U':
        return hex(8);
      case 't':
        return '\t';
      case 'r':
        return '\r';
      case 'n':
        return '\n';
      case '\\':
      case '"':
      case '[':
      case ']':
        return static_cast<unsigned char>(letter);
      default:
        --at_;
        fail(fmt::format("\\{} is no escape", found()));
    }
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

  // Joins what stands from `begin` to `end` to `from`, as often as what follows it says; returns the state behind it.
  StateId repeated(StateId from, StateId begin, StateId end) {
    int64_t least = 1;
    std::optional<int64_t> most = 1;
    if (take('*')) {
      least = 0, most = {};
    } else if (take('+')) {
      most = {};
    } else if (take('?')) {
      least = 0;
    } else if (take('{')) {
      braces(least, most);
    } else {
      net_.jump(from, begin);
      return end;
    }
    blanks(false);
    if (is('*') || is('+') || is('?') || is('{')) fail("a repetition of a repetition needs ( )");
    const RuleId rule = add_rule("a repetition");
    net_.jump(net_.begin(rule), begin);
    net_.jump(end, net_.end(rule));
    for (int64_t i = 0; i < least; ++i) from = net_.call(from, rule);
    if (!most) {
      const StateId loop = net_.state();
      net_.jump(from, loop);
      net_.call(loop, rule, loop);
      return loop;
    }
    const StateId out = net_.state();
    for (int64_t i = least; i < *most; ++i) {
      net_.jump(from, out);
      from = net_.call(from, rule);
    }
    net_.jump(from, out);
    return out;
  }

  void braces(int64_t& least, std::optional<int64_t>& most) {
    least = count().value_or(-1);
    if (least < 0) fail(fmt::format("needs a count behind {{, found {}", found()));
    most = least;
    blanks(false);
    if (take(',')) most = count();
    if (!take('}')) fail(fmt::format("needs }} behind a count, found {}", found()));
    if (most && *most < least) fail(fmt::format("a repetition of at least {} and at most {}", least, *most));
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
  int64_t line_ = 1, n_rules_ = 0;
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
