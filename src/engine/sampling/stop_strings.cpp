// Stop strings in a stream of text.
#include "engine/sampling/stop_strings.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "assay/error.h"

namespace assay::engine {
namespace {

constexpr size_t kStringsMax = 64;
constexpr size_t kStringBytesMax = 4096;

// The length of the longest end of `text` with which `string` begins, but not all of it.
size_t begun(std::string_view text, std::string_view string) {
  for (size_t n = std::min(text.size(), string.size() - 1); n > 0; --n) {
    if (text.substr(text.size() - n) == string.substr(0, n)) return n;
  }
  return 0;
}

}  // namespace

StopStrings::StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {
  if (strings_.size() > kStringsMax) {
    throw Error(Errc::bad_request, fmt::format("{} stop strings, at most {} are served", strings_.size(), kStringsMax));
  }
  for (const std::string& s : strings_) {
    if (s.empty()) throw Error(Errc::bad_request, "a stop string is empty");
    if (s.size() > kStringBytesMax) {
      throw Error(Errc::bad_request,
                  fmt::format("a stop string has {} bytes, at most {} are served", s.size(), kStringBytesMax));
    }
  }
}

std::string StopStrings::push(std::string_view text) {
  std::string shown;
  push(text, shown);
  return shown;
}

void StopStrings::push(std::string_view text, std::string& shown) {
  if (matched_) return;
  held_ += text;
  size_t first_end = std::string::npos, start = 0;
  for (const std::string& s : strings_) {
    const size_t at = held_.find(s);
    if (at == std::string::npos) continue;
    const size_t end = at + s.size();
    if (end < first_end || (end == first_end && at < start)) {
      first_end = end;
      start = at;
      matched_ = &s;
    }
  }
  if (matched_) {
    shown.append(held_, 0, start);
    held_.clear();
    return;
  }
  size_t n_held = 0;
  for (const std::string& s : strings_) n_held = std::max(n_held, begun(held_, s));
  shown.append(held_, 0, held_.size() - n_held);
  held_.erase(0, held_.size() - n_held);
}

std::string StopStrings::finish() { return std::exchange(held_, {}); }

}  // namespace assay::engine
