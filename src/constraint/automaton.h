// A network read byte by byte. A place is everything that may be the case after the bytes so far: a set of states, each
// with the calls it must return from. Places and the ways between them are found when they are first asked for, and
// kept.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "constraint/byte_set.h"
#include "constraint/network.h"

namespace assay::constraint {

// Edges that may be looked at for the first place, and for each token: well below 100 ms.
inline constexpr int64_t kWorkMax = 200'000;

// Characters of one class that may follow one another, whichever they are.
inline constexpr int kRunMax = 32;
struct Run {
  ByteSet on;         // bytes that begin a character: the class has all of their characters
  ByteSet never;      // behind no number of these characters may the text go on with one of these bytes
  int n = 0;          // so many may follow; kRunMax: or more
  bool ends = false;  // and not one more
  bool is_exact() const noexcept { return n == kRunMax || ends; }
};

class Automaton {
 public:
  using Place = int32_t;
  static constexpr Place kDead = 0;  // no text goes on from there

  // Error(bad_request) where a grammar has too many readings, here and in step().
  explicit Automaton(std::shared_ptr<const Network> network);

  Place begin() const noexcept { return begin_; }
  Place step(Place from, uint8_t byte) {
    const Place next = tables_[static_cast<size_t>(from)][ranks_.of[byte]];
    return next >= 0 ? next : find(from, byte);
  }
  bool accepts(Place place) const noexcept {
    return places_[static_cast<size_t>(place)].accepts;
  }  // the text may end there
  // So many plain characters may follow; -1: nothing is known of them.
  int32_t n_plain(Place place) const noexcept { return places_[static_cast<size_t>(place)].n_plain; }
  // Plain characters beyond n_plain() may not follow.
  bool only_plain(Place place) const noexcept { return places_[static_cast<size_t>(place)].only_plain; }

  // Whether the same texts of up to n_bytes may follow both. False as well where it would take long to find out: where
  // many states are open, or many places are to be compared.
  bool alike(Place a, Place b, int n_bytes);

  // n is 0 where no class stands out, and where it would take long to find out.
  Run run(Place place);
  // Of the same: groups of bytes (byte_set.h) that begin characters, of which up to n may follow whichever they are.
  struct Free {
    uint64_t groups = 0;
    int n = -1;
  };
  const Free& free(Place place);

  // What is kept takes about so much memory.
  size_t kept_bytes() const noexcept { return kept_bytes_; }
  // Forgets all places but one, and gives it its new name.
  Place keep_only(Place place);
  // The work that may still be done before an Error; set before each token.
  void allow_work(int64_t n) noexcept { work_left_ = n; }

 private:
  using Config = uint64_t;  // state << 32 | stack
  // Of a place: the largest class whose characters all lead to one other place, and the bytes that lead nowhere.
  struct Ways {
    ByteSet on, never;
  };
  struct Known {
    std::vector<Config> configs;  // with edges over bytes, ascending
    int32_t n_plain = -1;
    bool only_plain = true, accepts = false, has_ways = false;
    Ways ways;
    Free free;
  };
  // Of a state: the bytes that lead on, and classes of characters that lead to one state each.
  struct Classes {
    ByteSet alive;
    std::vector<ByteSet> all;
  };
  struct Frame {
    StateId back = 0;
    int32_t below = 0;
  };

  Place find(Place from, uint8_t byte);
  Place place_of(std::vector<Config>& open);
  Place place_of_one(Config config);
  Place intern(Known known);
  void add_table(Place filled_with);
  int32_t push(StateId back, int32_t below);
  void work(int64_t n);

  std::shared_ptr<const Network> network_;
  std::vector<Known> places_;
  ByteRanks ranks_;
  // Of each place: where the bytes of a range lead; -1: not known yet.
  std::vector<std::unique_ptr<Place[]>> tables_;
  std::unordered_multimap<uint64_t, Place> by_hash_;
  std::vector<Frame> frames_;  // 0: nothing to return to
  std::unordered_map<uint64_t, int32_t> frame_ids_;
  std::unordered_map<Config, Place> of_one_;  // the place of what can be reached from one
  std::vector<Config> open_, seen_table_;
  std::vector<uint32_t> seen_epoch_;
  uint32_t epoch_ = 0;
  size_t n_seen_ = 0, kept_bytes_ = 0;
  int64_t work_left_ = 0;
  Place begin_ = 0;
  std::unordered_map<uint64_t, int> alike_;  // places that are alike for so many bytes
  std::unordered_map<StateId, Classes> classes_;

  bool see(Config config);
  bool alike_within(Place a, Place b, int n_bytes, int& pairs_left);
  const Classes& classes(StateId state);
  StateId behind_character(StateId state, const Leads& leads) const;
  Place behind(Place place, uint8_t lead);
  Ways ways(Place place);
  Ways find_ways(Place place);
};

}  // namespace assay::constraint
