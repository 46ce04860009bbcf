// Arguments that stand one after the other in marks of a chat template: read into JSON as they come, and written.
#pragma once

#include <boost/json.hpp>
#include <map>
#include <string>
#include <string_view>

#include "tools/format.h"

namespace assay::tools {

// The length of the longest end of `text` with which `mark` begins, but not all of it.
size_t begun_at_end(std::string_view text, std::string_view mark);

// What the values of a function's arguments can be, where a text has no quotes to be told by.
class ArgumentKinds {
 public:
  // value: none is a text without quotes. unknown: nothing is said of it.
  enum class Kind { text, text_or_null, value, unknown };

  ArgumentKinds() = default;  // all are unknown
  // Of a JSON Schema; one that cannot be read says nothing.
  explicit ArgumentKinds(std::string_view parameters);
  Kind of(const std::string& name) const;

 private:
  std::map<std::string, Kind, std::less<>> known_;
  Kind others_ = Kind::unknown;
};

class ArgumentsReader {
 public:
  ArgumentsReader(const ArgumentMarks& marks, ArgumentKinds kinds) : m_(&marks), kinds_(std::move(kinds)) {}

  enum class Went { on, done, broken };  // on: more is needed
  // Takes off `held` what is certain, and adds it to `json`.
  Went take(std::string& held, std::string& json);

 private:
  enum class Place { begin, first, name, value, text, other, behind, next };

  // Nothing: more is needed to tell.
  std::optional<bool> take_mark(std::string& held, std::string_view mark);
  std::optional<bool> next_or_end(std::string& held, std::string& json);
  std::optional<bool> take_name(std::string& held, std::string& json);
  std::optional<bool> begin_value(std::string& held, std::string& json);
  std::optional<bool> take_text(std::string& held, std::string& json);
  std::optional<bool> take_other(std::string& held, std::string& json);
  std::optional<size_t> end_of_other(std::string_view held);
  std::optional<bool> step(std::string& held, std::string& json);

  const ArgumentMarks* m_;
  ArgumentKinds kinds_;
  Place place_ = Place::begin;
  ArgumentKinds::Kind kind_ = ArgumentKinds::Kind::unknown;
  bool done_ = false;
  // Of a value that is no text: how far it was looked at, and what is open there.
  size_t n_seen_ = 0, depth_ = 0;
  char in_quotes_ = 0;
  bool escaped_ = false, nested_ = false, closed_ = false;
};

// As the model is to write them; `arguments` is a JSON object, else it stands as it is.
std::string write_arguments(const ArgumentMarks& marks, std::string_view arguments);

}  // namespace assay::tools
