// Any bytes as a model's file: either an Error, or a plan. What a family reads of keys and tensors is checked before
// anything is taken for granted.
#include <cstddef>
#include <cstdint>
#include <span>

#include "assay/error.h"
#include "gguf/file.h"
#include "model/build.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const assay::gguf::File file = assay::gguf::File::parse(std::as_bytes(std::span(data, size)));
    assay::model::build_model(file);
  } catch (const assay::Error&) {
    return 0;  // the answer to most inputs
  }
  return 0;
}
