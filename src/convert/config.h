// config.json as a family reads it: each key by name, with the defaults of Hugging Face's own class where the folder
// leaves one out. What was read is remembered, so that what nobody read can be reported.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "convert/json.h"

namespace assay::converting {

class Config {
 public:
  // defaults: of the class, as JSON; empty: none. The text model's own part, text_config, is laid over what stands
  // outside of it.
  Config(const Json& root, std::string_view defaults);

  // The value under a key, nullptr where there is none or null.
  const Json* find(std::string_view key);
  const Json* find_any(std::initializer_list<std::string_view> keys);
  bool has(std::string_view key) { return find(key) != nullptr; }

  // Error(bad_file) where the key is missing or of another kind. Counts are 0 or more.
  int64_t count(std::string_view key);
  std::optional<int64_t> find_count(std::string_view key);
  double number(std::string_view key);
  std::optional<double> find_number(std::string_view key);
  bool flag(std::string_view key, bool otherwise);
  std::string text(std::string_view key);  // empty: none
  std::vector<std::string> texts(std::string_view key);
  std::vector<int64_t> counts(std::string_view key);  // empty: none
  // Error(unsupported) where the key is there with a value that is none of these.
  void expect(std::string_view key, std::initializer_list<std::string_view> values);
  void expect_flag(std::string_view key, bool value);
  void mark_read(std::string_view key) { read_.emplace(key); }

  // Keys that are there, were not read, and are not known to be without effect.
  std::vector<std::string> unread() const;
  const std::vector<std::string>& defaults_used() const noexcept { return defaults_used_; }  // "key = value"

 private:
  Json merged_, defaults_;
  std::set<std::string, std::less<>> read_;
  std::vector<std::string> defaults_used_;
};

// Of a number somewhere in the config; Error(bad_file) else.
double number_of(const Json& value, std::string_view key);
// The whole part of a number; Error(bad_file) where it is below 0 or beyond what a count may be.
int64_t whole_of(double value, std::string_view key);

}  // namespace assay::converting
