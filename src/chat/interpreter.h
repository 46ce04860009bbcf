// Walks a template's tree: one Interpreter is one render.
#pragma once

#include <optional>

#include "chat/ast.h"
#include "chat/builtins/builtins.h"
#include "chat/scope.h"
#include "chat/value.h"

namespace assay::chat {

class Interpreter {
 public:
  Interpreter(const Program& program, const TemplateInput& input);
  void run(TextBuilder& out);  // Error(bad_request) names the line

  Heap& heap() noexcept { return heap_; }
  const TemplateInput& input() const noexcept { return input_; }
  Value call(const Value& function, Args& args);
  Value apply_filter(std::string_view name, const Value& value, Args args);  // for map()
  bool apply_test(std::string_view name, const Value& value, Args args);     // for select()
  Value walk_loop(Loop& loop, const Value& items);                           // loop(items) of a recursive loop

 private:
  enum class Flow { next, break_, continue_ };

  // Counts one level of evaluation while it lives, so that no template can use up the machine's
  // stack.
  class Nest {
   public:
    Nest(Interpreter& interpreter, int weight) : depth_(interpreter.depth_), weight_(weight) {
      if ((depth_ += weight_) > interpreter.depth_max_) {
        depth_ -= weight_;
        interpreter.too_deep();
      }
    }
    ~Nest() { depth_ -= weight_; }
    Nest(const Nest&) = delete;
    Nest& operator=(const Nest&) = delete;

   private:
    int& depth_;
    int weight_;
  };
  // Makes another scope or another place for the text, until it is gone.
  template <class T>
  class Swap {
   public:
    Swap(T& place, T now) : place_(place), before_(std::exchange(place, std::move(now))) {}
    ~Swap() { place_ = std::move(before_); }
    Swap(const Swap&) = delete;
    Swap& operator=(const Swap&) = delete;

   private:
    T& place_;
    T before_;
  };
  [[noreturn]] void too_deep() const;

  // expressions (eval.cpp)
  Value eval(const Expr& expr);
  Value eval_name(const Expr& expr);
  Value eval_list(const Expr& expr);
  Value eval_dict(const Expr& expr);
  Value eval_binary(const Expr& expr);
  Value eval_compare(const Expr& expr);
  Value eval_concat(const Expr& expr);
  Value eval_logic(const Expr& expr);
  Value eval_sign(const Expr& expr);
  Value eval_conditional(const Expr& expr);
  Value eval_steps(const Expr& expr, size_t n_steps);
  Value eval_step(const Step& step, Value value);
  Value eval_slice(const Step& step, const Value& value);
  Value eval_call(const Step& step, const Value& function);
  Value eval_filter(const Step& step, const Value& value);
  Value eval_test(const Step& step, const Value& value);
  void eval_args(const CallArgs& from, Args& to);
  Value pooled(int32_t id);
  std::string undefined_message(const Value& value) const;
  void defined(const Value& value) const {
    if (value.is_undefined()) fail(undefined_message(value));
  }

  // statements (interpreter.cpp)
  Flow exec(const Body& body);
  Flow exec(const Stmt& stmt);
  Flow exec_if(const Stmt& stmt);
  Flow exec_for(const Stmt& stmt);
  Flow exec_loop(const Stmt& stmt, Ref<Scope> scope, const Value& iterable, int64_t depth);
  bool run_iterations(const Stmt& stmt, const Ref<Scope>& scope, const Value& items, int64_t depth);
  Flow exec_with(const Stmt& stmt);
  Flow exec_scoped(const Body& body, Ref<Scope> parent);
  Flow exec_captured(const Stmt& stmt);
  void exec_set(const Stmt& stmt);
  void exec_macro(const Stmt& stmt);
  void exec_call_block(const Stmt& stmt);
  Value filtered(const Value& items, const Stmt& stmt, Ref<Scope> scope);
  void assign(const Target& target, const Value& value);
  void assign_attribute(const Target& target, const Value& value);
  Value call_macro(Macro& macro, Args& args);
  void bind_macro(const MacroDef& definition, Scope& scope, Args& args);
  void define_inputs();
  Ref<Scope> new_scope(Ref<Scope> parent);

  const Program& program_;
  const TemplateInput& input_;
  Heap heap_;  // goes last, after everything that refers to it
  std::vector<Value> pooled_;
  Ref<Scope> root_, scope_;
  TextBuilder* out_ = nullptr;
  Value captured_;
  int32_t name_loop_ = -1, name_caller_ = -1, name_kwargs_ = -1, name_varargs_ = -1;
  int depth_ = 0;
  int depth_max_;
  int macro_depth_ = 0;
  uint32_t line_ = 0;
};

}  // namespace assay::chat
