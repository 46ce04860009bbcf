// The KV cache as a scheduler sees it: places for requests. What a request held stays after its end, so that a prompt
// that begins alike runs only its rest, until its pages are needed. Where the cache has no pages a place keeps what it
// holds, and whoever begins alike gets that place.
// Of layers with a window a sequence gives back what lies behind it. It keeps what a beginning needs that is likely to
// be asked for again: its prompt, and what it had in common with another one. Any other is a shorter hit, or none. Of a
// model with states a hit ends where its states are known: at its end, or at a checkpoint.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "assay/context.h"
#include "base/pending_copies.h"
#include "pages/prefix_tree.h"

namespace assay::engine {

// How many tokens two begin with alike.
int64_t n_common(std::span<const TokenId> a, std::span<const TokenId> b);

class SequenceTables {
 public:
  // The context must outlive it, and nobody else may run its sequences.
  SequenceTables(Context& context, bool keeps);

  bool has_pages() const noexcept { return page_positions_ > 0; }
  bool has_images() const noexcept { return has_pages() && !has_states_; }  // pages can be kept elsewhere
  bool has_states() const noexcept { return has_states_; }
  int64_t page_positions() const noexcept { return page_positions_; }
  int64_t n_pages() const noexcept { return n_pages_; }
  int64_t n_pages_free() const;
  int64_t used_bytes() const;  // of pages in use
  int64_t pages_of(int64_t n_positions) const noexcept;

  struct Place {
    int sequence = 0;
    int64_t n_cached = 0;  // of the tokens
  };
  // A place for these tokens, with as many of them as are held under the same salt, by what is over or by a place in
  // use; never all, so that there are logits after the last one. There must be a place: fewer are in use than the
  // context has sequences. n_prompt: of the tokens; what comes after them is an answer so far.
  Place take(std::span<const TokenId> tokens, std::string_view salt, int64_t n_prompt);
  // The same anew, for a place that was taken and holds less than n_tokens of what `from` holds.
  int64_t copy(int from, int64_t n_tokens, int sequence);
  void append(int sequence, TokenId token) { slot(sequence).tokens.push_back(token); }  // its position was run
  // n_positions() says how many are left: fewer where the window before the cut was given back.
  void truncate(int sequence, int64_t n_positions);
  void truncate_to_page(int sequence);  // so that pages can be appended
  // Of n tokens of a sequence, how many a fork or a cut can go on behind.
  int64_t n_usable(int sequence, int64_t n) const;
  // Gives back the pages of layers with a window that lie behind it. The sequence will not be cut to less than a page
  // before where it ends now, but to what it keeps.
  void give_back_windows(int sequence);
  void set_parted(int sequence, int64_t n_tokens) { slot(sequence).n_parted = n_tokens; }  // kept: it may be cut there
  void give_back(int sequence);
  void forget(int sequence);  // after a run that failed nobody knows what its sequences hold

  // Drops what nobody uses, the least recently used first, until so many pages are free. False: there are fewer.
  bool make_room(int64_t n_pages);
  int64_t n_pages_needed(int sequence, int64_t n_more) const;

  std::span<const TokenId> tokens(int sequence) const noexcept { return slots_[static_cast<size_t>(sequence)].tokens; }
  const std::string& salt(int sequence) const noexcept { return slots_[static_cast<size_t>(sequence)].salt; }
  int64_t n_positions(int sequence) const noexcept { return static_cast<int64_t>(tokens(sequence).size()); }
  int64_t n_positions_taken() const noexcept;

  // Pages out and in, beside what runs: images stay as they are, and alive, until `copies` are over. image has
  // image_bytes() of the page, fewer than page_bytes() where the part of the layers with a window was given back. read:
  // false where there is none. append: the page's tokens with it, behind full pages; false where no page is free. After
  // the last one truncate() to what there is: their windows may not be.
  size_t page_bytes() const;
  size_t window_bytes() const noexcept { return window_bytes_; }
  size_t image_bytes(int sequence, int64_t i_page) const;
  bool begin_read_page(int sequence, int64_t i_page, std::span<std::byte> image, base::PendingCopies& copies) const;
  bool begin_append_page(int sequence, std::span<const TokenId> tokens, std::span<const std::byte> image,
                         base::PendingCopies& copies);
  bool is_ready(int sequence) const;  // false: a run of it would wait for such copies

 private:
  struct Slot {
    std::vector<TokenId> tokens;  // whose positions are in the cache
    std::string salt;
    int64_t n_prompt = 0, n_parted = 0;      // lengths that it keeps the window of; parted: in common with another one
    int64_t n_given_back = 0;                // up to where it gave windows back
    bool is_taken = false, is_kept = false;  // neither: free, and empty
  };
  Slot& slot(int sequence) noexcept { return slots_[static_cast<size_t>(sequence)]; }
  // n: how many of the tokens its sequence can go on behind; n_common: how many one has at all, but not in its window.
  struct Hit {
    int sequence = -1;
    int64_t n = 0, n_common = 0;
  };
  Hit find(std::span<const TokenId> tokens, std::string_view salt);
  Hit find_usable(std::span<const TokenId> tokens, std::string_view salt);
  int free_sequence(int but);
  void clear(int sequence);

  Context* context_;
  bool keeps_;
  int64_t page_positions_, n_pages_;
  size_t window_bytes_;
  bool has_states_;
  std::vector<Slot> slots_;
  std::vector<int> free_;  // the last one is next
  pages::PrefixTree kept_;
};

}  // namespace assay::engine
