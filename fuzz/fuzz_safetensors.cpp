// Any bytes as a safetensors file, a tokenizer.json and a tokenizer.model: either an Error, or something that can be
// used.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>

#include "assay/error.h"
#include "convert/check.h"
#include "convert/pieces.h"
#include "convert/safetensors.h"
#include "target.h"

namespace {

template <class Read>
void attempt(Read one) {
  try {
    one();
  } catch (const assay::Error&) {
    return;  // the answer to most inputs
  }
}

}  // namespace

ASSAY_FUZZ_TARGET(safetensors) {
  using namespace assay::converting;
  const auto bytes = std::as_bytes(std::span(data, size));
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  attempt([&] {
    size_t n = 0;
    for (const StoredTensor& t : read_safetensors(bytes, "input")) {
      if (t.data.data() < bytes.data() || t.data.data() + t.data.size() > bytes.data() + bytes.size()) std::abort();
      n += t.data.size();
    }
    if (n > size) std::abort();
  });
  attempt([&] {
    const TokenizerJson tokenizer = read_tokenizer_json(text);
    std::string unknown;
    if (const auto reference = ReferenceTokenizer::make(tokenizer, unknown))
      reference->encode("two words, 12 \xC3\xA9");
  });
  attempt([&] {
    if (read_pieces(text).all.empty()) std::abort();
  });
  return 0;
}
