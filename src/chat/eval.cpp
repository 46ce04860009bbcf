// Expressions: what {{ }} computes.
#include "chat/attributes.h"
#include "chat/builtins/numbers.h"
#include "chat/interpreter.h"
#include "chat/ops.h"
#include "chat/print.h"

namespace assay::chat {

namespace {

// An undefined value remembers the name it was asked for, for the error message of whoever uses it.
constexpr int64_t kOfAttribute = int64_t{1} << 40;

}  // namespace

std::string Interpreter::undefined_message(const Value& value) const {
  const int64_t hint = value.as_integer();
  if (hint < 0) return "a value that is used here is undefined";
  const std::string& name = program_.strings[static_cast<size_t>(hint & (kOfAttribute - 1))];
  return hint & kOfAttribute ? "the value has no attribute '" + name + "'" : "'" + name + "' is undefined";
}

Value Interpreter::pooled(int32_t id) {
  Value& value = pooled_[static_cast<size_t>(id)];
  if (!value.is_string()) value = make_text(heap_, program_.strings[static_cast<size_t>(id)], true);
  return value;
}

Value Interpreter::eval(const Expr& expr) {
  const Nest nest(*this, 1);
  heap_.step();
  switch (expr.kind) {
    case Expr::Kind::none: return {};
    case Expr::Kind::boolean: return Value::boolean(expr.integer != 0);
    case Expr::Kind::integer: return Value::integer(expr.integer);
    case Expr::Kind::real: return Value::real(expr.real);
    case Expr::Kind::big: return Value(Kind::big, pooled(expr.id).object());
    case Expr::Kind::string: return pooled(expr.id);
    case Expr::Kind::name: return eval_name(expr);
    case Expr::Kind::list:
    case Expr::Kind::tuple: return eval_list(expr);
    case Expr::Kind::dict: return eval_dict(expr);
    case Expr::Kind::binary: return eval_binary(expr);
    case Expr::Kind::compare: return eval_compare(expr);
    case Expr::Kind::concat: return eval_concat(expr);
    case Expr::Kind::all:
    case Expr::Kind::any: return eval_logic(expr);
    case Expr::Kind::negation: return Value::boolean(!truthy(eval(*expr.parts[0])));
    case Expr::Kind::minus:
    case Expr::Kind::plus: return eval_sign(expr);
    case Expr::Kind::conditional: return eval_conditional(expr);
    case Expr::Kind::postfix: return eval_steps(expr, expr.steps.size());
    case Expr::Kind::captured: return captured_;
  }
  return {};
}

Value Interpreter::eval_name(const Expr& expr) {
  const Value* value = scope_->find(expr.id);
  return value ? *value : Value::undefined(expr.id);
}

Value Interpreter::eval_list(const Expr& expr) {
  ListBuilder items(heap_);
  for (const ExprPtr& part : expr.parts) items.push(eval(*part));
  return items.take(expr.kind == Expr::Kind::list ? Kind::list : Kind::tuple);
}

Value Interpreter::eval_dict(const Expr& expr) {
  DictBuilder items(heap_);
  for (size_t i = 0; i + 1 < expr.parts.size(); i += 2) {
    Value key = eval(*expr.parts[i]);
    items.push(std::move(key), eval(*expr.parts[i + 1]));
  }
  return items.take();
}

Value Interpreter::eval_binary(const Expr& expr) {
  Value left = eval(*expr.parts[0]);
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    const Value right = eval(*expr.parts[i + 1]);
    heap_.step();
    if (expr.ops[i] != Op::mod || !left.is_string()) {
      defined(left);
      defined(right);
    }
    left = binary(heap_, expr.ops[i], left, right);
  }
  return left;
}

Value Interpreter::eval_compare(const Expr& expr) {
  Value left = eval(*expr.parts[0]);
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    Value right = eval(*expr.parts[i + 1]);
    heap_.step();
    const Op op = expr.ops[i];
    if (op == Op::lt || op == Op::le || op == Op::gt || op == Op::ge) {
      defined(left);
      defined(right);
    }
    if (!compare(op, left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Interpreter::eval_concat(const Expr& expr) {
  TextBuilder text(heap_);
  for (const ExprPtr& part : expr.parts) write_text(text, eval(*part));
  return text.take();
}

Value Interpreter::eval_logic(const Expr& expr) {
  const bool stop_at = expr.kind == Expr::Kind::any;
  Value value;
  for (const ExprPtr& part : expr.parts) {
    value = eval(*part);
    if (truthy(value) == stop_at) break;
  }
  return value;
}

Value Interpreter::eval_sign(const Expr& expr) {
  const Value value = eval(*expr.parts[0]);
  defined(value);
  if (!value.is_number()) fail(std::string("bad operand type for a sign: '") + type_name(value) + "'");
  if (expr.kind == Expr::Kind::minus) return negative(value);
  return value.is(Kind::boolean) ? Value::integer(value.as_integer()) : value;
}

Value Interpreter::eval_conditional(const Expr& expr) {
  if (truthy(eval(*expr.parts[0]))) return eval(*expr.parts[1]);
  return expr.parts[2] ? eval(*expr.parts[2]) : Value::undefined();
}

Value Interpreter::eval_steps(const Expr& expr, size_t n_steps) {
  Value value = eval(*expr.parts[0]);
  for (size_t i = 0; i < n_steps; ++i) value = eval_step(expr.steps[i], std::move(value));
  return value;
}

Value Interpreter::eval_step(const Step& step, Value value) {
  heap_.step();
  switch (step.kind) {
    case Step::Kind::attribute: {
      defined(value);
      Value found = attribute(heap_, value, program_.strings[static_cast<size_t>(step.name)]);
      return found.is_undefined() && found.as_integer() < 0 ? Value::undefined(step.name | kOfAttribute) : found;
    }
    case Step::Kind::item: {
      const Value key = eval(*step.index[0]);
      defined(value);
      Value found = item(heap_, value, key);
      const bool names_it = found.is_undefined() && found.as_integer() < 0 && step.index[0]->kind == Expr::Kind::string;
      return names_it ? Value::undefined(step.index[0]->id | kOfAttribute) : found;
    }
    case Step::Kind::slice: return eval_slice(step, value);
    case Step::Kind::call: return eval_call(step, value);
    case Step::Kind::filter: return eval_filter(step, value);
    case Step::Kind::test: return eval_test(step, value);
  }
  return value;
}

Value Interpreter::eval_slice(const Step& step, const Value& value) {
  Value bounds[3];
  for (int i = 0; i < 3; ++i) bounds[i] = step.index[i] ? eval(*step.index[i]) : Value::absent();
  defined(value);
  return slice(heap_, value, bounds[0], bounds[1], bounds[2]);
}

void Interpreter::eval_args(const CallArgs& from, Args& to) {
  for (const ExprPtr& expr : from.positional) to.positional.push_back(eval(*expr));
  for (const auto& [name, expr] : from.named) to.named.emplace_back(name, eval(*expr));
  if (from.star) {
    const Value more = items_of(heap_, eval(*from.star));
    heap_.need(static_cast<int64_t>(more.as<Seq>().items.size() * sizeof(Value)));
    for (const Value& value : more.as<Seq>().items) to.positional.push_back(value);
  }
  if (from.double_star) {
    const Value more = eval(*from.double_star);
    if (!more.is(Kind::dict)) fail(std::string("** needs a mapping, not '") + type_name(more) + "'");
    for (const auto& [key, value] : more.as<Dict>().items) {
      heap_.step(static_cast<int64_t>(1 + from.named.size() / 8));
      for (const auto& [name, unused] : from.named)
        if (key.is_string() && name == bytes_of(key)) fail("the keyword '" + name + "' is given twice");
      to.named.emplace_back(need_text(key, "a keyword").bytes, value);
    }
  }
}

Value Interpreter::eval_call(const Step& step, const Value& function) {
  defined(function);
  Args args;
  eval_args(*step.args, args);
  line_ = step.line;
  return call(function, args);
}

Value Interpreter::eval_filter(const Step& step, const Value& value) {
  Args args;
  if (step.args) eval_args(*step.args, args);
  line_ = step.line;
  if (!step.builtin) fail("no filter named '" + program_.strings[static_cast<size_t>(step.name)] + "'");
  bind(*step.builtin, args);
  return step.builtin->run(*this, value, args);
}

Value Interpreter::eval_test(const Step& step, const Value& value) {
  Args args;
  if (step.args) eval_args(*step.args, args);
  line_ = step.line;
  if (!step.builtin) fail("no test named '" + program_.strings[static_cast<size_t>(step.name)] + "'");
  bind(*step.builtin, args);
  return Value::boolean(truthy(step.builtin->run(*this, value, args)) != step.negated);
}

Value Interpreter::apply_filter(std::string_view name, const Value& value, Args args) {
  const Builtin* filter = find_filter(name);
  if (!filter) fail("no filter named '" + std::string(name) + "'");
  const Nest nest(*this, 1);
  heap_.step();
  bind(*filter, args);
  return filter->run(*this, value, args);
}

bool Interpreter::apply_test(std::string_view name, const Value& value, Args args) {
  const Builtin* test = find_test(name);
  if (!test) fail("no test named '" + std::string(name) + "'");
  heap_.step();
  bind(*test, args);
  return truthy(test->run(*this, value, args));
}

Value Interpreter::call(const Value& function, Args& args) {
  const Nest nest(*this, 1);
  switch (function.kind()) {
    case Kind::function: {
      const auto& method = function.as<Function>();
      bind(*method.builtin, args);
      return method.builtin->run(*this, method.self, args);
    }
    case Kind::macro: {
      const Ref<Macro> macro(&function.as<Macro>());  // the call may drop the name that holds it
      return call_macro(*macro, args);
    }
    case Kind::loop: {
      if (args.positional.size() != 1 || !args.named.empty()) fail("loop() takes one argument");
      const Ref<Loop> loop(&function.as<Loop>());
      return walk_loop(*loop, args[0]);
    }
    case Kind::joiner: {
      auto& joiner = function.as<Joiner>();
      if (!joiner.used) {
        joiner.used = true;
        return make_text(heap_, "", true);
      }
      return joiner.separator;
    }
    default: fail(std::string("'") + type_name(function) + "' object is not callable");
  }
}

}  // namespace assay::chat
