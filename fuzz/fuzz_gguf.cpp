// Any bytes as a GGUF file: either an Error, or a file all of whose entries and tensors can be used.
#include <cstddef>
#include <cstdint>
#include <span>

#include "assay/error.h"
#include "gguf/file.h"
#include "support/gguf_walk.h"
#include "target.h"

ASSAY_FUZZ_TARGET(gguf) {
  try {
    assay::test::walk(assay::gguf::File::parse(std::as_bytes(std::span(data, size))));
  } catch (const assay::Error&) {
    return 0;  // the answer to most inputs
  }
  return 0;
}
