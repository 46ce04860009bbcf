// The tree of a parsed template: plain data, made by the parser, walked by the interpreter.
//   Chains (a + b - c, a.b[c]|d is e, a and b and c) are flat lists, so that only real nesting uses
//   depth.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "assay/chat.h"

namespace assay::chat {

struct Builtin;  // builtins.h

enum class Op : uint8_t { add, sub, mul, div, floordiv, mod, pow, eq, ne, lt, le, gt, ge, in, not_in };

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct CallArgs {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star, double_star;
};

// What follows a value: .name  [index]  [a:b:c]  (args)  |filter  is test
struct Step {
  enum class Kind : uint8_t { attribute, item, slice, call, filter, test };
  Kind kind = Kind::attribute;
  bool negated = false;  // is not
  uint32_t line = 0;
  int32_t name = -1;                 // attribute, filter, test: in the string pool
  const Builtin* builtin = nullptr;  // filter, test; nullptr where none has that name: an error when it is reached
  ExprPtr index[3];                  // item: [0]; slice: any may be missing
  std::unique_ptr<CallArgs> args;
};

struct Expr {
  enum class Kind : uint8_t {
    none,
    boolean,
    integer,
    big,
    real,
    string,  // constants
    name,
    list,
    tuple,
    dict,     // parts; dict: key, value, key, value
    binary,   // parts[0] ops[0] parts[1] ops[1] ..., left to right
    compare,  // the same, as Python chains comparisons
    concat,   // parts joined by ~
    all,
    any,
    negation,  // and, or, not
    minus,
    plus,
    conditional,  // parts: condition, then, else (may be missing)
    postfix,      // parts[0], then steps
    captured,     // the text of the block that a filter block or block set holds
  };
  Kind kind = Kind::none;
  uint32_t line = 0;
  int32_t id = -1;  // string, name, big: in the string pool
  union {
    int64_t integer = 0;
    double real;
  };
  std::vector<ExprPtr> parts;
  std::vector<Op> ops;
  std::vector<Step> steps;
};

// Where an assignment goes: a name, a namespace's attribute, or several of these.
struct Target {
  int32_t name = -1;
  int32_t attribute = -1;  // of the namespace `name`
  std::vector<Target> parts;
  bool is_tuple = false;
};

struct Stmt;
using StmtPtr = std::unique_ptr<Stmt>;
using Body = std::vector<StmtPtr>;

struct MacroDef {
  std::string name;  // empty: a call block's body
  std::vector<int32_t> parameters;
  std::vector<std::string> parameter_names;
  std::vector<ExprPtr> defaults;  // of the last ones
  bool uses_caller = false, uses_kwargs = false, uses_varargs = false;
  bool explicit_caller = false;  // a parameter of that name
  bool caller_needs_default = false;
  Body body;
};

struct Stmt {
  enum class Kind : uint8_t {
    text,
    output,
    if_,
    for_,
    set,
    set_block,
    macro,
    call_block,
    filter_block,
    with,
    block,
    generation,
    break_,
    continue_,
  };
  Kind kind = Kind::text;
  uint32_t line = 0;
  bool recursive = false;
  int32_t id = -1;                  // text: in the string pool; macro: its name
  std::vector<ExprPtr> exprs;       // output; if: conditions; for: iterable, filter (may be missing); set, with: values
  std::vector<Body> bodies;         // if: one more than conditions where there is an else; for: body, else
  std::vector<Target> targets;      // for, set, with
  std::unique_ptr<MacroDef> macro;  // macro, call_block
};

struct Program {
  TemplateLimits limits;
  std::vector<std::string> strings;  // names and string constants, each once
  Body body;
};

}  // namespace assay::chat
