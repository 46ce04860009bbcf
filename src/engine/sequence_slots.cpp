// See sequence_slots.h.
#include "engine/sequence_slots.h"

#include <algorithm>

namespace assay::engine {

SequenceSlots::SequenceSlots(Context& context, bool keeps)
    : context_(&context), keeps_(keeps), slots_(static_cast<size_t>(context.options().n_sequences)) {}

std::optional<SequenceSlots::Place> SequenceSlots::take(std::span<const TokenId> prompt, std::string_view salt) {
  Slot* best = nullptr;
  int64_t n_best = 0;
  for (Slot& slot : slots_) {
    if (slot.taken) continue;
    int64_t n = 0;
    if (slot.salt == salt) {
      n = std::mismatch(slot.tokens.begin(), slot.tokens.end(), prompt.begin(), prompt.end()).first - slot.tokens.begin();
    }
    if (best == nullptr || n > n_best || (n == n_best && slot.last_used < best->last_used)) {
      best = &slot;
      n_best = n;
    }
  }
  if (best == nullptr) return std::nullopt;
  const int64_t n_cached = std::min<int64_t>(n_best, static_cast<int64_t>(prompt.size()) - 1);
  const auto sequence = static_cast<int>(best - slots_.data());
  context_->truncate(n_cached, sequence);
  best->tokens.resize(static_cast<size_t>(n_cached));
  best->salt = salt;
  best->taken = true;
  best->last_used = ++clock_;
  return Place{sequence, n_cached};
}

void SequenceSlots::append(int sequence, TokenId token) {
  slots_[static_cast<size_t>(sequence)].tokens.push_back(token);
}

void SequenceSlots::give_back(int sequence) {
  Slot& slot = slots_[static_cast<size_t>(sequence)];
  slot.taken = false;
  slot.last_used = ++clock_;
  if (!keeps_) forget(sequence);
}

void SequenceSlots::forget(int sequence) {
  context_->truncate(0, sequence);
  slots_[static_cast<size_t>(sequence)].tokens.clear();
}

int64_t SequenceSlots::n_positions(int sequence) const noexcept {
  return static_cast<int64_t>(slots_[static_cast<size_t>(sequence)].tokens.size());
}

int64_t SequenceSlots::n_positions_taken() const noexcept {
  int64_t n = 0;
  for (const Slot& slot : slots_) n += slot.taken ? static_cast<int64_t>(slot.tokens.size()) : 0;
  return n;
}

}  // namespace assay::engine
