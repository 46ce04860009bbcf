// The quick part of the invariance tests: three formats, the default setting. invariance_slow_test.cpp has every format and both real models.
#include <gtest/gtest.h>

#include "support/invariance.h"
#include "support/temp_folder.h"
#include "support/tiny_llama.h"

namespace assay {
namespace {

TEST(Invariance, ThreadsChunksAndKernelsDoNotMatter) {
  const test::DigestBook book;
  const std::vector<TokenId> ids = test::random_tokens(100, 96);
  const std::vector<test::Way> ways = {{2, 512, Kernels::best, {}},
                                       {1, 7, Kernels::best, {}},
                                       {3, 64, Kernels::avx2, {}},
                                       {3, 64, Kernels::neon, {}},
                                       {5, 512, Kernels::reference, test::random_pieces(ids.size(), 1)}};
  int64_t n_runs = 0;
  for (const tensor::DType dtype : {tensor::DType::F16, tensor::DType::Q8_0, tensor::DType::Q4_K}) {
    test::TinyLlama spec;
    spec.dtype = dtype;
    test::TempFolder folder;
    test::TinyLlamaWriter(spec).file().write(folder / "tiny.gguf");
    const auto model = Model::load((folder / "tiny.gguf").string(), {.tokenizer = false});
    test::expect_invariant(std::string("random ") + std::string(tensor::traits(dtype).name), model, ids, {}, ways, book, n_runs);
  }
  RecordProperty("runs", std::to_string(n_runs));
}

}  // namespace
}  // namespace assay
