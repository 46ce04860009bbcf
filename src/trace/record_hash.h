// The two hashes of a dump (docs/dump-format.md) over a stream of bytes: XXH3-64 of the record at hand, XXH3-128 of
// everything so far.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace assay::trace {

struct Hash128 {
  uint64_t low = 0, high = 0;
  friend bool operator==(const Hash128&, const Hash128&) = default;
};

class RecordHash {
 public:
  RecordHash();
  ~RecordHash();
  RecordHash(const RecordHash&) = delete;
  RecordHash& operator=(const RecordHash&) = delete;

  void begin_record();
  void add(const void* data, size_t n);        // to both
  void add_whole(const void* data, size_t n);  // a record's own hash belongs to the whole alone
  uint64_t of_record() const;
  Hash128 of_whole() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace assay::trace
