// Any bytes as a dump: either an Error, or records whose sizes agree. A second time with hashes that fit, for else
// hardly an input would get past the first of them.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "assay/error.h"
#include "support/dump_bytes.h"
#include "target.h"
#include "trace/dump.h"

namespace {

using assay::fuzz::require;

void read_dump(const std::string& bytes) {
  using assay::trace::DumpReader;
  try {
    DumpReader reader = DumpReader::from_bytes(bytes);
    for (DumpReader::Kind kind = reader.next(); kind != DumpReader::Kind::end; kind = reader.next()) {
      const assay::trace::DumpBatch& batch = reader.batch();
      const size_t n = batch.tokens.size();
      require(n > 0 && batch.positions.size() == n && batch.sequences.size() == n && batch.outputs.size() == n);
      if (kind != DumpReader::Kind::tensor) continue;
      const assay::trace::DumpTensor& tensor = reader.tensor();
      require(!tensor.op.empty() && static_cast<size_t>(tensor.n_rows) <= n);
      require(tensor.values.size() == static_cast<size_t>(tensor.n_rows) * static_cast<size_t>(tensor.width));
    }
  } catch (const assay::Error&) {
    return;  // the answer to most inputs
  }
}

}  // namespace

ASSAY_FUZZ_TARGET(dump) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  read_dump(bytes);
  read_dump(assay::test::with_hashes(bytes));
  return 0;
}
