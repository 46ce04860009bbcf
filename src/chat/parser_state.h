// What the two halves of the parser share: the token stream, the string pool, the depth budget.
// Private to parser*.cpp.
#pragma once

#include <initializer_list>
#include <unordered_map>

#include "assay/error.h"
#include "chat/ast.h"
#include "chat/builtins/builtins.h"
#include "chat/lexer.h"

namespace assay::chat {

class Parser {
 public:
  Parser(const std::string& source, const TemplateLimits& limits)
      : source_(source), tokens_(tokenize(source)), limits_(limits) {}
  std::shared_ptr<const Program> run();

 private:
  // Counts one level of nesting while it lives.
  class Nest {
   public:
    explicit Nest(Parser& parser) : parser_(parser) {
      if (++parser_.depth_ > parser_.limits_.depth_max) {
        --parser_.depth_;
        parser_.error("nested deeper than " + std::to_string(parser_.limits_.depth_max) + " (limit depth_max)");
      }
    }
    ~Nest() { --parser_.depth_; }
    Nest(const Nest&) = delete;
    Nest& operator=(const Nest&) = delete;

   private:
    Parser& parser_;
  };
  // A filter or test that does not exist: an error now, unless an `if` may keep it from being
  // reached.
  struct Unknown {
    size_t offset;
    int frame;
    std::string what;
  };

  // tokens
  const Token& now() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  bool is(Tok type) const { return now().type == type; }
  bool is_name(std::string_view name) const { return is(Tok::name) && now().text == name; }
  Token take() {
    const Token token = now();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool skip(Tok type) {
    if (!is(type)) return false;
    take();
    return true;
  }
  bool skip_name(std::string_view name) {
    if (!is_name(name)) return false;
    take();
    return true;
  }
  Token expect(Tok type);
  [[noreturn]] void error(const std::string& what) const { error(now(), what); }
  [[noreturn]] void error(const Token& token, const std::string& what) const;
  std::string describe(const Token& token) const;
  int32_t intern(const std::string& text);
  int32_t intern(std::string_view text) { return intern(std::string(text)); }
  ExprPtr make(Expr::Kind kind) const;
  ExprPtr wrap(Expr::Kind kind, ExprPtr first) const;

  // expressions (parser_expr.cpp), loosest first
  ExprPtr expression(bool with_conditional = true);
  ExprPtr conditional();
  ExprPtr either();
  ExprPtr both();
  ExprPtr negation();
  ExprPtr comparison();
  ExprPtr sum();
  ExprPtr concatenation();
  ExprPtr product();
  ExprPtr power();
  ExprPtr unary(bool with_filters = true);
  ExprPtr primary();
  ExprPtr tuple(bool with_conditional = true, bool parentheses = false);
  ExprPtr list();
  ExprPtr dict();
  ExprPtr number();
  ExprPtr postfix(ExprPtr base);
  ExprPtr filters_and_tests(ExprPtr base);
  ExprPtr filter_chain(ExprPtr base, bool first_without_pipe);
  std::vector<Step>& steps_of(ExprPtr& base) const;
  void subscript(std::vector<Step>& steps);
  void subscribed(Step& step);
  void filter(std::vector<Step>& steps);
  void test(std::vector<Step>& steps);
  std::unique_ptr<CallArgs> call_args();
  std::string dotted_name();
  bool at_tuple_end() const;
  void note_name(std::string_view name);

  // statements (parser.cpp)
  Body body(std::initializer_list<std::string_view> ends);
  Body block_body(std::initializer_list<std::string_view> ends);
  Body block_body_and_end(std::string_view end);
  void statement(Body& out);
  StmtPtr make_stmt(Stmt::Kind kind) const;
  StmtPtr parse_if();
  StmtPtr parse_for();
  StmtPtr parse_set();
  StmtPtr parse_with();
  StmtPtr parse_macro();
  StmtPtr parse_call_block();
  StmtPtr parse_filter_block();
  StmtPtr parse_block();
  StmtPtr parse_scoped(Stmt::Kind kind, std::string_view end);
  StmtPtr parse_jump(Stmt::Kind kind);
  void signature(MacroDef& macro);
  void macro_body(MacroDef& macro, std::string_view end);
  Target target(bool with_tuple, bool with_namespace);
  Target single_target(bool with_namespace);

  const std::string& source_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  TemplateLimits limits_;
  int depth_ = 0;
  int frame_ = 0;  // loops, macros and other scopes around
  int loops_ = 0;  // loops that break and continue can reach
  std::vector<Unknown> unknown_;
  std::vector<MacroDef*> macros_;
  std::unordered_map<std::string, int32_t> pool_;
  std::shared_ptr<Program> program_ = std::make_shared<Program>();
};

}  // namespace assay::chat
