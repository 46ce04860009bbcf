// The expression half of the parser: one function per level of binding, as Jinja orders them.
#include <charconv>
#include <unordered_set>

#include "chat/builtins/numbers.h"
#include "chat/parser_state.h"

namespace assay::chat {

namespace {

Step step_of(Step::Kind kind, const Token& token) {
  Step step;
  step.kind = kind;
  step.line = token.line;
  return step;
}

}  // namespace

ExprPtr Parser::make(Expr::Kind kind) const {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = now().line;
  return expr;
}

ExprPtr Parser::wrap(Expr::Kind kind, ExprPtr first) const {
  auto expr = make(kind);
  expr->line = first->line;
  expr->parts.push_back(std::move(first));
  return expr;
}

ExprPtr Parser::expression(bool with_conditional) { return with_conditional ? conditional() : either(); }

ExprPtr Parser::conditional() {
  const Nest nest(*this);
  const size_t unknown_before = unknown_.size();
  ExprPtr value = either();
  while (skip_name("if")) {
    ExprPtr whole = make(Expr::Kind::conditional);
    whole->parts.push_back(either());
    whole->parts.push_back(std::move(value));
    if (skip_name("else"))
      whole->parts.push_back(conditional());
    else
      whole->parts.emplace_back();
    value = std::move(whole);
    unknown_.resize(unknown_before);
  }
  return value;
}

ExprPtr Parser::either() {
  ExprPtr left = both();
  if (!is_name("or")) return left;
  ExprPtr any = wrap(Expr::Kind::any, std::move(left));
  while (skip_name("or")) any->parts.push_back(both());
  return any;
}

ExprPtr Parser::both() {
  ExprPtr left = negation();
  if (!is_name("and")) return left;
  ExprPtr all = wrap(Expr::Kind::all, std::move(left));
  while (skip_name("and")) all->parts.push_back(negation());
  return all;
}

ExprPtr Parser::negation() {
  if (!skip_name("not")) return comparison();
  const Nest nest(*this);
  return wrap(Expr::Kind::negation, negation());
}

ExprPtr Parser::comparison() {
  ExprPtr left = sum();
  ExprPtr whole;
  for (;;) {
    Op op;
    if (is(Tok::eq))
      op = Op::eq;
    else if (is(Tok::ne))
      op = Op::ne;
    else if (is(Tok::lt))
      op = Op::lt;
    else if (is(Tok::le))
      op = Op::le;
    else if (is(Tok::gt))
      op = Op::gt;
    else if (is(Tok::ge))
      op = Op::ge;
    else if (is_name("in"))
      op = Op::in;
    else if (is_name("not") && ahead().type == Tok::name && ahead().text == "in")
      op = Op::not_in;
    else
      break;
    take();
    if (op == Op::not_in) take();
    if (!whole) whole = wrap(Expr::Kind::compare, std::move(left));
    whole->ops.push_back(op);
    whole->parts.push_back(sum());
  }
  return whole ? std::move(whole) : std::move(left);
}

ExprPtr Parser::sum() {
  ExprPtr left = concatenation();
  if (!is(Tok::add) && !is(Tok::sub)) return left;
  ExprPtr whole = wrap(Expr::Kind::binary, std::move(left));
  while (is(Tok::add) || is(Tok::sub)) {
    whole->ops.push_back(take().type == Tok::add ? Op::add : Op::sub);
    whole->parts.push_back(concatenation());
  }
  return whole;
}

ExprPtr Parser::concatenation() {
  ExprPtr left = product();
  if (!is(Tok::tilde)) return left;
  ExprPtr whole = wrap(Expr::Kind::concat, std::move(left));
  while (skip(Tok::tilde)) whole->parts.push_back(product());
  return whole;
}

ExprPtr Parser::product() {
  ExprPtr left = power();
  ExprPtr whole;
  for (;;) {
    Op op;
    if (is(Tok::mul))
      op = Op::mul;
    else if (is(Tok::div))
      op = Op::div;
    else if (is(Tok::floordiv))
      op = Op::floordiv;
    else if (is(Tok::mod))
      op = Op::mod;
    else
      break;
    take();
    if (!whole) whole = wrap(Expr::Kind::binary, std::move(left));
    whole->ops.push_back(op);
    whole->parts.push_back(power());
  }
  return whole ? std::move(whole) : std::move(left);
}

ExprPtr Parser::power() {
  ExprPtr left = unary();
  if (!is(Tok::pow)) return left;
  ExprPtr whole = wrap(Expr::Kind::binary, std::move(left));
  while (skip(Tok::pow)) {
    whole->ops.push_back(Op::pow);
    whole->parts.push_back(unary());
  }
  return whole;
}

ExprPtr Parser::unary(bool with_filters) {
  ExprPtr value;
  if (is(Tok::sub) || is(Tok::add)) {
    const Nest nest(*this);
    const auto kind = take().type == Tok::sub ? Expr::Kind::minus : Expr::Kind::plus;
    value = wrap(kind, unary(false));
  } else {
    value = primary();
  }
  value = postfix(std::move(value));
  return with_filters ? filters_and_tests(std::move(value)) : std::move(value);
}

ExprPtr Parser::primary() {
  ExprPtr value;
  switch (now().type) {
    case Tok::name: {
      const std::string_view name = now().text;
      if (name == "true" || name == "True" || name == "false" || name == "False") {
        value = make(Expr::Kind::boolean);
        value->integer = name == "true" || name == "True";
      } else if (name == "none" || name == "None") {
        value = make(Expr::Kind::none);
      } else {
        value = make(Expr::Kind::name);
        value->id = intern(name);
        note_name(name);
      }
      take();
      return value;
    }
    case Tok::string: {
      value = make(Expr::Kind::string);
      std::string text;
      while (is(Tok::string)) text += unescape(take(), source_);
      value->id = intern(text);
      return value;
    }
    case Tok::integer:
    case Tok::real: return number();
    case Tok::lparen:
      take();
      value = tuple(true, true);
      expect(Tok::rparen);
      return value;
    case Tok::lbracket: return list();
    case Tok::lbrace: return dict();
    default: error("unexpected " + describe(now()));
  }
}

// A name that makes a macro take its caller or the arguments beyond its parameters.
void Parser::note_name(std::string_view name) {
  for (MacroDef* macro : macros_) {
    macro->uses_caller |= name == "caller";
    macro->uses_kwargs |= name == "kwargs";
    macro->uses_varargs |= name == "varargs";
  }
}

ExprPtr Parser::number() {
  const Token token = take();
  std::string digits;
  for (const char c : token.text)
    if (c != '_') digits.push_back(c);
  ExprPtr value = make(Expr::Kind::integer);
  value->line = token.line;
  if (token.type == Tok::real) {
    value->kind = Expr::Kind::real;
    value->real = parse_real(digits);
    return value;
  }
  const char base = digits.size() > 1 ? static_cast<char>(digits[1] | 0x20) : ' ';
  const int radix = base == 'x' ? 16 : base == 'o' ? 8 : base == 'b' ? 2 : 10;
  const char* first = digits.data() + (radix == 10 ? 0 : 2);
  const auto result = std::from_chars(first, digits.data() + digits.size(), value->integer, radix);
  if (result.ec == std::errc::result_out_of_range) {
    if (radix != 10) error(token, "an integer beyond 64 bits");
    value->kind = Expr::Kind::big;
    value->id = intern(digits);
  }
  return value;
}

bool Parser::at_tuple_end() const { return is(Tok::variable_end) || is(Tok::block_end) || is(Tok::rparen); }

ExprPtr Parser::tuple(bool with_conditional, bool parentheses) {
  ExprPtr whole = make(Expr::Kind::tuple);
  bool is_tuple = false;
  for (;;) {
    if (!whole->parts.empty()) expect(Tok::comma);
    if (at_tuple_end()) break;
    whole->parts.push_back(expression(with_conditional));
    if (!is(Tok::comma)) break;
    is_tuple = true;
  }
  if (is_tuple) return whole;
  if (!whole->parts.empty()) return std::move(whole->parts.front());
  if (!parentheses) error("expected an expression, found " + describe(now()));
  return whole;
}

ExprPtr Parser::list() {
  ExprPtr whole = make(Expr::Kind::list);
  expect(Tok::lbracket);
  while (!is(Tok::rbracket)) {
    if (!whole->parts.empty()) expect(Tok::comma);
    if (is(Tok::rbracket)) break;
    whole->parts.push_back(expression());
  }
  expect(Tok::rbracket);
  return whole;
}

ExprPtr Parser::dict() {
  ExprPtr whole = make(Expr::Kind::dict);
  expect(Tok::lbrace);
  while (!is(Tok::rbrace)) {
    if (!whole->parts.empty()) expect(Tok::comma);
    if (is(Tok::rbrace)) break;
    whole->parts.push_back(expression());
    expect(Tok::colon);
    whole->parts.push_back(expression());
  }
  expect(Tok::rbrace);
  return whole;
}

std::vector<Step>& Parser::steps_of(ExprPtr& base) const {
  if (base->kind != Expr::Kind::postfix) base = wrap(Expr::Kind::postfix, std::move(base));
  return base->steps;
}

ExprPtr Parser::postfix(ExprPtr base) {
  for (;;) {
    if (is(Tok::dot) || is(Tok::lbracket)) {
      subscript(steps_of(base));
    } else if (is(Tok::lparen)) {
      Step step = step_of(Step::Kind::call, now());
      step.args = call_args();
      steps_of(base).push_back(std::move(step));
    } else {
      return base;
    }
  }
}

ExprPtr Parser::filters_and_tests(ExprPtr base) {
  for (;;) {
    if (is(Tok::pipe)) {
      take();
      filter(steps_of(base));
    } else if (is_name("is")) {
      test(steps_of(base));
    } else if (is(Tok::lparen)) {
      Step step = step_of(Step::Kind::call, now());
      step.args = call_args();
      steps_of(base).push_back(std::move(step));
    } else {
      return base;
    }
  }
}

// |a|b(c): the filters of a filter block or a block set.
ExprPtr Parser::filter_chain(ExprPtr base, bool first_without_pipe) {
  while (is(Tok::pipe) || first_without_pipe) {
    if (!first_without_pipe) take();
    first_without_pipe = false;
    filter(steps_of(base));
  }
  return base;
}

void Parser::subscript(std::vector<Step>& steps) {
  const Token token = take();
  Step step = step_of(Step::Kind::attribute, token);
  if (token.type == Tok::dot) {
    if (is(Tok::integer)) {
      step.kind = Step::Kind::item;
      step.index[0] = number();
    } else if (is(Tok::name)) {
      step.name = intern(take().text);
    } else {
      error("expected a name or a number behind the dot");
    }
    steps.push_back(std::move(step));
    return;
  }
  step.kind = Step::Kind::item;
  subscribed(step);
  if (is(Tok::comma) || is(Tok::rbracket)) {
    ExprPtr several =
        is(Tok::comma) && step.kind == Step::Kind::item ? wrap(Expr::Kind::tuple, std::move(step.index[0])) : nullptr;
    while (several && skip(Tok::comma)) {
      if (is(Tok::rbracket)) error("expected an index behind the comma");
      several->parts.push_back(expression());
    }
    if (several) step.index[0] = std::move(several);
  }
  expect(Tok::rbracket);
  steps.push_back(std::move(step));
}

void Parser::subscribed(Step& step) {
  if (is(Tok::rbracket)) {
    step.index[0] = make(Expr::Kind::tuple);
    return;
  }
  if (!is(Tok::colon)) {
    step.index[0] = expression();
    if (!is(Tok::colon)) return;
  }
  step.kind = Step::Kind::slice;
  for (int i = 1; i < 3 && skip(Tok::colon); ++i)
    if (!is(Tok::colon) && !is(Tok::rbracket) && !is(Tok::comma)) step.index[i] = expression();
}

std::string Parser::dotted_name() {
  std::string name(expect(Tok::name).text);
  while (skip(Tok::dot)) name.append(".").append(expect(Tok::name).text);
  return name;
}

void Parser::filter(std::vector<Step>& steps) {
  const Token token = now();
  const std::string name = dotted_name();
  Step step = step_of(Step::Kind::filter, token);
  step.name = intern(name);
  step.builtin = find_filter(name);
  if (!step.builtin)
    unknown_.push_back(
        {static_cast<size_t>(token.text.data() - source_.data()), frame_, "no filter named '" + name + "'"});
  if (is(Tok::lparen)) step.args = call_args();
  steps.push_back(std::move(step));
}

void Parser::test(std::vector<Step>& steps) {
  const Token token = take();
  const bool negated = skip_name("not");
  const std::string name = dotted_name();
  Step step = step_of(Step::Kind::test, token);
  step.negated = negated;
  step.name = intern(name);
  step.builtin = find_test(name);
  if (!step.builtin)
    unknown_.push_back(
        {static_cast<size_t>(token.text.data() - source_.data()), frame_, "no test named '" + name + "'"});
  if (is(Tok::lparen)) {
    step.args = call_args();
  } else if ((is(Tok::name) && !is_name("else") && !is_name("or") && !is_name("and")) || is(Tok::string) ||
             is(Tok::integer) || is(Tok::real) || is(Tok::lbracket) || is(Tok::lbrace)) {
    if (is_name("is")) error("tests cannot be chained with 'is'");
    const Nest nest(*this);
    step.args = std::make_unique<CallArgs>();
    step.args->positional.push_back(postfix(primary()));
  }
  steps.push_back(std::move(step));
}

std::unique_ptr<CallArgs> Parser::call_args() {
  const Token open = expect(Tok::lparen);
  auto args = std::make_unique<CallArgs>();
  const auto ensure = [&](bool ok) {
    if (!ok) error(open, "the arguments of this call are out of order");
  };
  bool first = true;
  std::unordered_set<std::string_view> names;
  while (!is(Tok::rparen)) {
    if (!first) expect(Tok::comma);
    if (is(Tok::rparen) && !first) break;
    first = false;
    if (skip(Tok::mul)) {
      ensure(!args->star && !args->double_star);
      args->star = expression();
    } else if (skip(Tok::pow)) {
      ensure(!args->double_star);
      args->double_star = expression();
    } else if (is(Tok::name) && ahead().type == Tok::assign) {
      ensure(!args->double_star);
      const Token name = take();
      take();
      if (!names.insert(name.text).second) error(name, "the keyword '" + std::string(name.text) + "' is given twice");
      args->named.emplace_back(std::string(name.text), expression());
    } else {
      ensure(!args->star && !args->double_star && args->named.empty());
      args->positional.push_back(expression());
    }
  }
  expect(Tok::rparen);
  return args;
}

}  // namespace assay::chat
