// See automaton.h.
#include "constraint/automaton.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "assay/error.h"

namespace assay::constraint {
namespace {

constexpr int64_t kFramesMax = 2'000'000;
constexpr size_t kConfigsMax = 200'000;  // of one place

// What is looked at to find places alike: a few times less than making a mask.
constexpr int kPairsMax = 1'000;
constexpr size_t kFewConfigs = 8, kSomeConfigs = 64;
constexpr int64_t kAlikeWork = 20'000;

uint64_t mix(uint64_t x) noexcept {  // the finaliser of splitmix64
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

uint64_t pair_of(int32_t high, int32_t low) noexcept {
  return static_cast<uint64_t>(static_cast<uint32_t>(high)) << 32 | static_cast<uint32_t>(low);
}
StateId state_of(uint64_t config) noexcept { return static_cast<StateId>(config >> 32); }
int32_t stack_of(uint64_t config) noexcept { return static_cast<int32_t>(config & 0xFFFFFFFFu); }

}  // namespace

Automaton::Automaton(std::shared_ptr<const Network> network)
    : network_(std::move(network)), ranks_(network_->ranks), frames_(1), seen_table_(64), seen_epoch_(64) {
  places_.emplace_back();
  add_table(kDead);
  allow_work(kWorkMax);
  std::vector<Config> open = {pair_of(network_->rules[static_cast<size_t>(network_->root)].begin, 0)};
  begin_ = place_of(open);
}

void Automaton::add_table(Place filled_with) {
  const auto n = static_cast<size_t>(ranks_.n);
  tables_.push_back(std::make_unique_for_overwrite<Place[]>(n));
  std::fill_n(tables_.back().get(), n, filled_with);
}

void Automaton::work(int64_t n) {
  work_left_ -= n;
  if (work_left_ < 0)
    throw Error(Errc::bad_request, "the constraint has too many readings of the text so far to follow them all");
}

bool Automaton::see(Config config) {
  if (2 * (n_seen_ + 1) > seen_table_.size()) {
    std::vector<Config> old = std::move(seen_table_);
    const std::vector<uint32_t> old_epoch = std::move(seen_epoch_);
    seen_table_.assign(2 * old.size(), 0);
    seen_epoch_.assign(2 * old.size(), 0);
    n_seen_ = 0;
    for (size_t i = 0; i < old.size(); ++i) {
      if (old_epoch[i] == epoch_) see(old[i]);
    }
  }
  const size_t mask = seen_table_.size() - 1;
  size_t i = mix(config) & mask;
  for (; seen_epoch_[i] == epoch_; i = (i + 1) & mask) {
    if (seen_table_[i] == config) return false;
  }
  seen_table_[i] = config;
  seen_epoch_[i] = epoch_;
  ++n_seen_;
  return true;
}

int32_t Automaton::push(StateId back, int32_t below) {
  if (network_->states[static_cast<size_t>(back)].ends_rule) return below;  // nothing is left to do there but to return
  const auto [it, is_new] = frame_ids_.try_emplace(pair_of(back, below), static_cast<int32_t>(frames_.size()));
  if (is_new) {
    if (static_cast<int64_t>(frames_.size()) >= kFramesMax) {
      throw Error(Errc::bad_request, fmt::format("the constraint needs more than {} open calls", kFramesMax));
    }
    frames_.push_back({back, below});
  }
  return it->second;
}

// Everything that can be reached from `open` without a byte.
Automaton::Place Automaton::place_of(std::vector<Config>& open) {
  if (++epoch_ == 0) {
    std::fill(seen_epoch_.begin(), seen_epoch_.end(), 0);
    epoch_ = 1;
  }
  n_seen_ = 0;
  Known known;
  while (!open.empty()) {
    const Config config = open.back();
    open.pop_back();
    if (!see(config)) continue;
    work(1);
    const State& state = network_->states[static_cast<size_t>(state_of(config))];
    const int32_t stack = stack_of(config);
    if (state.ends_rule) {
      if (stack == 0) {
        known.accepts = true;
      } else {
        const Frame frame = frames_[static_cast<size_t>(stack)];
        open.push_back(pair_of(frame.back, frame.below));
      }
      continue;
    }
    known.n_plain = std::max(known.n_plain, state.plain);
    if (!state.bytes.empty()) {
      known.configs.push_back(config);
      known.only_plain &= state.plain != kNotPlain;
    }
    for (const StateId to : state.jumps) open.push_back(pair_of(to, stack));
    for (const Call& c : state.calls)
      open.push_back(pair_of(network_->rules[static_cast<size_t>(c.rule)].begin, push(c.back, stack)));
    if (known.configs.size() > kConfigsMax) work(INT64_MAX);
  }
  if (known.configs.empty() && !known.accepts) return kDead;
  std::sort(known.configs.begin(), known.configs.end());
  return intern(std::move(known));
}

// Many bytes lead to one state.
Automaton::Place Automaton::place_of_one(Config config) {
  const auto known = of_one_.find(config);
  if (known != of_one_.end()) return known->second;
  open_.assign(1, config);
  const Place place = place_of(open_);
  of_one_.emplace(config, place);
  kept_bytes_ += sizeof(config) + sizeof(place) + 4 * sizeof(void*);
  return place;
}

Automaton::Place Automaton::intern(Known known) {
  uint64_t hash = known.accepts ? 1 : 0;
  for (const Config c : known.configs) hash = mix(hash ^ c);
  const auto [first, last] = by_hash_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    const Known& other = places_[static_cast<size_t>(it->second)];
    if (other.accepts == known.accepts && other.configs == known.configs) return it->second;
  }
  const auto id = static_cast<Place>(places_.size());
  kept_bytes_ +=
      sizeof(Known) + static_cast<size_t>(ranks_.n) * sizeof(Place) + known.configs.capacity() * sizeof(Config);
  places_.push_back(std::move(known));
  add_table(-1);
  by_hash_.emplace(hash, id);
  return id;
}

// All bytes around this one that lead to the same states are learnt together.
Automaton::Place Automaton::find(Place from, uint8_t byte) {
  int first = 0, last = 255;
  open_.clear();
  for (const Config config : places_[static_cast<size_t>(from)].configs) {
    const auto& edges = network_->states[static_cast<size_t>(state_of(config))].bytes;
    work(static_cast<int64_t>(edges.size()));
    for (const ByteEdge& e : edges) {
      if (e.last < byte) {
        first = std::max(first, e.last + 1);
      } else if (e.first > byte) {
        last = std::min(last, e.first - 1);
      } else {
        first = std::max<int>(first, e.first);
        last = std::min<int>(last, e.last);
        open_.push_back(pair_of(e.to, stack_of(config)));
      }
    }
  }
  const Place next = open_.empty() ? kDead : open_.size() == 1 ? place_of_one(open_[0]) : place_of(open_);
  Place* table = tables_[static_cast<size_t>(from)].get();
  std::fill(table + ranks_.of[static_cast<size_t>(first)], table + ranks_.of[static_cast<size_t>(last)] + 1, next);
  return next;
}

bool Automaton::alike(Place a, Place b, int n_bytes) {
  const int64_t kept = std::exchange(work_left_, kAlikeWork);
  int pairs_left = kPairsMax;
  bool found = false;
  try {
    found = alike_within(a, b, n_bytes, pairs_left);
  } catch (const Error&) {
    // A place behind these has too many readings; whoever gets there is told.
  }
  work_left_ = kept;
  return found;
}

// As deep as n_bytes.
bool Automaton::alike_within(Place a, Place b, int n_bytes, int& pairs_left) {
  if (a == b) return true;
  if (a == kDead || b == kDead) return false;
  if (n_bytes == 0) return true;
  const auto few = [this](Place p) { return places_[static_cast<size_t>(p)].configs.size() <= kFewConfigs; };
  if (--pairs_left < 0 || !few(a) || !few(b)) return false;
  const uint64_t pair = pair_of(a, b);
  const auto known = alike_.find(pair);
  const bool is_new = known == alike_.end();
  if (!is_new && known->second >= n_bytes) return true;
  for (size_t rank = 0; rank < static_cast<size_t>(ranks_.n);) {
    const Place next_a = step(a, ranks_.first[rank]), next_b = step(b, ranks_.first[rank]);
    if (!alike_within(next_a, next_b, n_bytes - 1, pairs_left)) return false;
    const Place* all_a = tables_[static_cast<size_t>(a)].get();
    const Place* all_b = tables_[static_cast<size_t>(b)].get();
    while (rank < static_cast<size_t>(ranks_.n) && all_a[rank] == next_a && all_b[rank] == next_b) ++rank;
  }
  if (is_new) kept_bytes_ += sizeof(pair) + sizeof(n_bytes) + 4 * sizeof(void*);
  alike_[pair] = n_bytes;
  return true;
}

// Where all characters that begin with these bytes lead from the state behind their first byte; -1: not to one state.
StateId Automaton::behind_character(StateId state, const Leads& leads) const {
  for (int i = 0; i < leads.n_behind; ++i) {
    const State& s = network_->states[static_cast<size_t>(state)];
    const uint8_t first = i == 0 ? leads.second_first : 0x80, last = i == 0 ? leads.second_last : 0xBF;
    if (s.bytes.size() != 1 || !s.jumps.empty() || !s.calls.empty()) return -1;
    if (s.bytes[0].first > first || s.bytes[0].last < last) return -1;
    state = s.bytes[0].to;
  }
  return state;
}

const Automaton::Classes& Automaton::classes(StateId state) {
  const auto known = classes_.find(state);
  if (known != classes_.end()) return known->second;
  const std::vector<ByteEdge>& edges = network_->states[static_cast<size_t>(state)].bytes;
  work(static_cast<int64_t>(edges.size()));
  Classes found;
  ByteSet twice;
  for (const ByteEdge& e : edges) {
    ByteSet range;
    range.add(e.first, e.last);
    twice = twice | (found.alive & range);
    found.alive = found.alive | range;
  }
  std::vector<std::pair<StateId, ByteSet>> by_target;
  for (const ByteEdge& e : edges) {
    for (const Leads& leads : kLeads) {
      ByteSet range;
      range.add(std::max(e.first, leads.first), std::min(e.last, leads.last));
      range = range & ~twice;
      const StateId to = range.empty() ? -1 : behind_character(e.to, leads);
      if (to < 0) continue;
      auto same = std::find_if(by_target.begin(), by_target.end(), [to](const auto& t) { return t.first == to; });
      if (same == by_target.end()) same = by_target.insert(same, {to, ByteSet()});
      same->second = same->second | range;
    }
  }
  for (const auto& [to, set] : by_target) found.all.push_back(set);
  kept_bytes_ += sizeof(Classes) + found.all.size() * sizeof(ByteSet) + 4 * sizeof(void*);
  return classes_.emplace(state, std::move(found)).first->second;
}

// Behind one character, the first that begins with this byte.
Automaton::Place Automaton::behind(Place place, uint8_t lead) {
  place = step(place, lead);
  const Leads* leads = leads_of(lead);
  for (int i = 0; i < leads->n_behind; ++i) place = step(place, i == 0 ? leads->second_first : uint8_t{0x80});
  return place;
}

Automaton::Ways Automaton::ways(Place place) {
  if (!places_[static_cast<size_t>(place)].has_ways) {
    const Ways found = find_ways(place);
    places_[static_cast<size_t>(place)].ways = found;
    places_[static_cast<size_t>(place)].has_ways = true;
  }
  return places_[static_cast<size_t>(place)].ways;
}

// Bytes that the same states read as members of the same classes lead to one place.
Automaton::Ways Automaton::find_ways(Place place) {
  const std::vector<Config> configs = places_[static_cast<size_t>(place)].configs;  // places lie elsewhere after step()
  if (configs.size() > kSomeConfigs) return {};
  Ways found;
  ByteSet alive, unclear;
  std::vector<ByteSet> parts = {~ByteSet()}, next;  // each within one class of each state, or without any
  for (const Config c : configs) {
    const Classes& here = classes(state_of(c));
    ByteSet in_classes;
    for (const ByteSet& set : here.all) {
      work(static_cast<int64_t>(parts.size()));
      next.clear();
      for (const ByteSet& part : parts) {
        if (const ByteSet inside = part & set; !inside.empty()) next.push_back(inside);
        if (const ByteSet outside = part & ~set; !outside.empty()) next.push_back(outside);
      }
      parts.swap(next);
      in_classes = in_classes | set;
    }
    unclear = unclear | (here.alive & ~in_classes);
    alive = alive | here.alive;
  }
  std::vector<std::pair<Place, ByteSet>> by_place;
  for (const ByteSet& part : parts) {
    const ByteSet set = part & alive & ~unclear;
    if (set.empty()) continue;
    const Place to = behind(place, set.first());
    auto same = std::find_if(by_place.begin(), by_place.end(), [to](const auto& p) { return p.first == to; });
    if (same == by_place.end()) same = by_place.insert(same, {to, ByteSet()});
    same->second = same->second | set;
  }
  found.never = ~alive;
  for (const auto& [to, set] : by_place) {
    if (set.size() > found.on.size()) found.on = set;
  }
  return found;
}

Run Automaton::run(Place place) {
  const int64_t kept = std::exchange(work_left_, kAlikeWork);
  Run run;
  try {
    const Ways first = ways(place);
    run.on = first.on;
    run.never = first.never;
    while (!run.on.empty() && run.n < kRunMax) {
      const Place next = behind(place, run.on.first());
      run.n = next == place ? kRunMax : run.n + 1;
      const Ways there = ways(next);
      run.never = run.never & there.never;
      if (!run.on.within(there.on)) {
        run.ends = run.on.within(there.never);
        break;
      }
      place = next;
    }
  } catch (const Error&) {
    run = {};  // as in alike()
  }
  work_left_ = kept;
  return run;
}

const Automaton::Free& Automaton::free(Place place) {
  if (places_[static_cast<size_t>(place)].free.n < 0) {
    const Run found = run(place);
    places_[static_cast<size_t>(place)].free = {groups_within(found.on), found.n};
  }
  return places_[static_cast<size_t>(place)].free;
}

Automaton::Place Automaton::keep_only(Place place) {
  Known first = places_[static_cast<size_t>(begin_)], current = places_[static_cast<size_t>(place)];
  places_.resize(1);
  tables_.resize(1);
  by_hash_.clear();
  alike_.clear();
  classes_.clear();
  of_one_.clear();
  kept_bytes_ = 0;
  begin_ = intern(std::move(first));
  return place == kDead ? kDead : intern(std::move(current));
}

}  // namespace assay::constraint
