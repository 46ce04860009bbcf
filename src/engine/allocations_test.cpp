// Between the first token and the last none takes memory: the model's run, the draw and the text.
#include <gtest/gtest.h>

#include <string>

#include "assay/context.h"
#include "assay/sampler.h"
#include "assay/tokenizer.h"
#include "engine/stop_strings.h"
#include "support/count_allocations.h"
#include "support/small_vocabularies.h"
#include "support/temp_folder.h"
#include "support/tiny_llama.h"

namespace assay {
namespace {

std::vector<SamplerOptions> chains() {
  std::vector<SamplerOptions> list(7);
  list[1].temperature = 0;
  list[2].repeat_penalty = 1.1;
  list[2].frequency_penalty = 0.1;
  list[3].top_k = 0;
  list[3].min_p = 0;
  list[4].top_k = 0;
  list[4].top_p = 1;
  list[5].dynamic_range = 0.5;
  list[5].xtc_probability = 0.5;
  list[6].top_k = 0;
  list[6].typical_p = 0.9;
  for (SamplerOptions& options : list) options.seed = 7;
  return list;
}

TEST(Allocations, NoneForATokenOfAnAnswer) {
  const test::TempFolder folder;
  test::TinyLlama spec;
  spec.dtype = tensor::DType::Q8_0;
  test::TinyLlamaWriter(spec).file().write(folder / "tiny.gguf");
  const auto model = Model::load((folder / "tiny.gguf").string(), {.tokenizer = false});
  const auto tokenizer = text::make_tokenizer(test::sentence_piece_facts());
  ContextOptions options;
  options.n_threads = 2;
  options.n_ctx = 400;
  const std::vector<SamplerOptions> chains_tried = chains();
  for (const SamplerOptions& chain : chains_tried) {
    SCOPED_TRACE(&chain - chains_tried.data());
    Context context(model, options);
    Sampler sampler(chain, model->vocab_size());
    StreamDecoder decoder(tokenizer);
    engine::StopStrings stop({"</never>"});
    const std::vector<TokenId> prompt = {1, 2, 3};
    context.decode(prompt);
    sampler.start(prompt);
    std::string part, shown;
    int64_t before = 0;
    const int64_t n_tokens = &chain == chains_tried.data() ? 300 : 60;  // the first past a segment of attention
    for (int64_t i = 0; i < n_tokens; ++i) {
      if (i == 16) before = test::n_allocations;  // buffers have grown to their sizes
      const TokenId id = sampler.sample(context.logits(), 3 + i);
      sampler.accept(id);
      part.clear();
      shown.clear();
      decoder.push(id % tokenizer->vocab_size(), part);
      stop.push(part, shown);
      context.decode({&id, 1});
    }
    EXPECT_EQ(test::n_allocations, before);
  }
}

}  // namespace
}  // namespace assay
