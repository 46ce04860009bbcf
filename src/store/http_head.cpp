// A reply's head, and the two of its headers that have a grammar.
#include <charconv>
#include <ctime>
#include <optional>

#include "store/http.h"
#include "store/names.h"

namespace assay::store {
namespace {

constexpr size_t kValueBytesMax = 8 << 10;  // of a header that is looked at

std::optional<int64_t> count_in(std::string_view text) {  // digits and nothing else
  int64_t value = 0;
  if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

void HttpHead::add_line(std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || line.size() > kValueBytesMax) return;
  const std::string name = lower(line.substr(0, colon));
  const std::string_view value = base::trimmed(line.substr(colon + 1), " \t\r\n");
  if (name == "content-length") {
    length = count_in(value).value_or(-1);
  } else if (name == "content-range") {  // bytes 100-199/200
    const size_t dash = value.find('-'), slash = value.find('/');
    if (!begins_without_case(value, "bytes ") || dash == std::string_view::npos || slash == std::string_view::npos ||
        slash < dash)
      return;
    range_begin = count_in(value.substr(6, dash - 6)).value_or(-1);
    range_total = count_in(value.substr(slash + 1)).value_or(-1);
  } else if (name == "etag") {
    tag = value;
  } else if (name == "last-modified") {
    date = value;
  } else if (name == "content-type") {
    type = value;
  } else if (name == "content-encoding") {
    encoding = lower(value);
  } else if (name == "location") {
    location = value;
  } else if (name == "retry-after") {
    retry_after = value;
  } else if (name == "link") {
    link = value;
  }
}

int64_t retry_after_seconds(const std::string& value, int64_t now) {
  if (const auto seconds = count_in(value)) return *seconds;
  std::tm time{};
  const char* end = ::strptime(value.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &time);
  if (end == nullptr || *end != '\0') return -1;
  const int64_t then = ::timegm(&time);
  return then > now ? then - now : 0;
}

std::string next_link(std::string_view value) {
  for (size_t begin = value.find('<'); begin != std::string_view::npos; begin = value.find('<', begin + 1)) {
    const size_t end = value.find('>', begin);
    if (end == std::string_view::npos) return {};
    const size_t next = value.find('<', end);
    const std::string_view parameters = value.substr(end + 1, next == std::string_view::npos ? next : next - end - 1);
    if (parameters.find("rel=\"next\"") != std::string_view::npos)
      return std::string(value.substr(begin + 1, end - begin - 1));
  }
  return {};
}

}  // namespace assay::store
