// Values of a template: what expressions make, held on a heap with a budget. Nothing here knows the
// language.
//   One Heap belongs to one render. Values are counted references into it; the budget counts live
//   bytes, so a string that doubles itself stops at the limit while a long conversation that drops
//   its temporaries does not. Cycles (a namespace that holds itself) die with the heap. One thread
//   only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "assay/chat.h"

namespace assay::chat {

[[noreturn]] void fail(const std::string& what);  // Error(bad_request)

class Heap;

struct Object {
  explicit Object(Heap& owner) noexcept;
  virtual ~Object();
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual void clear() noexcept {}  // drops what it refers to

  Heap& heap;
  int64_t refs = 0;
  int64_t charged_bytes = 0;
  Object* previous = nullptr;
  Object* next = nullptr;
};

class Heap {
 public:
  explicit Heap(const TemplateLimits& limits);
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  void step(int64_t n = 1) {
    steps_ += n;
    if (steps_ > limits_.steps_max) over_steps();
  }
  void work(size_t bytes) {  // time that grows with the text touched: a step for every 64 bytes
    work_bytes_ += static_cast<int64_t>(bytes);
    if (work_bytes_ < 64) return;
    step(work_bytes_ >> 6);
    work_bytes_ &= 63;
  }
  // Fails where `bytes` more would break the budget; called before anything large is made.
  void need(int64_t bytes) const {
    if (bytes > limits_.value_bytes_max - live_bytes_) over_bytes(bytes);
  }
  void charge(int64_t bytes) {
    need(bytes);
    live_bytes_ += bytes;
  }
  void refund(int64_t bytes) noexcept { live_bytes_ -= bytes; }
  void charge(Object& object, int64_t bytes) {
    charge(bytes);
    object.charged_bytes += bytes;
  }
  template <class T, class... A>
  T* make(A&&... args) {
    charge(static_cast<int64_t>(sizeof(T)));
    T* object = nullptr;
    try {
      object = new T(*this, std::forward<A>(args)...);
    } catch (...) {
      refund(static_cast<int64_t>(sizeof(T)));
      throw;
    }
    object->charged_bytes = static_cast<int64_t>(sizeof(T));
    return object;
  }
  void reclaim(Object* object) noexcept;  // its last reference is gone
  const TemplateLimits& limits() const noexcept { return limits_; }
  class Value character(char c, bool own);  // an ASCII character; made once

 private:
  friend struct Object;
  [[noreturn]] void over_steps() const;
  [[noreturn]] void over_bytes(int64_t bytes) const;

  TemplateLimits limits_;
  int64_t steps_ = 0;
  int64_t work_bytes_ = 0;
  int64_t live_bytes_ = 0;
  Object* first_ = nullptr;
  Object* doomed_ = nullptr;  // waiting for deletion, linked by `next`: deep values are taken apart
                              // without recursion
  bool draining_ = false;
  std::vector<class Value> characters_;
};

inline void retain(Object* object) noexcept {
  if (object) ++object->refs;
}
inline void release(Object* object) noexcept {
  if (object && --object->refs == 0) object->heap.reclaim(object);
}

template <class T>
class Ref {
 public:
  Ref() noexcept = default;
  explicit Ref(T* object) noexcept : object_(object) { retain(object_); }
  Ref(const Ref& other) noexcept : object_(other.object_) { retain(object_); }
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { release(object_); }
  T* get() const noexcept { return object_; }
  T* operator->() const noexcept { return object_; }
  T& operator*() const noexcept { return *object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }

 private:
  T* object_ = nullptr;
};

enum class Kind : uint8_t {
  absent,  // an argument that was not given; never seen by a template
  undefined,
  none,
  boolean,
  integer,
  big,  // an integer of the input beyond 64 bits: kept as its text, printed, never computed with
  real,
  string,
  list,
  tuple,
  dict,
  range,
  iterator,  // what Python makes as a generator: can be walked once
  view,      // keys(), values(), items() of a dict
  space,     // namespace()
  function,  // a global or a method bound to its value
  macro,
  loop,
  cycler,
  joiner,
};

class Value {
 public:
  Value() noexcept : integer_(0) {}
  Value(Kind kind, Object* object) noexcept : kind_(kind), counted_(true), object_(object) { retain(object_); }
  Value(const Value& other) noexcept : kind_(other.kind_), counted_(other.counted_), integer_(0) {
    take_bits(other);
    retain_own();
  }
  Value(Value&& other) noexcept : kind_(other.kind_), counted_(other.counted_), integer_(0) {
    take_bits(other);
    other.counted_ = false;
    other.kind_ = Kind::none;
  }
  Value& operator=(Value other) noexcept {
    std::swap(kind_, other.kind_);
    std::swap(counted_, other.counted_);
    std::swap(bits_, other.bits_);
    return *this;
  }
  ~Value() {
    if (counted_) release(object_);
  }
  static Value of(Kind kind, int64_t number) noexcept {
    Value value;
    value.kind_ = kind;
    value.integer_ = number;
    return value;
  }
  static Value absent() noexcept { return of(Kind::absent, 0); }
  static Value undefined(int64_t hint = -1) noexcept { return of(Kind::undefined, hint); }
  static Value boolean(bool b) noexcept { return of(Kind::boolean, b ? 1 : 0); }
  static Value integer(int64_t i) noexcept { return of(Kind::integer, i); }
  static Value real(double d) noexcept {
    Value value;
    value.kind_ = Kind::real;
    value.real_ = d;
    return value;
  }

  Kind kind() const noexcept { return kind_; }
  bool is(Kind kind) const noexcept { return kind_ == kind; }
  bool is_absent() const noexcept { return kind_ == Kind::absent; }
  bool is_undefined() const noexcept { return kind_ == Kind::undefined; }
  bool is_string() const noexcept { return kind_ == Kind::string; }
  bool is_integral() const noexcept {
    return kind_ == Kind::integer || kind_ == Kind::boolean;
  }  // Python: bool is an int
  bool is_number() const noexcept { return is_integral() || kind_ == Kind::real; }
  bool is_sequence() const noexcept { return kind_ == Kind::list || kind_ == Kind::tuple; }
  int64_t as_integer() const noexcept { return integer_; }
  double as_real() const noexcept { return kind_ == Kind::real ? real_ : static_cast<double>(integer_); }
  Object* object() const noexcept { return counted_ ? object_ : nullptr; }
  template <class T>
  T& as() const noexcept {
    return static_cast<T&>(*object_);
  }

 private:
  void take_bits(const Value& other) noexcept { bits_ = other.bits_; }
  void retain_own() const noexcept {
    if (counted_) retain(object_);
  }
  Kind kind_ = Kind::none;
  bool counted_ = false;
  union {
    int64_t integer_;
    double real_;
    Object* object_;
    uint64_t bits_;
  };
};

// Bytes of a string that share their origin, up to `end`.
struct Run {
  size_t end = 0;
  bool own = false;  // the template's own text; false: it came from the input
};

// Text, always valid UTF-8.
struct Str final : Object {
  using Object::Object;
  std::string bytes;
  std::vector<Run> runs;  // empty where the whole string has one origin
  bool own = true;        // that origin
  bool markup = false;    // Python's Markup: `safe` text that escapes what is joined to it
  mutable int64_t n_points = -1;

  bool own_at(size_t offset) const noexcept;
  bool all_own() const noexcept;
};

struct Seq final : Object {  // list, tuple, iterator, view
  using Object::Object;
  std::vector<Value> items;
  size_t next_item = 0;         // iterator: those before it are used up
  const char* label = nullptr;  // view, iterator: Python's type name
  bool group = false;           // a tuple of groupby: .grouper and .list
  void clear() noexcept override { items.clear(); }
};

struct Dict final : Object {
  using Object::Object;
  std::vector<std::pair<Value, Value>> items;  // in order of insertion
  std::vector<uint32_t> order;                 // by key; made by finish() for the larger ones
  void clear() noexcept override {
    items.clear();
    order.clear();
  }
};

struct Range final : Object {
  using Object::Object;
  int64_t start = 0, stop = 0, step = 1, length = 0;
  // i in [0, length). The product may leave 64 bits where the sum is back inside, so both wrap.
  int64_t at(int64_t i) const noexcept {
    return static_cast<int64_t>(static_cast<uint64_t>(start) + static_cast<uint64_t>(i) * static_cast<uint64_t>(step));
  }
};

struct Space final : Object {
  using Object::Object;
  std::vector<std::pair<std::string, Value>> items;
  void clear() noexcept override { items.clear(); }
};

struct Cycler final : Object {
  using Object::Object;
  std::vector<Value> items;
  size_t position = 0;
  void clear() noexcept override { items.clear(); }
};

struct Joiner final : Object {
  using Object::Object;
  Value separator;
  bool used = false;
  void clear() noexcept override { separator = Value(); }
};

inline Str& text_of(const Value& value) noexcept { return value.as<Str>(); }
inline const std::string& bytes_of(const Value& value) noexcept { return value.as<Str>().bytes; }

// Makes a string piece by piece; its bytes count against the heap's budget, or against a limit of
// their own.
class TextBuilder {
 public:
  explicit TextBuilder(Heap& heap) : heap_(heap) {}
  TextBuilder(Heap& heap, int64_t bytes_max) : heap_(heap), bytes_max_(bytes_max) {}
  ~TextBuilder() { heap_.refund(charged_bytes_); }
  TextBuilder(const TextBuilder&) = delete;
  TextBuilder& operator=(const TextBuilder&) = delete;

  void add(std::string_view text, bool own);
  void add(const Str& text) { add(text, 0, text.bytes.size()); }
  void add(const Str& text, size_t from, size_t to);
  void add(const Value& string) { add(text_of(string)); }
  void fill(int64_t n, std::string_view unit, bool own);  // n times
  Value take(bool markup = false);
  const std::string& bytes() const noexcept { return bytes_; }
  const std::vector<Run>& runs() const noexcept { return runs_; }
  Heap& heap() noexcept { return heap_; }

 private:
  void account(size_t n);
  Heap& heap_;
  int64_t bytes_max_ = -1;
  int64_t charged_bytes_ = 0;
  std::string bytes_;
  std::vector<Run> runs_;
};

// Makes a list, charging as it grows.
class ListBuilder {
 public:
  explicit ListBuilder(Heap& heap) : heap_(heap) {}
  ~ListBuilder() { heap_.refund(charged_bytes_); }
  ListBuilder(const ListBuilder&) = delete;
  ListBuilder& operator=(const ListBuilder&) = delete;
  void push(Value value) {
    constexpr auto kBytes = static_cast<int64_t>(sizeof(Value));
    heap_.charge(kBytes);
    charged_bytes_ += kBytes;
    items.push_back(std::move(value));
  }
  Value take(Kind kind, const char* label = nullptr);
  std::vector<Value> items;

 private:
  Heap& heap_;
  int64_t charged_bytes_ = 0;
};

class DictBuilder {
 public:
  explicit DictBuilder(Heap& heap) : heap_(heap) {}
  ~DictBuilder() { heap_.refund(charged_bytes_); }
  DictBuilder(const DictBuilder&) = delete;
  DictBuilder& operator=(const DictBuilder&) = delete;
  void push(Value key, Value value);  // fails for a key that cannot be hashed; a key met again
                                      // keeps its place, the later value wins
  Value take();

 private:
  Heap& heap_;
  int64_t charged_bytes_ = 0;
  std::vector<std::pair<Value, Value>> items_;
};

Value make_text(Heap& heap, std::string_view text, bool own);
Value make_list(Heap& heap, Kind kind, std::vector<Value> items);
const Value* find_key(const Dict& dict, const Value& key);  // nullptr: not there
const Value* find_key(const Dict& dict, std::string_view key);
bool hashable(const Value& value);
const char* type_name(const Value& value) noexcept;  // as Python says it: 'str', 'list', ...

}  // namespace assay::chat
