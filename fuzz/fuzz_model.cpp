// Any bytes as a model's file: either an Error, or a plan. What a family reads of keys and tensors is checked before
// anything is taken for granted.
#include <cstddef>
#include <cstdint>
#include <span>

#include "assay/error.h"
#include "gguf/file.h"
#include "model/build.h"
#include "target.h"

ASSAY_FUZZ_TARGET(model) {
  try {
    const assay::gguf::File file = assay::gguf::File::parse(std::as_bytes(std::span(data, size)));
    assay::model::build_model(file);
  } catch (const assay::Error&) {
    return 0;  // the answer to most inputs
  }
  return 0;
}
