// Guesses by looking up: what followed the last tokens of a request where they stood last before. Finds quotes, edits
// and repetitions; costs nothing where there are none.
#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>

#include "assay/error.h"
#include "engine/scheduler/drafter.h"

namespace assay::engine {
namespace {

constexpr size_t kLookedUp = 3;  // tokens that must stand there the same

// Where each run of kLookedUp tokens of a request ended last.
struct Index {
  std::unordered_map<uint64_t, size_t> ends;
  size_t n_indexed = 0;  // tokens whose runs are in it
};

// A key of the run that ends before `end`; runs that share one are compared.
uint64_t key_of(std::span<const TokenId> tokens, size_t end) {
  uint64_t key = 0;
  for (size_t i = end - kLookedUp; i < end; ++i) key = (key ^ static_cast<uint32_t>(tokens[i])) * 0x9E3779B97F4A7C15u;
  return key;
}

class NgramDrafter final : public Drafter {
 public:
  void guess(std::span<DraftAsk> asks) override {
    for (DraftAsk& ask : asks) guess_one(ask);
  }
  void over(uint64_t id) override { indices_.erase(id); }

 private:
  void guess_one(DraftAsk& ask) {
    const std::span<const TokenId> tokens = ask.tokens;
    if (tokens.size() <= kLookedUp) return;
    Index& index = indices_[ask.id];
    // All runs but the last one, which is what is looked up.
    for (size_t end = std::max(index.n_indexed, kLookedUp); end < tokens.size(); ++end)
      index.ends[key_of(tokens, end)] = end;
    index.n_indexed = tokens.size();
    const auto found = index.ends.find(key_of(tokens, tokens.size()));
    if (found == index.ends.end()) return;
    const size_t at = found->second;
    if (!std::equal(tokens.end() - kLookedUp, tokens.end(),
                    tokens.begin() + static_cast<std::ptrdiff_t>(at - kLookedUp)))
      return;
    const size_t n = std::min(static_cast<size_t>(ask.n_max), tokens.size() - at);
    ask.guesses->assign(tokens.begin() + static_cast<std::ptrdiff_t>(at),
                        tokens.begin() + static_cast<std::ptrdiff_t>(at + n));
  }

  std::map<uint64_t, Index> indices_;
};

}  // namespace

std::unique_ptr<Drafter> make_ngram_drafter() { return std::make_unique<NgramDrafter>(); }

std::unique_ptr<Drafter> make_drafter(const DraftOptions& options, const Context& target) {
  if (options.kind == DraftKind::none) return nullptr;
  if (options.n_max < 1 || options.n_max > 256) {
    throw Error(Errc::bad_request,
                "guesses a run (--spec-draft-n-max): needs 1 to 256, found " + std::to_string(options.n_max));
  }
  if (options.kind == DraftKind::ngram) return make_ngram_drafter();
  if (options.model == nullptr)
    throw Error(Errc::bad_request, "--spec-type draft-simple needs a draft model: -md FILE");
  return make_model_drafter(options.model, target);
}

}  // namespace assay::engine

namespace assay {

std::string_view name(DraftKind kind) noexcept {
  switch (kind) {
    case DraftKind::none: return "none";
    case DraftKind::ngram: return "ngram-simple";
    case DraftKind::model: return "draft-simple";
  }
  return "";
}

DraftKind parse_draft_kind(std::string_view text) {
  for (const DraftKind kind : {DraftKind::none, DraftKind::ngram, DraftKind::model}) {
    if (text == name(kind)) return kind;
  }
  throw Error(Errc::bad_request, "--spec-type '" + std::string(text) + "': needs none, ngram-simple or draft-simple");
}

}  // namespace assay
