// A stable merge sort that stays inside its arrays whatever the comparison says, even one that
// throws or contradicts itself (NaN).
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace assay::chat {

template <class T, class Less>
void merge_sort(std::vector<T>& items, Less&& less) {
  std::vector<T> other(items);
  for (size_t width = 1; width < items.size(); width *= 2) {
    for (size_t start = 0; start < items.size(); start += 2 * width) {
      const size_t middle = std::min(start + width, items.size()), end = std::min(start + 2 * width, items.size());
      size_t left = start, right = middle;
      for (size_t out = start; out < end; ++out) {
        const bool take_right = left >= middle || (right < end && less(items[right], items[left]));
        other[out] = take_right ? items[right++] : items[left++];
      }
    }
    items.swap(other);
  }
}

}  // namespace assay::chat
