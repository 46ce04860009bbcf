// JSON from strangers, read where it lies: a cursor over the text, so that a header of many megabytes needs no tree.
// Strict: one value, no two members of one name, no lone surrogates, valid UTF-8, bounded in depth.
//   JsonCursor in(text, "config.json");
//   in.object([&](const std::string& key) { key == "n" ? n = in.number().integer : in.skip(); });
//   in.end();
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

namespace assay::converting {

struct JsonNumber {
  double value = 0;
  std::optional<int64_t> integer;  // where it is written as one, and fits
};

class JsonCursor {
 public:
  static constexpr int kDepthMax = 64;
  // what: names the text in errors. Both must outlive this.
  JsonCursor(std::string_view text, std::string_view what) : text_(text), what_(what) {}

  // The first character of the value that comes next: one of { [ " t f n - 0...9. Error(bad_file) for anything else, as
  // from all below.
  char peek();
  JsonNumber number();
  bool boolean();
  void null();
  void infinity();  // which Python writes although JSON has none; Json takes it as a text
  void string(std::string& out);
  std::string string() {
    std::string out;
    string(out);
    return out;
  }
  // take(key) must read the member's value.
  template <class Take>
  void object(Take take) {
    std::unordered_set<std::string> names;
    if (!open('{')) return;
    do {
      std::string key = string();
      expect(':');
      if (!names.insert(key).second) fail("two members of one object have the name " + shown_key(key));
      take(key);
    } while (goes_on('}'));
  }
  // take() must read the element.
  template <class Take>
  void array(Take take) {
    if (!open('[')) return;
    do take();
    while (goes_on(']'));
  }
  void skip();
  void end();  // Error(bad_file) where something follows
  size_t position() const noexcept { return at_; }
  [[noreturn]] void fail(const std::string& problem) const;

 private:
  void blanks() noexcept;
  void expect(char c);
  bool open(char bracket);  // false: it is closed at once
  bool goes_on(char bracket);
  void word(std::string_view expected);
  uint32_t hex4();
  void escape(std::string& out);
  static std::string shown_key(const std::string& key);

  std::string_view text_, what_;
  size_t at_ = 0;
  int depth_ = 0;
};

// A value as a tree, for texts that are small.
class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;

  Json() = default;
  static Json read(JsonCursor& in);
  static Json parse(std::string_view text, std::string_view what);

  bool is_null() const noexcept { return std::holds_alternative<std::monostate>(value_); }
  const bool* boolean() const noexcept { return std::get_if<bool>(&value_); }
  const JsonNumber* number() const noexcept { return std::get_if<JsonNumber>(&value_); }
  const std::string* string() const noexcept { return std::get_if<std::string>(&value_); }
  const Array* array() const noexcept { return std::get_if<Array>(&value_); }
  const Object* object() const noexcept { return std::get_if<Object>(&value_); }
  const Json* find(std::string_view key) const noexcept;       // nullptr: no object, or no such member
  std::string_view text(std::string_view key) const noexcept;  // a member that is a string, else empty
  bool flag(std::string_view key) const noexcept;              // a member that is true
  std::string shown() const;                                   // shortened, for a message

  void set(std::string key, Json value);  // of an object, or of what is null yet
  template <class T>
  static Json of(T value) {
    Json json;
    json.value_ = std::move(value);
    return json;
  }

 private:
  std::variant<std::monostate, bool, JsonNumber, std::string, Array, Object> value_;
};

}  // namespace assay::converting
