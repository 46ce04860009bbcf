// JSON to text.
#include "io/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "assay/utf8.h"

namespace assay::cli {
namespace {

namespace json = boost::json;

class Writer {
 public:
  explicit Writer(bool indented) : indented_(indented) {}

  void write(const json::value& v, int depth) {
    if (const json::object* object = v.if_object()) {
      write_object(*object, depth);
    } else if (const json::array* array = v.if_array()) {
      write_array(*array, depth);
    } else if (const double* number = v.if_double()) {
      out_ += std::isfinite(*number) ? fmt::format("{}", *number) : "null";
    } else {
      out_ += json::serialize(v);
    }
  }
  std::string take() { return std::move(out_); }

 private:
  void write_object(const json::object& object, int depth) {
    out_ += '{';
    bool first = true;
    for (const auto& [key, value] : object) {
      separate(first, depth + 1, true);
      out_ += json::serialize(json::value(key)) + (indented_ ? ": " : ":");
      write(value, depth + 1);
    }
    close(first, depth, true, '}');
  }
  void write_array(const json::array& array, int depth) {
    const bool lines = std::any_of(array.begin(), array.end(), [](const json::value& v) { return v.is_object(); });
    out_ += '[';
    bool first = true;
    for (const json::value& value : array) {
      separate(first, depth + 1, lines);
      write(value, depth + 1);
    }
    close(first, depth, lines, ']');
  }
  void separate(bool& first, int depth, bool lines) {
    if (!first) out_ += indented_ && !lines ? ", " : ",";
    first = false;
    if (indented_ && lines) out_ += '\n' + std::string(static_cast<size_t>(2 * depth), ' ');
  }
  void close(bool empty, int depth, bool lines, char bracket) {
    if (indented_ && lines && !empty) out_ += '\n' + std::string(static_cast<size_t>(2 * depth), ' ');
    out_ += bracket;
  }

  bool indented_;
  std::string out_;
};

}  // namespace

std::string to_text(const json::value& value, bool indented) {
  Writer writer(indented);
  writer.write(value, 0);
  return json_without_controls(writer.take());
}

}  // namespace assay::cli
