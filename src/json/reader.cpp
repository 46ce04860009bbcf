// See reader.h. Boost.JSON finds the parts; what it lets through is refused by the handler.
#include "json/reader.h"

#include <fmt/format.h>

#include <boost/json/basic_parser_impl.hpp>
#include <charconv>
#include <string>
#include <unordered_set>
#include <vector>

#include "assay/error.h"

namespace assay::json_text {

namespace json = boost::json;

namespace {

using boost::system::error_code;

// Builds the value, and stops at what must not be there: then `problem` says what.
class Handler {
 public:
  static constexpr size_t max_object_size = SIZE_MAX;
  static constexpr size_t max_array_size = SIZE_MAX;
  static constexpr size_t max_key_size = SIZE_MAX;
  static constexpr size_t max_string_size = SIZE_MAX;

  explicit Handler(const Limits& limits) : limits_(limits) { stack_.reset(); }

  std::string problem;
  json::value take() { return stack_.release(); }

  bool on_document_begin(error_code&) { return true; }
  bool on_document_end(error_code&) { return true; }
  bool on_object_begin(error_code& ec) {
    levels_.emplace_back();
    return count(ec);
  }
  bool on_object_end(size_t n, error_code&) {
    stack_.push_object(n);
    levels_.pop_back();
    return true;
  }
  bool on_array_begin(error_code& ec) {
    levels_.emplace_back();
    return count(ec);
  }
  bool on_array_end(size_t n, error_code&) {
    stack_.push_array(n);
    levels_.pop_back();
    return true;
  }
  bool on_key_part(json::string_view s, size_t, error_code&) {
    key_.append(s.data(), s.size());
    stack_.push_chars(s);
    return true;
  }
  bool on_key(json::string_view s, size_t, error_code& ec) {
    key_.append(s.data(), s.size());
    stack_.push_key(s);
    const auto [it, is_new] = levels_.back().insert(std::move(key_));
    key_.clear();
    return is_new || stop(ec, fmt::format("the name \"{}\" stands twice in one object", *it));
  }
  bool on_string_part(json::string_view s, size_t, error_code&) {
    stack_.push_chars(s);
    return true;
  }
  bool on_string(json::string_view s, size_t, error_code& ec) {
    stack_.push_string(s);
    return count(ec);
  }
  bool on_number_part(json::string_view, error_code&) { return true; }
  bool on_int64(int64_t i, json::string_view, error_code& ec) {
    stack_.push_int64(i);
    return count(ec);
  }
  bool on_uint64(uint64_t u, json::string_view, error_code& ec) {
    stack_.push_uint64(u);
    return count(ec);
  }
  bool on_double(double, json::string_view s, error_code& ec) {
    const std::string_view text(s.data(), s.size());
    double value = 0;
    const auto [end, problem_code] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (problem_code == std::errc::result_out_of_range)
      return stop(ec, fmt::format("{} is beyond what a double holds", shown(text)));
    if (problem_code != std::errc() || end != text.data() + text.size())
      return stop(ec, fmt::format("{} is no number", shown(text)));
    if (text.find_first_of(".eE") == std::string_view::npos) {
      return stop(ec, fmt::format("{} is an integer of more than 64 bits", shown(text)));
    }
    stack_.push_double(value);
    return count(ec);
  }
  bool on_bool(bool b, error_code& ec) {
    stack_.push_bool(b);
    return count(ec);
  }
  bool on_null(error_code& ec) {
    stack_.push_null();
    return count(ec);
  }
  bool on_comment_part(json::string_view, error_code&) { return true; }
  bool on_comment(json::string_view, error_code&) { return true; }

 private:
  static std::string shown(std::string_view number) {
    return number.size() <= 40 ? std::string(number) : std::string(number.substr(0, 37)) + "...";
  }
  bool stop(error_code& ec, std::string what) {
    problem = std::move(what);
    ec = json::error::syntax;
    return false;
  }
  bool count(error_code& ec) {
    if (++n_values_ <= limits_.n_values_max) return true;
    return stop(ec, fmt::format("it has more than {} values", limits_.n_values_max));
  }

  Limits limits_;
  json::value_stack stack_;
  std::vector<std::unordered_set<std::string>> levels_;  // the names of the objects that are open
  std::string key_;
  int64_t n_values_ = 0;
};

}  // namespace

json::value read(std::string_view text, std::string_view what, const Limits& limits) {
  const auto refuse = [&](const std::string& problem) {
    throw Error(Errc::bad_request, fmt::format("{} {}", what, problem));
  };
  if (text.empty()) refuse("is empty: needs JSON");
  if (text.starts_with("\xEF\xBB\xBF")) refuse("begins with a byte order mark: needs JSON without one");
  json::parse_options options;
  options.max_depth = static_cast<size_t>(limits.depth_max);
  json::basic_parser<Handler> parser(options, limits);
  error_code ec;
  const size_t n = parser.write_some(false, text.data(), text.size(), ec);
  if (!ec && text.find_first_not_of(" \t\r\n", n) != std::string_view::npos) ec = json::error::extra_data;
  if (!ec) return parser.handler().take();
  const std::string& problem = parser.handler().problem;
  if (!problem.empty()) refuse("is refused: " + problem);
  if (ec == json::error::too_deep) {
    const std::string_view flag = limits.depth_raised_by;
    refuse(fmt::format("is refused: it is nested deeper than {}{}{}{}", limits.depth_max, flag.empty() ? "" : ": ",
                       flag, flag.empty() ? "" : " raises it"));
  }
  throw Error(Errc::bad_request, fmt::format("{} is no JSON: {} at byte {}", what, ec.message(), n));
}

}  // namespace assay::json_text
