// The statement half of the parser, and its entry.
#include "chat/parser.h"

#include <algorithm>
#include <unordered_set>

#include "base/utf8.h"
#include "chat/parser_state.h"

namespace assay::chat {

std::shared_ptr<const Program> parse_program(std::string_view source, const TemplateLimits& limits) {
  if (source.size() > kTemplateBytesMax)
    throw Error(Errc::bad_file, "chat template: " + std::to_string(source.size()) + " bytes, the limit is " +
                                    std::to_string(kTemplateBytesMax));
  if (!base::is_utf8(source)) throw Error(Errc::bad_file, "chat template: not valid UTF-8");
  const std::string text = normalise_source(source);
  return Parser(text, limits).run();
}

std::shared_ptr<const Program> Parser::run() {
  program_->limits = limits_;
  program_->body = body({});
  if (!unknown_.empty()) syntax_error(source_, unknown_.front().offset, unknown_.front().what);
  return program_;
}

void Parser::error(const Token& token, const std::string& what) const {
  syntax_error(source_, static_cast<size_t>(token.text.data() - source_.data()), what);
}

std::string Parser::describe(const Token& token) const {
  if (token.type == Tok::name) return "'" + std::string(token.text) + "'";
  return std::string("'") + spelling(token.type) + "'";
}

Token Parser::expect(Tok type) {
  if (!is(type)) error(std::string("expected '") + spelling(type) + "', found " + describe(now()));
  return take();
}

int32_t Parser::intern(const std::string& text) {
  const auto [it, fresh] = pool_.try_emplace(text, static_cast<int32_t>(program_->strings.size()));
  if (fresh) program_->strings.push_back(text);
  return it->second;
}

StmtPtr Parser::make_stmt(Stmt::Kind kind) const {
  auto stmt = std::make_unique<Stmt>();
  stmt->kind = kind;
  stmt->line = now().line;
  return stmt;
}

// Statements up to a block whose tag is one of the ends; the tag itself is left to the caller. No
// ends: to the end of the template.
Body Parser::body(std::initializer_list<std::string_view> ends) {
  const Nest nest(*this);
  Body out;
  for (;;) {
    switch (now().type) {
      case Tok::end:
        if (ends.size() == 0) return out;
        error("the template ends inside a block; expected '" + std::string(*(ends.end() - 1)) + "'");
      case Tok::data: {
        StmtPtr text = make_stmt(Stmt::Kind::text);
        text->id = intern(take().text);
        out.push_back(std::move(text));
        break;
      }
      case Tok::variable_begin: {
        take();
        StmtPtr output = make_stmt(Stmt::Kind::output);
        output->exprs.push_back(tuple());
        expect(Tok::variable_end);
        out.push_back(std::move(output));
        break;
      }
      default:
        expect(Tok::block_begin);
        for (const std::string_view end : ends)
          if (is_name(end)) return out;
        statement(out);
        expect(Tok::block_end);
    }
  }
}

Body Parser::block_body(std::initializer_list<std::string_view> ends) {
  skip(Tok::colon);
  expect(Tok::block_end);
  return body(ends);
}

Body Parser::block_body_and_end(std::string_view end) {
  Body out = block_body({end});
  take();
  return out;
}

void Parser::statement(Body& out) {
  const Token tag = expect(Tok::name);
  const std::string_view name = tag.text;
  if (name == "if")
    out.push_back(parse_if());
  else if (name == "for")
    out.push_back(parse_for());
  else if (name == "set")
    out.push_back(parse_set());
  else if (name == "macro")
    out.push_back(parse_macro());
  else if (name == "call")
    out.push_back(parse_call_block());
  else if (name == "filter")
    out.push_back(parse_filter_block());
  else if (name == "with")
    out.push_back(parse_with());
  else if (name == "generation")
    out.push_back(parse_scoped(Stmt::Kind::generation, "endgeneration"));
  else if (name == "block")
    out.push_back(parse_block());
  else if (name == "break")
    out.push_back(parse_jump(Stmt::Kind::break_));
  else if (name == "continue")
    out.push_back(parse_jump(Stmt::Kind::continue_));
  else if (name == "print") {
    StmtPtr output = make_stmt(Stmt::Kind::output);
    while (!is(Tok::block_end)) {
      if (!output->exprs.empty()) expect(Tok::comma);
      output->exprs.push_back(expression());
    }
    out.push_back(std::move(output));
  } else if (name == "include" || name == "import" || name == "from" || name == "extends" || name == "autoescape") {
    throw Error(Errc::unsupported, "chat template, line " + std::to_string(tag.line) + ": the tag '" +
                                       std::string(name) + "' is not supported: a chat template stands alone");
  } else {
    error(tag, "unknown tag '" + std::string(name) + "'");
  }
}

StmtPtr Parser::parse_if() {
  StmtPtr stmt = make_stmt(Stmt::Kind::if_);
  const size_t unknown_before = unknown_.size();
  for (;;) {
    stmt->exprs.push_back(tuple(false));
    stmt->bodies.push_back(block_body({"elif", "else", "endif"}));
    const Token end = take();
    if (end.text == "elif") continue;
    if (end.text == "else") stmt->bodies.push_back(block_body_and_end("endif"));
    break;
  }
  const auto reachable = std::remove_if(unknown_.begin() + static_cast<std::ptrdiff_t>(unknown_before), unknown_.end(),
                                        [this](const Unknown& unknown) { return unknown.frame == frame_; });
  unknown_.erase(reachable, unknown_.end());
  return stmt;
}

StmtPtr Parser::parse_for() {
  StmtPtr stmt = make_stmt(Stmt::Kind::for_);
  const Token first = now();
  stmt->targets.push_back(target(true, false));
  if (first.type == Tok::name && first.text == "loop" && !stmt->targets[0].is_tuple)
    error(first, "cannot assign to 'loop' here");
  if (!skip_name("in")) error("expected 'in', found " + describe(now()));
  stmt->exprs.push_back(tuple(false));
  ++frame_;
  stmt->exprs.push_back(skip_name("if") ? expression() : nullptr);
  stmt->recursive = skip_name("recursive");
  ++loops_;
  stmt->bodies.push_back(block_body({"endfor", "else"}));
  --loops_;
  if (take().text == "else") stmt->bodies.push_back(block_body_and_end("endfor"));
  --frame_;
  return stmt;
}

Target Parser::single_target(bool with_namespace) {
  if (skip(Tok::lparen)) {
    const Nest nest(*this);
    Target inner = target(true, with_namespace);
    expect(Tok::rparen);
    return inner;
  }
  const Token name = expect(Tok::name);
  for (const std::string_view constant : {"true", "false", "none", "True", "False", "None"})
    if (name.text == constant) error(name, "cannot assign to '" + std::string(constant) + "'");
  Target one;
  one.name = intern(name.text);
  if (with_namespace && skip(Tok::dot)) {
    one.attribute = intern(expect(Tok::name).text);
    note_name(name.text);
  }
  return one;
}

Target Parser::target(bool with_tuple, bool with_namespace) {
  Target first = single_target(with_namespace);
  if (!with_tuple || !is(Tok::comma)) return first;
  Target several;
  several.is_tuple = true;
  several.parts.push_back(std::move(first));
  while (skip(Tok::comma)) {
    if (at_tuple_end() || is(Tok::assign)) break;
    several.parts.push_back(single_target(with_namespace));
  }
  return several;
}

StmtPtr Parser::parse_set() {
  StmtPtr stmt = make_stmt(Stmt::Kind::set);
  stmt->targets.push_back(target(true, true));
  if (skip(Tok::assign)) {
    stmt->exprs.push_back(tuple());
    return stmt;
  }
  stmt->kind = Stmt::Kind::set_block;
  stmt->exprs.push_back(filter_chain(make(Expr::Kind::captured), false));
  ++frame_;
  stmt->bodies.push_back(block_body_and_end("endset"));
  --frame_;
  return stmt;
}

StmtPtr Parser::parse_with() {
  StmtPtr stmt = make_stmt(Stmt::Kind::with);
  while (!is(Tok::block_end)) {
    if (!stmt->targets.empty()) expect(Tok::comma);
    stmt->targets.push_back(target(false, false));
    expect(Tok::assign);
    stmt->exprs.push_back(expression());
  }
  ++frame_;
  stmt->bodies.push_back(block_body_and_end("endwith"));
  --frame_;
  return stmt;
}

void Parser::signature(MacroDef& macro) {
  expect(Tok::lparen);
  std::unordered_set<int32_t> seen;
  while (!is(Tok::rparen)) {
    if (!macro.parameters.empty()) expect(Tok::comma);
    const Token name = now();
    const Target parameter = single_target(false);
    if (!seen.insert(parameter.name).second)
      error(name, "the parameter '" + std::string(name.text) + "' is there twice");
    macro.parameters.push_back(parameter.name);
    macro.parameter_names.emplace_back(name.text);
    if (skip(Tok::assign))
      macro.defaults.push_back(expression());
    else if (!macro.defaults.empty())
      error(name, "a parameter without a default behind one with");
    if (name.text == "caller") macro.explicit_caller = true;
    if (name.text == "caller" && macro.defaults.empty()) macro.caller_needs_default = true;
  }
  expect(Tok::rparen);
}

void Parser::macro_body(MacroDef& macro, std::string_view end) {
  macros_.push_back(&macro);
  const int loops = std::exchange(loops_, 0);
  ++frame_;
  const Token start = now();
  macro.body = block_body_and_end(end);
  if (macro.uses_caller && macro.caller_needs_default)
    error(start, "the parameter 'caller' must be left out or have a default");
  --frame_;
  loops_ = loops;
  macros_.pop_back();
}

StmtPtr Parser::parse_macro() {
  StmtPtr stmt = make_stmt(Stmt::Kind::macro);
  const Token name = expect(Tok::name);
  stmt->id = intern(name.text);
  stmt->macro = std::make_unique<MacroDef>();
  stmt->macro->name = std::string(name.text);
  signature(*stmt->macro);
  macro_body(*stmt->macro, "endmacro");
  return stmt;
}

StmtPtr Parser::parse_call_block() {
  StmtPtr stmt = make_stmt(Stmt::Kind::call_block);
  stmt->macro = std::make_unique<MacroDef>();
  if (is(Tok::lparen)) signature(*stmt->macro);
  const Token start = now();
  stmt->exprs.push_back(expression());
  const Expr& call = *stmt->exprs.front();
  if (call.kind != Expr::Kind::postfix || call.steps.back().kind != Step::Kind::call) error(start, "expected a call");
  macro_body(*stmt->macro, "endcall");
  return stmt;
}

StmtPtr Parser::parse_filter_block() {
  StmtPtr stmt = make_stmt(Stmt::Kind::filter_block);
  stmt->exprs.push_back(filter_chain(make(Expr::Kind::captured), true));
  ++frame_;
  stmt->bodies.push_back(block_body_and_end("endfilter"));
  --frame_;
  return stmt;
}

StmtPtr Parser::parse_block() {
  const Token name = expect(Tok::name);
  skip_name("scoped");
  if (is_name("required")) error("required blocks need inheritance, which chat templates have not");
  const int loops = std::exchange(loops_, 0);
  StmtPtr stmt = parse_scoped(Stmt::Kind::block, "endblock");
  loops_ = loops;
  skip_name(name.text);
  return stmt;
}

// Blocks whose body is a scope of its own and nothing else.
StmtPtr Parser::parse_scoped(Stmt::Kind kind, std::string_view end) {
  StmtPtr stmt = make_stmt(kind);
  ++frame_;
  const int loops = kind == Stmt::Kind::generation ? std::exchange(loops_, 0) : loops_;
  stmt->bodies.push_back(block_body_and_end(end));
  loops_ = loops;
  --frame_;
  return stmt;
}

StmtPtr Parser::parse_jump(Stmt::Kind kind) {
  if (loops_ == 0) error(tokens_[at_ - 1], "'" + std::string(tokens_[at_ - 1].text) + "' outside of a loop");
  return make_stmt(kind);
}

}  // namespace assay::chat
