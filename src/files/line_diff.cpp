// The longest common subsequence of the lines between a common beginning and a common end.
#include "files/line_diff.h"

#include <algorithm>
#include <cstdint>

namespace assay::files {
namespace {

constexpr size_t kCellsMax = 4 << 20;

}  // namespace

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::vector<std::string> line_diff(const std::vector<std::string_view>& a, const std::vector<std::string_view>& b,
                                   size_t n_max) {
  size_t begin = 0, end_a = a.size(), end_b = b.size();
  while (begin < end_a && begin < end_b && a[begin] == b[begin]) ++begin;
  while (end_a > begin && end_b > begin && a[end_a - 1] == b[end_b - 1]) --end_a, --end_b;
  const size_t n = end_a - begin, m = end_b - begin;
  // common[i * (m + 1) + j]: lines that a from begin + i on and b from begin + j on have in common at most.
  std::vector<uint32_t> common;
  if (n != 0 && m != 0 && n <= kCellsMax / m) {
    common.assign((n + 1) * (m + 1), 0);
    for (size_t i = n; i-- > 0;) {
      for (size_t j = m; j-- > 0;) {
        common[i * (m + 1) + j] = a[begin + i] == b[begin + j]
                                      ? common[(i + 1) * (m + 1) + j + 1] + 1
                                      : std::max(common[(i + 1) * (m + 1) + j], common[i * (m + 1) + j + 1]);
      }
    }
  }
  std::vector<std::string> out;
  for (size_t i = 0, j = 0; i < n || j < m;) {
    if (!common.empty() && i < n && j < m && a[begin + i] == b[begin + j]) {
      ++i, ++j;
      continue;
    }
    if (out.size() == n_max) {
      out.emplace_back("...");
      break;
    }
    const bool removes =
        j == m || (i < n && (common.empty() || common[(i + 1) * (m + 1) + j] >= common[i * (m + 1) + j + 1]));
    if (removes) {
      out.emplace_back("-").append(a[begin + i++]);
    } else {
      out.emplace_back("+").append(b[begin + j++]);
    }
  }
  return out;
}

}  // namespace assay::files
