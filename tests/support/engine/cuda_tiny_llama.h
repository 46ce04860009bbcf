// A tiny model of superblocks for tests that need a GPU; they are skipped where there is none.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "assay/devices.h"
#include "assay/model.h"
#include "support/temp_folder.h"
#include "support/tiny_llama.h"

namespace assay::test {

class CudaTinyLlama : public ::testing::Test {
 protected:
  static constexpr int kVocabSize = 5000;

  CudaTinyLlama() {
    TinyLlama spec;
    spec.dtype = tensor::DType::Q4_K;
    spec.vocab_size = kVocabSize;
    TinyLlamaWriter(spec).file().write(folder_ / "tiny.gguf");
    model_ = Model::load((folder_ / "tiny.gguf").string(), {.tokenizer = false});
  }
  void SetUp() override {
    const std::string none = list_devices().no_cuda;
    if (!none.empty()) GTEST_SKIP() << none;
  }

  TempFolder folder_;
  std::shared_ptr<const Model> model_;
};

}  // namespace assay::test
