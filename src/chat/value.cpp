// The heap of one render, and the containers on it.
#include "chat/value.h"

#include <algorithm>
#include <cstring>

#include "assay/error.h"
#include "chat/builtins/numbers.h"

namespace assay::chat {

void fail(const std::string& what) { throw Error(Errc::bad_request, what); }

Object::Object(Heap& owner) noexcept : heap(owner), next(owner.first_) {
  if (next) next->previous = this;
  owner.first_ = this;
}

Object::~Object() { heap.refund(charged_bytes); }

Heap::Heap(const TemplateLimits& limits) : limits_(limits) {}

Heap::~Heap() {
  characters_.clear();
  // Whatever is left holds itself up in cycles. Each keeps one extra reference while all let go of
  // each other.
  for (Object* object = first_; object; object = object->next) ++object->refs;
  for (Object* object = first_; object; object = object->next) object->clear();
  while (first_) {
    Object* object = first_;
    first_ = object->next;
    delete object;
  }
}

void Heap::reclaim(Object* object) noexcept {
  (object->previous ? object->previous->next : first_) = object->next;
  if (object->next) object->next->previous = object->previous;
  object->next = doomed_;
  doomed_ = object;
  if (draining_) return;
  draining_ = true;
  while (doomed_) {
    Object* victim = doomed_;
    doomed_ = victim->next;
    delete victim;
  }
  draining_ = false;
}

Value Heap::character(char c, bool own) {
  if (characters_.empty()) characters_.resize(256);
  Value& cached = characters_[static_cast<unsigned char>(c) % 128u + (own ? 128u : 0u)];
  if (!cached.is_string()) cached = make_text(*this, std::string_view(&c, 1), own);
  return cached;
}

void Heap::over_steps() const {
  fail("the template takes more than " + std::to_string(limits_.steps_max) + " steps (limit steps_max)");
}

void Heap::over_bytes(int64_t bytes) const {
  fail("the template's values need " + std::to_string(bytes) + " bytes more than the " + std::to_string(live_bytes_) +
       " they hold, beyond the limit of " + std::to_string(limits_.value_bytes_max) + " (value_bytes_max)");
}

bool Str::own_at(size_t offset) const noexcept {
  if (runs.empty()) return own;
  const auto run = std::upper_bound(runs.begin(), runs.end(), offset, [](size_t o, const Run& r) { return o < r.end; });
  return run == runs.end() ? runs.back().own : run->own;
}

bool Str::all_own() const noexcept {
  if (runs.empty()) return own;
  return std::all_of(runs.begin(), runs.end(), [](const Run& run) { return run.own; });
}

void TextBuilder::account(size_t n) {
  heap_.work(n);
  if (bytes_max_ >= 0) {
    if (static_cast<int64_t>(bytes_.size() + n) > bytes_max_)
      fail("the prompt text is longer than " + std::to_string(bytes_max_) + " bytes (limit output_bytes_max)");
    return;
  }
  heap_.charge(static_cast<int64_t>(n));
  charged_bytes_ += static_cast<int64_t>(n);
}

void TextBuilder::add(std::string_view text, bool own) {
  if (text.empty()) return;
  account(text.size());
  bytes_.append(text);
  if (runs_.empty() || runs_.back().own != own) {
    heap_.charge(sizeof(Run));
    charged_bytes_ += sizeof(Run);
    runs_.push_back({bytes_.size(), own});
  }
  runs_.back().end = bytes_.size();
}

void TextBuilder::add(const Str& text, size_t from, size_t to) {
  const std::string_view bytes = text.bytes;
  if (text.runs.empty()) return add(bytes.substr(from, to - from), text.own);
  auto run =
      std::upper_bound(text.runs.begin(), text.runs.end(), from, [](size_t o, const Run& r) { return o < r.end; });
  for (; from < to && run != text.runs.end(); ++run) {
    const size_t end = std::min(run->end, to);
    add(bytes.substr(from, end - from), run->own);
    from = end;
  }
}

void TextBuilder::fill(int64_t n, std::string_view unit, bool own) {
  if (n <= 0 || unit.empty()) return;
  const auto size = static_cast<int64_t>(unit.size());
  if (n > heap_.limits().value_bytes_max / size) heap_.need(heap_.limits().value_bytes_max + 1);
  if (bytes_max_ < 0) heap_.need(n * size);
  constexpr int64_t kChunkBytes = 4096;
  const int64_t n_chunk = std::min(n, std::max<int64_t>(1, kChunkBytes / size));
  std::string chunk;
  for (int64_t i = 0; i < n_chunk; ++i) chunk += unit;
  for (; n >= n_chunk; n -= n_chunk) add(chunk, own);
  add(std::string_view(chunk).substr(0, static_cast<size_t>(n * size)), own);
}

Value TextBuilder::take(bool markup) {
  Str* text = heap_.make<Str>();
  Value value(Kind::string, text);
  heap_.refund(std::exchange(charged_bytes_, 0));
  heap_.charge(*text, static_cast<int64_t>(bytes_.size() + (runs_.size() > 1 ? runs_.size() * sizeof(Run) : 0)));
  text->bytes = std::move(bytes_);
  text->own = runs_.empty() || runs_.front().own;
  if (runs_.size() > 1) text->runs = std::move(runs_);
  text->markup = markup;
  bytes_.clear();
  runs_.clear();
  return value;
}

Value ListBuilder::take(Kind kind, const char* label) {
  Seq* seq = heap_.make<Seq>();
  Value value(kind, seq);
  heap_.refund(std::exchange(charged_bytes_, 0));
  heap_.charge(*seq, static_cast<int64_t>(items.size() * sizeof(Value)));
  seq->items = std::move(items);
  seq->label = label;
  items.clear();
  return value;
}

Value make_text(Heap& heap, std::string_view text, bool own) {
  TextBuilder builder(heap);
  builder.add(text, own);
  return builder.take();
}

Value make_list(Heap& heap, Kind kind, std::vector<Value> items) {
  Seq* seq = heap.make<Seq>();
  Value value(kind, seq);
  heap.charge(*seq, static_cast<int64_t>(items.size() * sizeof(Value)));
  seq->items = std::move(items);
  return value;
}

namespace {

constexpr size_t kSmallDict = 8;  // up to here keys are looked for one by one

// A total order over keys, for looking them up only. Numbers of all types come first, by value:
// 1, 1.0 and true are one key.
int key_class(const Value& key) noexcept {
  switch (key.kind()) {
    case Kind::boolean:
    case Kind::integer:
    case Kind::real: return 0;
    case Kind::string: return 1;
    case Kind::none: return 2;
    case Kind::tuple: return 3;
    case Kind::big: return 4;
    default: return 5;
  }
}

int compare_number_keys(const Value& a, const Value& b) noexcept {
  const bool nan_a = !a.is_integral() && a.as_real() != a.as_real(),
             nan_b = !b.is_integral() && b.as_real() != b.as_real();
  if (nan_a || nan_b) return static_cast<int>(nan_a) - static_cast<int>(nan_b);  // NaN last
  return compare_numbers(a, b);
}

int compare_keys(const Value& a, const Value& b, int depth = 0) {
  const int class_a = key_class(a), class_b = key_class(b);
  if (class_a != class_b) return class_a < class_b ? -1 : 1;
  switch (class_a) {
    case 0: return compare_number_keys(a, b);
    case 1: return bytes_of(a).compare(bytes_of(b));
    case 2: return 0;
    case 3: {
      a.object()->heap.step();
      if (depth > 50) fail("a dict key is nested too deeply");
      const auto& x = a.as<Seq>().items;
      const auto& y = b.as<Seq>().items;
      for (size_t i = 0; i < x.size() && i < y.size(); ++i)
        if (const int c = compare_keys(x[i], y[i], depth + 1)) return c;
      return x.size() < y.size() ? -1 : x.size() > y.size();
    }
    case 4: return bytes_of(a).compare(bytes_of(b));
    default: return a.object() < b.object() ? -1 : a.object() > b.object();
  }
}

}  // namespace

bool hashable(const Value& value) {
  const Value* item = &value;
  std::vector<const Value*> pending;  // tuples may nest as deep as they like
  for (;;) {
    switch (item->kind()) {
      case Kind::list:
      case Kind::dict:
      case Kind::view: return false;
      case Kind::tuple:
        item->object()->heap.step(1 + static_cast<int64_t>(item->as<Seq>().items.size()));
        for (const Value& part : item->as<Seq>().items) pending.push_back(&part);
        break;
      default: break;
    }
    if (pending.empty()) return true;
    item = pending.back();
    pending.pop_back();
  }
}

void DictBuilder::push(Value key, Value value) {
  if (key.is_sequence() || key.is(Kind::dict) || key.is(Kind::view))
    if (!hashable(key)) fail(std::string("unhashable type: '") + type_name(key) + "'");
  constexpr auto kBytes = static_cast<int64_t>(2 * sizeof(Value) + sizeof(uint32_t));
  heap_.charge(kBytes);
  charged_bytes_ += kBytes;
  items_.emplace_back(std::move(key), std::move(value));
}

Value DictBuilder::take() {
  Dict* dict = heap_.make<Dict>();
  Value result(Kind::dict, dict);
  const size_t n = items_.size();
  heap_.refund(std::exchange(charged_bytes_, 0));
  heap_.charge(*dict, static_cast<int64_t>(n * (2 * sizeof(Value) + sizeof(uint32_t))));
  std::vector<uint32_t> order(n);
  for (size_t i = 0; i < n; ++i) order[i] = static_cast<uint32_t>(i);
  heap_.step(static_cast<int64_t>(n));
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return compare_keys(items_[a].first, items_[b].first) < 0; });
  std::vector<bool> dropped(n, false);
  bool any_dropped = false;
  for (size_t i = 1, first = 0; i < n; ++i) {
    if (compare_keys(items_[order[first]].first, items_[order[i]].first) != 0) {
      first = i;
      continue;
    }
    items_[order[first]].second = items_[order[i]].second;
    dropped[order[i]] = any_dropped = true;
  }
  if (any_dropped) {
    std::vector<uint32_t> place(n);
    uint32_t n_kept = 0;
    for (size_t i = 0; i < n; ++i) {
      place[i] = n_kept;
      if (dropped[i]) continue;
      if (n_kept != i) items_[n_kept] = std::move(items_[i]);
      ++n_kept;
    }
    items_.resize(n_kept);
    std::erase_if(order, [&](uint32_t i) { return dropped[i]; });
    for (uint32_t& i : order) i = place[i];
  }
  dict->items = std::move(items_);
  if (dict->items.size() > kSmallDict) dict->order = std::move(order);
  items_.clear();
  return result;
}

const Value* find_key(const Dict& dict, const Value& key) {
  if (dict.items.size() <= kSmallDict) {
    for (const auto& [k, v] : dict.items)
      if (compare_keys(k, key) == 0) return &v;
    return nullptr;
  }
  const auto it = std::lower_bound(dict.order.begin(), dict.order.end(), key, [&](uint32_t i, const Value& wanted) {
    return compare_keys(dict.items[i].first, wanted) < 0;
  });
  if (it == dict.order.end() || compare_keys(dict.items[*it].first, key) != 0) return nullptr;
  return &dict.items[*it].second;
}

const Value* find_key(const Dict& dict, std::string_view key) {
  const auto is_key = [&](const Value& k) { return k.is_string() && bytes_of(k) == key; };
  if (dict.items.size() <= kSmallDict) {
    for (const auto& [k, v] : dict.items)
      if (is_key(k)) return &v;
    return nullptr;
  }
  const auto before = [&](uint32_t i, std::string_view wanted) {
    const Value& k = dict.items[i].first;
    const int c = key_class(k);
    return c < 1 || (c == 1 && std::string_view(bytes_of(k)) < wanted);
  };
  const auto it = std::lower_bound(dict.order.begin(), dict.order.end(), key, before);
  if (it == dict.order.end() || !is_key(dict.items[*it].first)) return nullptr;
  return &dict.items[*it].second;
}

const char* type_name(const Value& value) noexcept {
  switch (value.kind()) {
    case Kind::absent: return "missing";
    case Kind::undefined: return "Undefined";
    case Kind::none: return "NoneType";
    case Kind::boolean: return "bool";
    case Kind::integer:
    case Kind::big: return "int";
    case Kind::real: return "float";
    case Kind::string: return text_of(value).markup ? "Markup" : "str";
    case Kind::list: return "list";
    case Kind::tuple: return "tuple";
    case Kind::dict: return "dict";
    case Kind::range: return "range";
    case Kind::iterator: return value.as<Seq>().label ? value.as<Seq>().label : "generator";
    case Kind::view: return value.as<Seq>().label;
    case Kind::space: return "Namespace";
    case Kind::function: return "function";
    case Kind::macro: return "Macro";
    case Kind::loop: return "LoopContext";
    case Kind::cycler: return "Cycler";
    case Kind::joiner: return "Joiner";
  }
  return "object";
}

}  // namespace assay::chat
