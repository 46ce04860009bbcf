// Lines of batch files: whatever they hold, they are a request or a problem; what was read of an output is its lines or
// an Error.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "assay/batch.h"
#include "assay/error.h"
#include "batch/line.h"
#include "target.h"

ASSAY_FUZZ_TARGET(batch_line) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const assay::batch::Line line = assay::batch::parse_line(text, 1, {});
  if (line.problem.empty() && line.prompt.has_value() == !line.messages.empty()) std::abort();
  if (line.id_json.empty()) std::abort();
  try {
    const assay::BatchOutput output = assay::read_batch_output(text);
    if (output.n_bytes_whole > static_cast<int64_t>(size)) std::abort();
  } catch (const assay::Error&) {
  }
  return 0;
}
