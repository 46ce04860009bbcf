// Guesses of the next tokens of running requests (assay/scheduler.h: DraftOptions). A guess changes no answer: whoever
// asks draws every token as ever and keeps of a guess what equals it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "assay/context.h"
#include "assay/generate.h"

namespace assay::engine {

// What is known of a request that wants guesses, and where they go.
struct DraftAsk {
  uint64_t id = 0;                  // of the request
  std::span<const TokenId> tokens;  // prompt and answer so far
  int64_t n_prompt = 0;
  int64_t n_max = 0;  // guesses, at least 1
  const GenerateOptions* options = nullptr;
  std::vector<TokenId>* guesses = nullptr;  // empty at first
};

class Drafter {
 public:
  virtual ~Drafter() = default;
  virtual void guess(std::span<DraftAsk> asks) = 0;
  virtual void over(uint64_t id) = 0;  // the request asks no more, for now or at all
};

// Null for kind none. Error(bad_request) where the draft model has another vocabulary than the target or the options
// are out of range. target: as the context of the scheduler has it, resolved.
std::unique_ptr<Drafter> make_drafter(const DraftOptions& options, const Context& target);

// The last tokens looked up in what stands before them.
std::unique_ptr<Drafter> make_ngram_drafter();
// Error as above.
std::unique_ptr<Drafter> make_model_drafter(std::shared_ptr<const Model> model, const Context& target);

}  // namespace assay::engine
