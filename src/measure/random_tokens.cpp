// See random_tokens.h.
#include "measure/random_tokens.h"

#include "engine/sampling/philox.h"

namespace assay::measure {

std::vector<TokenId> random_tokens(int64_t n, int64_t vocab_size) {
  std::vector<TokenId> ids(static_cast<size_t>(n));
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<TokenId>(engine::draws(0, 0, i).token * static_cast<double>(vocab_size));
  }
  return ids;
}

}  // namespace assay::measure
