// Statements: what {% %} does.
#include "chat/interpreter.h"

#include <unordered_map>

#include "assay/error.h"
#include "chat/inputs.h"
#include "chat/ops.h"
#include "chat/print.h"

namespace assay::chat {

namespace {

// Evaluation may nest this much deeper than depth_max, which the parser holds one nesting of
// expressions and blocks to: a macro that is depth_max calls deep uses a few levels in each.
constexpr int kLevelsPerDepth = 12;
constexpr int kLoopDepthWeight = 4;

}  // namespace

Interpreter::Interpreter(const Program& program, const TemplateInput& input)
    : program_(program), input_(input), heap_(program.limits), pooled_(program.strings.size()),
      depth_max_(program.limits.depth_max * kLevelsPerDepth) {}

Ref<Scope> Interpreter::new_scope(Ref<Scope> parent) { return Ref<Scope>(heap_.make<Scope>(std::move(parent))); }

void Interpreter::too_deep() const {
  fail("the template nests calls and blocks too deeply (limit depth_max = " +
       std::to_string(program_.limits.depth_max) + ")");
}

void Interpreter::run(TextBuilder& out) {
  try {
    define_inputs();
  } catch (const Error& error) {
    throw Error(error.code, std::string("chat input: ") + error.what());
  }
  try {
    scope_ = new_scope(root_);
    out_ = &out;
    exec(program_.body);
  } catch (const Error& error) {
    throw Error(error.code, "chat template, line " + std::to_string(line_) + ": " + error.what());
  }
}

void Interpreter::define_inputs() {
  root_ = new_scope({});
  std::unordered_map<std::string_view, int32_t> ids;
  for (size_t i = 0; i < program_.strings.size(); ++i) ids.emplace(program_.strings[i], static_cast<int32_t>(i));
  const auto id_of = [&](std::string_view name) {
    const auto it = ids.find(name);
    return it == ids.end() ? -1 : it->second;
  };
  const auto define = [&](std::string_view name, Value value) {
    if (const int32_t id = id_of(name); id >= 0) root_->set(id, std::move(value));
  };
  name_loop_ = id_of("loop");
  name_caller_ = id_of("caller");
  name_kwargs_ = id_of("kwargs");
  name_varargs_ = id_of("varargs");
  for (const Builtin& global : globals()) define(global.name, bound(heap_, &global, Value()));
  define("documents", Value());
  define("bos_token", make_text(heap_, input_.bos_token, true));
  define("eos_token", make_text(heap_, input_.eos_token, true));
  define_values(heap_, input_, define);
}

Interpreter::Flow Interpreter::exec(const Body& body) {
  for (const StmtPtr& stmt : body)
    if (const Flow flow = exec(*stmt); flow != Flow::next) return flow;
  return Flow::next;
}

Interpreter::Flow Interpreter::exec(const Stmt& stmt) {
  heap_.step();
  line_ = stmt.line;
  switch (stmt.kind) {
    case Stmt::Kind::text: out_->add(program_.strings[static_cast<size_t>(stmt.id)], true); return Flow::next;
    case Stmt::Kind::output:
      for (const ExprPtr& expr : stmt.exprs) write_text(*out_, eval(*expr));
      return Flow::next;
    case Stmt::Kind::if_: return exec_if(stmt);
    case Stmt::Kind::for_: return exec_for(stmt);
    case Stmt::Kind::set: exec_set(stmt); return Flow::next;
    case Stmt::Kind::set_block:
    case Stmt::Kind::filter_block: return exec_captured(stmt);
    case Stmt::Kind::macro: exec_macro(stmt); return Flow::next;
    case Stmt::Kind::call_block: exec_call_block(stmt); return Flow::next;
    case Stmt::Kind::with: return exec_with(stmt);
    case Stmt::Kind::block: return exec_scoped(stmt.bodies[0], root_);
    case Stmt::Kind::generation: return exec_scoped(stmt.bodies[0], scope_);
    case Stmt::Kind::break_: return Flow::break_;
    case Stmt::Kind::continue_: return Flow::continue_;
  }
  return Flow::next;
}

Interpreter::Flow Interpreter::exec_if(const Stmt& stmt) {
  const Nest nest(*this, 1);
  for (size_t i = 0; i < stmt.exprs.size(); ++i)
    if (truthy(eval(*stmt.exprs[i]))) return exec(stmt.bodies[i]);
  return stmt.bodies.size() > stmt.exprs.size() ? exec(stmt.bodies.back()) : Flow::next;
}

Interpreter::Flow Interpreter::exec_scoped(const Body& body, Ref<Scope> parent) {
  const Nest nest(*this, 1);
  const Swap<Ref<Scope>> inside(scope_, new_scope(parent));
  return exec(body);
}

Interpreter::Flow Interpreter::exec_for(const Stmt& stmt) { return exec_loop(stmt, scope_, eval(*stmt.exprs[0]), 0); }

Value Interpreter::filtered(const Value& items, const Stmt& stmt, Ref<Scope> scope) {
  ListBuilder kept(heap_);
  const Swap<Ref<Scope>> inside(scope_, new_scope(scope));
  for (const Value& item : items.as<Seq>().items) {
    heap_.step();
    assign(stmt.targets[0], item);
    if (truthy(eval(*stmt.exprs[1]))) kept.push(item);
  }
  return kept.take(Kind::list);
}

Interpreter::Flow Interpreter::exec_loop(const Stmt& stmt, Ref<Scope> scope, const Value& iterable, int64_t depth) {
  const Nest nest(*this, kLoopDepthWeight);
  Value items = items_of(heap_, iterable);
  if (stmt.exprs[1]) items = filtered(items, stmt, scope);
  if (!run_iterations(stmt, scope, items, depth) && stmt.bodies.size() > 1) return exec_scoped(stmt.bodies[1], scope);
  return Flow::next;
}

// Whether any iteration came to its end: if none did, Jinja runs the loop's else, even after a
// break or continue.
bool Interpreter::run_iterations(const Stmt& stmt, const Ref<Scope>& scope, const Value& items, int64_t depth) {
  const Ref<Loop> loop(heap_.make<Loop>(stmt, scope, items, depth));
  const Value loop_value(Kind::loop, loop.get());
  const Swap<Ref<Scope>> inside(scope_, Ref<Scope>());
  bool any_complete = false;
  for (const Value& item : items.as<Seq>().items) {
    heap_.step();
    ++loop->index0;
    scope_ = new_scope(scope);
    if (name_loop_ >= 0) scope_->set(name_loop_, loop_value);
    assign(stmt.targets[0], item);
    const Flow flow = exec(stmt.bodies[0]);
    any_complete |= flow == Flow::next;
    if (flow == Flow::break_) break;
  }
  return any_complete;
}

Value Interpreter::walk_loop(Loop& loop, const Value& items) {
  if (!loop.stmt->recursive) fail("'loop' can be called only in a loop marked recursive");
  if (macro_depth_ >= program_.limits.depth_max) too_deep();
  const Swap<int> deeper(macro_depth_, macro_depth_ + 1);
  TextBuilder text(heap_);
  const Swap<TextBuilder*> into(out_, &text);
  exec_loop(*loop.stmt, loop.scope, items, loop.depth0 + 1);
  return text.take();
}

Interpreter::Flow Interpreter::exec_with(const Stmt& stmt) {
  const Nest nest(*this, 1);
  std::vector<Value> values;
  for (const ExprPtr& expr : stmt.exprs) values.push_back(eval(*expr));
  const Swap<Ref<Scope>> inside(scope_, new_scope(scope_));
  for (size_t i = 0; i < values.size(); ++i) assign(stmt.targets[i], values[i]);
  return exec(stmt.bodies[0]);
}

// A block whose text goes through filters, to a name or to where it stands.
Interpreter::Flow Interpreter::exec_captured(const Stmt& stmt) {
  TextBuilder text(heap_);
  {
    const Swap<TextBuilder*> into(out_, &text);
    if (const Flow flow = exec_scoped(stmt.bodies[0], scope_); flow != Flow::next) return flow;
  }
  const Swap<Value> held(captured_, text.take());
  const Value value = eval(*stmt.exprs[0]);
  if (stmt.kind == Stmt::Kind::set_block)
    assign(stmt.targets[0], value);
  else
    write_text(*out_, value);
  return Flow::next;
}

void Interpreter::exec_set(const Stmt& stmt) { assign(stmt.targets[0], eval(*stmt.exprs[0])); }

void Interpreter::assign(const Target& target, const Value& value) {
  if (target.attribute >= 0) return assign_attribute(target, value);
  if (!target.is_tuple) return scope_->set(target.name, value);
  if (!iterable(value)) fail(std::string("cannot unpack a '") + type_name(value) + "'");
  const Value parts = items_of(heap_, value);
  const auto& items = parts.as<Seq>().items;
  if (items.size() != target.parts.size())
    fail("cannot unpack " + std::to_string(items.size()) + " values into " + std::to_string(target.parts.size()) +
         " names");
  for (size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i]);
}

void Interpreter::assign_attribute(const Target& target, const Value& value) {
  const Value* space = scope_->find(target.name);
  if (!space || !space->is(Kind::space))
    fail("cannot assign an attribute of '" + program_.strings[static_cast<size_t>(target.name)] +
         "': it is no namespace");
  const std::string& name = program_.strings[static_cast<size_t>(target.attribute)];
  auto& items = space->as<Space>().items;
  heap_.step(static_cast<int64_t>(items.size() / 8));
  for (auto& [key, old] : items)
    if (key == name) {
      old = value;
      return;
    }
  heap_.charge(*space->object(), static_cast<int64_t>(sizeof(items[0]) + name.size()));
  items.emplace_back(name, value);
}

void Interpreter::exec_macro(const Stmt& stmt) {
  scope_->set(stmt.id, Value(Kind::macro, heap_.make<Macro>(*stmt.macro, scope_)));
}

void Interpreter::exec_call_block(const Stmt& stmt) {
  const Expr& call_expr = *stmt.exprs[0];
  const Value function = eval_steps(call_expr, call_expr.steps.size() - 1);
  Args args;
  eval_args(*call_expr.steps.back().args, args);
  args.named.emplace_back("caller", Value(Kind::macro, heap_.make<Macro>(*stmt.macro, scope_)));
  defined(function);
  write_text(*out_, call(function, args));
}

Value Interpreter::call_macro(Macro& macro, Args& args) {
  const MacroDef& definition = *macro.definition;
  if (macro_depth_ >= program_.limits.depth_max) too_deep();
  const Swap<int> deeper(macro_depth_, macro_depth_ + 1);
  const Nest nest(*this, 2);
  const uint32_t line = line_;
  const Ref<Scope> scope = new_scope(macro.scope);
  TextBuilder text(heap_);
  {
    const Swap<Ref<Scope>> inside(scope_, scope);
    const Swap<TextBuilder*> into(out_, &text);
    bind_macro(definition, *scope, args);
    exec(definition.body);
  }
  line_ = line;
  return text.take();
}

// Arguments to parameters, by the rules of Jinja's Macro: defaults are evaluated in the macro's own
// scope, later ones see earlier ones.
void Interpreter::bind_macro(const MacroDef& definition, Scope& scope, Args& args) {
  const size_t n = definition.parameters.size();
  const auto named = [&](std::string_view name) {
    heap_.step(static_cast<int64_t>(args.named.size() / 8));
    for (size_t i = 0; i < args.named.size(); ++i)
      if (args.named[i].first == name) {
        Value value = std::move(args.named[i].second);
        args.named.erase(args.named.begin() + static_cast<std::ptrdiff_t>(i));
        return value;
      }
    return Value::absent();
  };
  const std::string title = definition.name.empty() ? "the call block" : "macro '" + definition.name + "'";
  std::vector<bool> missing(n, false);
  bool caller_found = definition.explicit_caller && args.positional.size() >= n;
  for (size_t i = 0; i < n; ++i) {
    const std::string& name = definition.parameter_names[i];
    Value value = i < args.positional.size() ? args.positional[i] : named(name);
    if (i >= args.positional.size() && name == "caller") caller_found = true;
    missing[i] = value.is_absent();
    scope.set(definition.parameters[i], missing[i] ? Value::undefined(definition.parameters[i]) : std::move(value));
  }
  if (definition.uses_caller && !caller_found) {
    Value caller = named("caller");
    scope.set(name_caller_,
              caller.is_absent() || caller.is(Kind::none) ? Value::undefined(name_caller_) : std::move(caller));
  }
  if (definition.uses_kwargs) {
    DictBuilder rest(heap_);
    for (auto& [name, value] : args.named) rest.push(make_text(heap_, name, true), std::move(value));
    scope.set(name_kwargs_, rest.take());
  } else if (!args.named.empty()) {
    fail(title + " takes no keyword argument '" + args.named.front().first + "'");
  }
  if (definition.uses_varargs) {
    std::vector<Value> rest;
    for (size_t i = n; i < args.positional.size(); ++i) rest.push_back(args.positional[i]);
    scope.set(name_varargs_, make_list(heap_, Kind::tuple, std::move(rest)));
  } else if (args.positional.size() > n) {
    fail(title + " takes not more than " + std::to_string(n) + " arguments");
  }
  for (size_t i = 0; i < n; ++i) {
    const size_t first_default = n - definition.defaults.size();
    if (missing[i] && i >= first_default)
      scope.set(definition.parameters[i], eval(*definition.defaults[i - first_default]));
  }
}

}  // namespace assay::chat
