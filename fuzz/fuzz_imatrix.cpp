// Any bytes as an importance matrix of either form: either an Error, or one that can be used.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "assay/error.h"
#include "imatrix/imatrix_read.h"
#include "target.h"

ASSAY_FUZZ_TARGET(imatrix) {
  try {
    assay::Imatrix found = assay::imatrix::read_bytes(std::as_bytes(std::span(data, size)), "input");
    for (const assay::ImatrixEntry& entry : found.entries) {
      if (found.find(entry.name) != &entry || entry.importance().size() != entry.sums.size()) std::abort();
    }
    const assay::Imatrix same = found;
    assay::merge_imatrix(found, same);
  } catch (const assay::Error&) {
    return 0;  // the answer to most inputs
  }
  return 0;
}
