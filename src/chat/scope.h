// Names while a template runs, and the values that hold on to them: macros and loops.
#pragma once

#include "chat/ast.h"
#include "chat/value.h"

namespace assay::chat {

struct Scope final : Object {
  explicit Scope(Heap& owner, Ref<Scope> outer = {}) : Object(owner), parent(std::move(outer)) {}
  void clear() noexcept override {
    names.clear();
    parent = Ref<Scope>();
  }
  void set(int32_t name, Value value) {
    heap.step(static_cast<int64_t>(names.size() / 16));
    for (auto& [id, old] : names)
      if (id == name) {
        old = std::move(value);
        return;
      }
    heap.charge(*this, static_cast<int64_t>(sizeof(names[0])));
    names.emplace_back(name, std::move(value));
  }
  const Value* find(int32_t name) const {
    for (const Scope* scope = this; scope; scope = scope->parent.get()) {
      heap.step(static_cast<int64_t>(scope->names.size() / 16));
      for (const auto& [id, value] : scope->names)
        if (id == name) return &value;
    }
    return nullptr;
  }

  std::vector<std::pair<int32_t, Value>> names;
  Ref<Scope> parent;
};

struct Macro final : Object {
  Macro(Heap& owner, const MacroDef& what, Ref<Scope> where)
      : Object(owner), definition(&what), scope(std::move(where)) {}
  void clear() noexcept override { scope = Ref<Scope>(); }
  const MacroDef* definition;
  Ref<Scope> scope;  // where it was defined
};

struct Loop final : Object {
  Loop(Heap& owner, const Stmt& statement, Ref<Scope> where, Value all, int64_t depth_of_recursion)
      : Object(owner), stmt(&statement), scope(std::move(where)), items(std::move(all)), depth0(depth_of_recursion) {}
  void clear() noexcept override {
    scope = Ref<Scope>();
    items = last_changed = Value();
  }
  int64_t length() const noexcept { return static_cast<int64_t>(items.as<Seq>().items.size()); }
  const Stmt* stmt;
  Ref<Scope> scope;
  Value items;
  Value last_changed = Value::absent();
  int64_t index0 = -1;
  int64_t depth0;
};

}  // namespace assay::chat
