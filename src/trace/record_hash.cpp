// See record_hash.h.
#include "trace/record_hash.h"

#include <xxhash.h>

#include <new>

namespace assay::trace {

struct RecordHash::State {
  struct Free {
    void operator()(XXH3_state_t* state) const noexcept { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> record{XXH3_createState()}, whole{XXH3_createState()};
};

RecordHash::RecordHash() : state_(std::make_unique<State>()) {
  if (!state_->record || !state_->whole) throw std::bad_alloc();
  begin_record();
  XXH3_128bits_reset(state_->whole.get());
}
RecordHash::~RecordHash() = default;

void RecordHash::begin_record() { XXH3_64bits_reset(state_->record.get()); }

void RecordHash::add(const void* data, size_t n) {
  XXH3_64bits_update(state_->record.get(), data, n);
  add_whole(data, n);
}

void RecordHash::add_whole(const void* data, size_t n) { XXH3_128bits_update(state_->whole.get(), data, n); }

uint64_t RecordHash::of_record() const { return XXH3_64bits_digest(state_->record.get()); }

Hash128 RecordHash::of_whole() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->whole.get());
  return {hash.low64, hash.high64};
}

}  // namespace assay::trace
