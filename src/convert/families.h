// The families that assay converts, each a table of Hugging Face's names and a function that turns config.json into keys. A family is found by the class
// that config.json names; its GGUF name is that of src/model/arch.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "convert/draft.h"

namespace assay::converting {

// Where tokens come from.
enum class VocabularyKind {
  pieces_or_bpe,    // tokenizer.model where there is one, else the BPE of tokenizer.json
  pieces,           // tokenizer.model alone
  pieces_and_added, // tokenizer.model, with the added tokens of tokenizer.json over it
  bpe,              // tokenizer.json
};

struct Family {
  std::string_view architecture;                // general.architecture
  std::vector<std::string_view> classes;        // of config.json's "architectures"
  std::string_view defaults;                    // of the class, as JSON; what it derives stands in `draw`
  VocabularyKind vocabulary = VocabularyKind::bpe;
  void (*draw)(Draft&) = nullptr;               // keys and tensors
  bool reads_prefix_space = false;              // tokenizer_config.json's add_prefix_space becomes a key
};

const std::vector<Family>& families();
// Error(unsupported), listing the known classes.
const Family& family_of(const Json& config);

// The pieces that families are made of.
namespace parts {

inline constexpr std::string_view kSilu = "silu";

// block_count, context, widths, heads, experts, epsilons: those that config.json has, under the names that all families share.
void sizes(Draft& draft);
// rope.freq_base, and rope.scaling.* of linear and YaRN scaling. Error(unsupported) for a kind that the family's file has no key for.
struct RopeOptions {
  bool llama3 = false;    // makes rope_freqs.weight
  std::optional<double> local_theta = std::nullopt;  // window layers have a base of their own, by default this; 0: the other layers'
};
void rope(Draft& draft, const RopeOptions& options = {});
int64_t head_dim(Draft& draft);            // as config.json has it, else hidden_size / num_attention_heads
void key_lengths(Draft& draft);            // of a head_dim that is there
std::vector<bool> window_layers(Draft& draft, bool (*otherwise)(int64_t layer));  // from layer_types

}  // namespace parts

}  // namespace assay::converting
