// Makes importance matrices: a model run over a text, and the squares of what each of its matrices is multiplied with
// (docs/imatrix.md).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "assay/context.h"
#include "assay/imatrix.h"

namespace assay {

struct ImatrixOptions {
  int64_t n_chunk = 512;     // tokens of a chunk; each is run from an empty context, all its tokens count
  int64_t n_chunks_max = 0;  // of the text; 0: all
  const Imatrix* resumed =
      nullptr;                  // of the first chunks of this text, by a run that was interrupted: goes on behind them
  bool process_output = false;  // also output.weight; a head that is the embedding has no entry
  std::string dataset = {};     // what the matrix calls the text
  std::function<bool()> cancelled = {};  // polled between chunks, and between the context's own within one
  std::function<void(int64_t done, int64_t total, double perplexity)> progress = {};  // after every chunk
  std::function<void(const Imatrix& so_far)> on_save = {};  // after every tenth chunk and the last
};

struct ImatrixResult {
  Imatrix imatrix;  // of whole runs of ten chunks, and of the rest where it was not cancelled
  int64_t n_chunks_asked = 0;
  double perplexity = 0;  // of the second halves of the chunks run, as `assay perplexity` has it; NaN of none
  bool cancelled = false;
};

// Sums are made row by row in double and rounded to float32 after every tenth chunk: no number of threads, no chunk of
// the context and no interruption changes a bit. Error(bad_request) where the text is shorter than two chunks, a chunk
// does not fit into the context, or `resumed` is of another model or has chunks of another size.
ImatrixResult collect_imatrix(Context& context, std::span<const TokenId> ids, const ImatrixOptions& options = {});

}  // namespace assay
