// The KV cache as a scheduler sees it: places for requests. What a request held stays after its end, so that a prompt
// that begins alike runs only its rest, until its pages are needed. Where the cache has no pages a place keeps what it
// holds, and whoever begins alike gets that place.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "assay/context.h"
#include "pages/prefix_tree.h"

namespace assay::engine {

class SequenceTables {
 public:
  // The context must outlive it, and nobody else may run its sequences.
  SequenceTables(Context& context, bool keeps);

  bool has_pages() const noexcept { return page_positions_ > 0; }
  int64_t page_positions() const noexcept { return page_positions_; }
  int64_t n_pages() const noexcept { return n_pages_; }
  int64_t n_pages_free() const;
  int64_t pages_of(int64_t n_positions) const noexcept;

  struct Place {
    int sequence = 0;
    int64_t n_cached = 0;  // of the tokens
  };
  // A place for these tokens, with as many of them as are held under the same salt, by what is over or by a place in
  // use; never all, so that there are logits after the last one. There must be a place: fewer are in use than the
  // context has sequences.
  Place take(std::span<const TokenId> tokens, std::string_view salt);
  // The same anew, for a place that was taken and holds less than n_tokens of what `from` holds.
  int64_t copy(int from, int64_t n_tokens, int sequence);
  void append(int sequence, TokenId token) { slot(sequence).tokens.push_back(token); }  // its position was run
  void truncate(int sequence, int64_t n_positions);
  void give_back(int sequence);
  void forget(int sequence);  // after a run that failed nobody knows what its sequences hold

  // Drops what nobody uses, the least recently used first, until so many pages are free. False: there are fewer.
  bool make_room(int64_t n_pages);
  int64_t n_pages_needed(int sequence, int64_t n_more) const;

  std::span<const TokenId> tokens(int sequence) const noexcept { return slots_[static_cast<size_t>(sequence)].tokens; }
  const std::string& salt(int sequence) const noexcept { return slots_[static_cast<size_t>(sequence)].salt; }
  int64_t n_positions(int sequence) const noexcept { return static_cast<int64_t>(tokens(sequence).size()); }
  int64_t n_positions_taken() const noexcept;

  // Full pages out and in: image has context pages().page_bytes. read: false where there is none. append: the page's
  // tokens with it; false where no page is free.
  size_t page_bytes() const;
  bool read_page(int sequence, int64_t i_page, std::span<std::byte> image) const;
  bool append_page(int sequence, std::span<const TokenId> tokens, std::span<const std::byte> image);

 private:
  struct Slot {
    std::vector<TokenId> tokens;  // whose positions are in the cache
    std::string salt;
    bool is_taken = false, is_kept = false;  // neither: free, and empty
  };
  Slot& slot(int sequence) noexcept { return slots_[static_cast<size_t>(sequence)]; }
  pages::PrefixTree::Hit find(std::span<const TokenId> tokens, std::string_view salt);
  int free_sequence(int but);
  void clear(int sequence);

  Context* context_;
  bool keeps_;
  int64_t page_positions_, n_pages_;
  std::vector<Slot> slots_;
  std::vector<int> free_;  // the last one is next
  pages::PrefixTree kept_;
};

}  // namespace assay::engine
