// The KV cache as a scheduler sees it: places for requests, each of which keeps what it holds after its request is over, so
// that a prompt that begins alike runs only its rest. The one thing here that knows where positions lie: a sequence of the
// context each.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "assay/context.h"

namespace assay::engine {

class SequenceSlots {
 public:
  // The context must outlive it, and nobody else may run its sequences.
  SequenceSlots(Context& context, bool keeps);

  struct Place {
    int sequence = 0;
    int64_t n_cached = 0;  // of the prompt's tokens; never all, so that there are logits after the last one
  };
  // A free place, with as much of the prompt as one of them holds under the same salt; of those that hold the same the
  // one least recently used. None where all are taken.
  std::optional<Place> take(std::span<const TokenId> prompt, std::string_view salt);
  void append(int sequence, TokenId token);  // its position was run
  void give_back(int sequence);
  // After a run that failed, nobody knows what its sequences hold.
  void forget(int sequence);

  int64_t n_positions(int sequence) const noexcept;
  int64_t n_positions_taken() const noexcept;

 private:
  struct Slot {
    std::vector<TokenId> tokens;  // whose positions are in the cache
    std::string salt;
    bool taken = false;
    int64_t last_used = 0;
  };
  Context* context_;
  bool keeps_;
  std::vector<Slot> slots_;
  int64_t clock_ = 0;
};

}  // namespace assay::engine
