// Filters over sequences and mappings.
#include <algorithm>

#include "chat/attributes.h"
#include "chat/builtins/builtins.h"
#include "chat/builtins/sort.h"
#include "chat/interpreter.h"
#include "chat/ops.h"
#include "chat/print.h"

namespace assay::chat {

namespace {

using I = Interpreter;
using V = const Value&;

// The items, kept alive by the Value they come with.
struct Items {
  Items(I& in, V value) : holder(items_of(in.heap(), value)), all(holder.as<Seq>().items) {}
  Value holder;
  const std::vector<Value>& all;
};

Value as_iterator(I& in, std::vector<Value> items) { return make_list(in.heap(), Kind::iterator, std::move(items)); }

Value folded(I& in, V value, bool case_sensitive) {
  (void)in;
  return case_sensitive || !value.is_string() ? value : change_case(text_of(value), Case::lower);
}

Value length_filter(I&, V self, Args&) { return Value::integer(size_of(self)); }

Value list(I& in, V self, Args&) {
  const Items items(in, self);
  return make_list(in.heap(), Kind::list, items.all);
}

Value first(I& in, V self, Args&) {
  if (self.is(Kind::iterator)) {
    Seq& source = self.as<Seq>();
    return source.next_item < source.items.size() ? source.items[source.next_item++] : Value::undefined();
  }
  if (self.is_string() && !bytes_of(self).empty()) return plain(text_of(item_at(self, 0)));
  const Items items(in, self);
  return items.all.empty() ? Value::undefined() : items.all.front();
}

Value last(I& in, V self, Args&) {
  if (self.is(Kind::iterator)) fail("'generator' object is not reversible");
  const Items items(in, self);
  return items.all.empty() ? Value::undefined() : items.all.back();
}

Value reverse(I& in, V self, Args&) {
  if (self.is_string()) {
    return slice(in.heap(), self, Value(), Value(), Value::integer(-1));
  }
  const Items items(in, self);
  const Kind kind =
      self.is(Kind::iterator) ? Kind::list : Kind::iterator;  // as Python: what cannot be reversed becomes a list
  return make_list(in.heap(), kind, {items.all.rbegin(), items.all.rend()});
}

// Keys for sorting: one or several attributes, letters of either case alike unless asked otherwise.
Value sort_key(I& in, V item, V attribute, bool case_sensitive) {
  if (!attribute.is_string() || bytes_of(attribute).find(',') == std::string::npos)
    return folded(in, walk(in.heap(), item, attribute), case_sensitive);
  ListBuilder keys(in.heap());
  const Value names = split(text_of(attribute), &text_of(make_text(in.heap(), ",", true)), -1);
  for (V name : names.as<Seq>().items) keys.push(folded(in, walk(in.heap(), item, name), case_sensitive));
  return keys.take(Kind::list);
}

std::vector<size_t> sorted_order(I& in, const std::vector<Value>& keys, bool reversed) {
  std::vector<size_t> order(keys.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto before = [&](size_t a, size_t b) {
    in.heap().step();
    if (keys[a].is_undefined() || keys[b].is_undefined()) fail("cannot sort by a value that is undefined");
    return reversed ? less(keys[b], keys[a]) : less(keys[a], keys[b]);
  };
  merge_sort(order, before);
  return order;
}

std::vector<Value> sort_items(I& in, const std::vector<Value>& items, V attribute, bool case_sensitive, bool reversed) {
  ListBuilder keys(in.heap());
  for (V item : items) keys.push(sort_key(in, item, attribute, case_sensitive));
  std::vector<Value> out;
  out.reserve(items.size());
  for (const size_t i : sorted_order(in, keys.items, reversed)) out.push_back(items[i]);
  return out;
}

Value sort(I& in, V self, Args& a) {
  const Items items(in, self);
  return make_list(in.heap(), Kind::list, sort_items(in, items.all, a[2], truthy(a[1]), truthy(a[0])));
}

Value pair_of(I& in, V key, V value) { return make_list(in.heap(), Kind::tuple, {key, value}); }

Value dict_sort(I& in, V self, Args& a) {
  if (!self.is(Kind::dict)) fail(std::string("dictsort needs a mapping, not '") + type_name(self) + "'");
  const bool by_value = !a[1].is_absent() && equal(a[1], make_text(in.heap(), "value", true));
  if (!a[1].is_absent() && !by_value && !equal(a[1], make_text(in.heap(), "key", true)))
    fail("dictsort sorts by 'key' or 'value'");
  const auto& items = self.as<Dict>().items;
  ListBuilder keys(in.heap()), out(in.heap());
  for (const auto& [key, value] : items) keys.push(folded(in, by_value ? value : key, truthy(a[0])));
  for (const size_t i : sorted_order(in, keys.items, truthy(a[2])))
    out.push(pair_of(in, items[i].first, items[i].second));
  return out.take(Kind::list);
}

Value items_filter(I& in, V self, Args&) {
  if (self.is_undefined()) return as_iterator(in, {});
  if (!self.is(Kind::dict)) fail(std::string("items needs a mapping, not '") + type_name(self) + "'");
  ListBuilder pairs(in.heap());
  for (const auto& [key, value] : self.as<Dict>().items) pairs.push(pair_of(in, key, value));
  return pairs.take(Kind::iterator);
}

Value unique(I& in, V self, Args& a) {
  const Items items(in, self);
  ListBuilder out(in.heap()), keys(in.heap());
  for (V item : items.all) {
    Value key = folded(in, walk(in.heap(), item, a[1]), truthy(a[0]));
    if (!hashable(key)) fail(std::string("unhashable type: '") + type_name(key) + "'");
    keys.push(std::move(key));
  }
  // The first of each key: a dict keeps the place of the first and tells which keys are equal.
  DictBuilder builder(in.heap());
  for (size_t i = keys.items.size(); i-- > 0;) builder.push(keys.items[i], Value::integer(static_cast<int64_t>(i)));
  const Value seen = builder.take();
  for (size_t i = 0; i < items.all.size(); ++i) {
    in.heap().step();
    const Value* where = find_key(seen.as<Dict>(), keys.items[i]);
    if (where && where->as_integer() == static_cast<int64_t>(i)) out.push(items.all[i]);
  }
  return out.take(Kind::iterator);
}

Value best(I& in, V self, Args& a, bool largest) {
  const Items items(in, self);
  if (items.all.empty()) return Value::undefined();
  size_t at = 0;
  Value best_key = folded(in, walk(in.heap(), items.all[0], a[1]), truthy(a[0]));
  for (size_t i = 1; i < items.all.size(); ++i) {
    Value key = folded(in, walk(in.heap(), items.all[i], a[1]), truthy(a[0]));
    in.heap().step();
    if (largest ? !less(best_key, key) : !less(key, best_key)) continue;
    at = i;
    best_key = std::move(key);
  }
  return items.all[at];
}
Value min(I& in, V self, Args& a) { return best(in, self, a, false); }
Value max(I& in, V self, Args& a) { return best(in, self, a, true); }

Value sum(I& in, V self, Args& a) {
  const Items items(in, self);
  Value total = a[1].is_absent() ? Value::integer(0) : a[1];
  if (total.is_string()) fail("sum cannot add strings");
  for (V item : items.all) {
    in.heap().step();
    const Value next = walk(in.heap(), item, a[0]);
    if (next.is_undefined()) fail("sum meets an undefined value");
    total = binary(in.heap(), Op::add, total, next);
  }
  return total;
}

// The name of a filter or test at the front of the arguments, and what is left for it.
std::string take_name(Args& a, const char* what) {
  if (a.positional.empty()) fail(std::string(what) + " needs a name");
  std::string name = need_text(a.positional.front(), what).bytes;
  a.positional.erase(a.positional.begin());
  return name;
}

Value map(I& in, V self, Args& a) {
  ListBuilder out(in.heap());
  if (!truthy(self)) return out.take(Kind::iterator);  // Jinja looks before it walks: none is as good as an empty list
  if (a.positional.empty()) {
    Value attribute = Value::absent(), fallback = Value::absent();
    for (const auto& [name, value] : a.named) {
      if (name != "attribute" && name != "default")
        fail("map takes no keyword argument '" + name + "' beside attribute");
      (name == "default" ? fallback : attribute) = value;
    }
    if (attribute.is_absent()) fail("map needs a filter or an attribute");
    const Items items(in, self);
    for (V item : items.all) {
      in.heap().step();
      out.push(walk(in.heap(), item, attribute, fallback));
    }
    return out.take(Kind::iterator);
  }
  const std::string name = take_name(a, "map");
  const Items items(in, self);
  for (V item : items.all) out.push(in.apply_filter(name, item, a));
  return out.take(Kind::iterator);
}

// select, reject and their attr forms.
Value choose(I& in, V self, Args& a, bool wanted, bool by_attribute) {
  ListBuilder out(in.heap());
  if (!truthy(self)) return out.take(Kind::iterator);
  Value attribute = Value::absent();
  if (by_attribute) {
    if (a.positional.empty()) fail("selectattr and rejectattr need an attribute");
    attribute = a.positional.front();
    a.positional.erase(a.positional.begin());
  }
  const bool plain = a.positional.empty();
  const std::string name = plain ? std::string() : take_name(a, "a test's name");
  const Items items(in, self);
  for (V item : items.all) {
    in.heap().step();
    const Value subject = walk(in.heap(), item, attribute);
    if ((plain ? truthy(subject) : in.apply_test(name, subject, a)) == wanted) out.push(item);
  }
  return out.take(Kind::iterator);
}
Value select(I& in, V self, Args& a) { return choose(in, self, a, true, false); }
Value reject(I& in, V self, Args& a) { return choose(in, self, a, false, false); }
Value select_attribute(I& in, V self, Args& a) { return choose(in, self, a, true, true); }
Value reject_attribute(I& in, V self, Args& a) { return choose(in, self, a, false, true); }

Value batch(I& in, V self, Args& a) {
  const int64_t n = need_integer(a[0], "batch's size");
  const Items items(in, self);
  ListBuilder out(in.heap()), row(in.heap());
  for (V item : items.all) {
    if (static_cast<int64_t>(row.items.size()) == n) out.push(row.take(Kind::list));
    row.push(item);
  }
  if (!row.items.empty()) {
    const bool fills = !a[1].is_absent() && !a[1].is(Kind::none);
    while (fills && static_cast<int64_t>(row.items.size()) < n) row.push(a[1]);
    out.push(row.take(Kind::list));
  }
  return out.take(Kind::iterator);
}

Value slice_filter(I& in, V self, Args& a) {
  const int64_t n_slices = need_integer(a[0], "slice's count");
  if (n_slices == 0) fail("slice needs a count that is not zero");
  const Items items(in, self);
  const auto n = static_cast<int64_t>(items.all.size());
  ListBuilder out(in.heap());
  int64_t start = 0;
  for (int64_t i = 0; i < n_slices; ++i) {
    const int64_t size = n / n_slices + (i < n % n_slices ? 1 : 0);
    ListBuilder row(in.heap());
    in.heap().step();
    for (int64_t j = start; j < start + size; ++j) row.push(items.all[static_cast<size_t>(j)]);
    if (!a[1].is_absent() && !a[1].is(Kind::none) && i >= n % n_slices) row.push(a[1]);
    out.push(row.take(Kind::list));
    start += size;
  }
  return out.take(Kind::iterator);
}

Value group_by(I& in, V self, Args& a) {
  const Items items(in, self);
  const bool case_sensitive = truthy(a[2]);
  ListBuilder keys(in.heap()), out(in.heap());
  for (V item : items.all) keys.push(folded(in, walk(in.heap(), item, a[0], a[1]), case_sensitive));
  const auto order = sorted_order(in, keys.items, false);
  for (size_t i = 0; i < order.size();) {
    ListBuilder group(in.heap());
    const size_t head = order[i++];
    group.push(items.all[head]);
    for (; i < order.size() && equal(keys.items[head], keys.items[order[i]]); ++i) group.push(items.all[order[i]]);
    const Value pair = pair_of(in, walk(in.heap(), items.all[head], a[0], a[1]), group.take(Kind::list));
    pair.as<Seq>().group = true;
    out.push(pair);
  }
  return out.take(Kind::list);
}

constexpr Builtin kSequenceFilters[] = {
    {"length", length_filter, "", 0},
    {"count", length_filter, "", 0},
    {"list", list, "", 0},
    {"first", first, "", 0},
    {"last", last, "", 0},
    {"reverse", reverse, "", 0},
    {"sort", sort, "reverse case_sensitive attribute", 0},
    {"dictsort", dict_sort, "case_sensitive by reverse", 0},
    {"items", items_filter, "", 0},
    {"unique", unique, "case_sensitive attribute", 0},
    {"min", min, "case_sensitive attribute", 0},
    {"max", max, "case_sensitive attribute", 0},
    {"sum", sum, "attribute start", 0},
    {"map", map, "*", 0},
    {"select", select, "*", 0},
    {"reject", reject, "*", 0},
    {"selectattr", select_attribute, "*", 0},
    {"rejectattr", reject_attribute, "*", 0},
    {"batch", batch, "linecount fill_with", 1},
    {"slice", slice_filter, "slices fill_with", 1},
    {"groupby", group_by, "attribute default case_sensitive", 1},
};

}  // namespace

std::span<const Builtin> sequence_filters() noexcept { return kSequenceFilters; }

}  // namespace assay::chat
