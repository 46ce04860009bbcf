// The families that assay converts, each a table of Hugging Face's names and a function that turns config.json into
// keys. A family is found by the class that config.json names; its GGUF name is that of src/model/arch. Tables stand in
// families_*.cpp, by kind.
#pragma once

#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "convert/draft.h"

namespace assay::converting {

// Where tokens come from.
enum class VocabularyKind {
  pieces_or_bpe,     // tokenizer.model where there is one, else the BPE of tokenizer.json
  pieces,            // tokenizer.model alone
  pieces_and_added,  // tokenizer.model, with the added tokens of tokenizer.json over it
  bpe,               // tokenizer.json
  merged_pieces,     // tokenizer.json with blanks as U+2581 and bytes as <0xNN>: Gemma 4's
  word_pieces,       // tokenizer.json: WordPiece, or the Unigram of XLM-RoBERTa
};

// What a class's files say of tokens beside the vocabulary.
enum class TokenHabit {
  none,
  hunyuan,     // eod_token_id ends an answer; so does the first of generation_config.json's
  laguna,      // the second of eos_token_id's ends a turn, and </assistant> is no text
  surrounded,  // BOS, EOS and a separator are put around a text, unless tokenizer.json says otherwise
  no_bos,      // nothing is put before one
};

struct FamilyOptions {
  bool reads_prefix_space = false;  // tokenizer_config.json's add_prefix_space becomes a key
  bool no_space_prefix = false;     // no blank is put before a text
  bool cuts_vocabulary = false;     // rows of the embedding beyond the tokens are left out
  bool reads_mxfp4 = false;         // quantization_config may say mxfp4
  std::string_view pre_of =
      {};  // the architecture whose pre-tokenizer these models have, where rules go by several names; empty: their own
  std::string_view prefix = {};  // of the folder's names: taken off
  bool bare = false;             // the folder's names lack "model."
  TokenHabit habit = TokenHabit::none;
  std::vector<std::pair<std::string_view, std::string_view>> special_texts =
      {};  // bos, eos, ...: an added token, where nothing else says which
  std::vector<std::pair<std::string_view, int>> special_ids = {};  // of a key's name: an id, whatever else says which
  std::vector<std::string_view> model_types = {};  // of text_config, where several families share a class; empty: any
};

struct Family {
  std::string_view architecture;          // general.architecture
  std::vector<std::string_view> classes;  // of config.json's "architectures"
  std::string_view defaults;              // of the class, as JSON; what it derives stands in `draw`
  VocabularyKind vocabulary = VocabularyKind::bpe;
  void (*draw)(Draft&) = nullptr;  // keys and tensors
  FamilyOptions options = {};
};

std::vector<Family> llama_families();
std::vector<Family> granite_families();
std::vector<Family> qwen_families();
std::vector<Family> gemma_families();
std::vector<Family> norm_families();
std::vector<Family> fused_families();
std::vector<Family> expert_families();
std::vector<Family> latent_families();
std::vector<Family> encoder_families();
std::vector<Family> delta_families();
std::vector<Family> state_families();

const std::vector<Family>& families();
// Error(unsupported), listing the known classes.
const Family& family_of(const Json& config);

// The pieces that families are made of.
namespace parts {

// block_count, context, widths, heads, experts, epsilons: those that config.json has, under the names that all families
// share.
struct SizeOptions {
  bool has_experts = true;
  bool has_kv_heads = true;
  bool has_ffn_width = true;  // false: the family sees to it itself
  std::string_view context_key = "max_position_embeddings";
};
void sizes(Draft& draft, const SizeOptions& options = {});
void layers_and_heads(Draft& draft, std::string_view layers_key,
                      std::string_view heads_key);      // of classes with other names; sets no keys
int64_t n_experts(Draft& draft, std::string_view key);  // sets expert_count
// rope.freq_base, and rope.scaling.* of linear and YaRN scaling. Error(unsupported) for a kind that the family's file
// has no key for.
struct RopeOptions {
  bool llama3 = false;  // makes rope_freqs.weight
  std::optional<double> local_theta =
      std::nullopt;                  // window layers have a base of their own, by default this; 0: the other layers'
  std::string_view known_type = {};  // a kind of scaling that the family sees to itself
  bool scaling = true;               // false: files of the family say that there is none
  double (*magnitude)(double factor, double mscale_all_dim) =
      nullptr;  // what files mean that have mscale_all_dim; null: they have no key for it
};
double rope(Draft& draft, const RopeOptions& options = {});
double yarn_magnitude(double factor, double mscale);
double share(double value, std::string_view key);  // Error(bad_file) unless above 0 and at most 1
double rotary_share(Draft& draft, std::initializer_list<std::string_view> keys,
                    std::optional<double> otherwise = std::nullopt);  // of a head, that turns
void require_usual_base(Draft& draft, std::string_view key,
                        std::string_view known_type = {});  // 10000, and no scaling: the file has no keys for them
void long_factors(Draft& draft, const Json& scaling, int64_t n);  // rope_factors_long and _short, of LongRoPE
double long_rope_factor(int64_t context, int64_t original);       // LongRoPE's factor of queries and keys
int64_t head_dim(Draft& draft);      // as config.json has it, else hidden_size / num_attention_heads
void key_lengths(Draft& draft);      // of a head_dim that is there
void derive_head_dim(Draft& draft);  // of one that is not there as well: classes that derive it say it nonetheless
void llama_keys(Draft& draft);
double granite_keys(Draft& draft);                                                // the rotation's base
std::vector<bool> window_layers(Draft& draft, bool (*otherwise)(int64_t layer));  // from layer_types
void pooling(Draft& draft);  // from modules.json and classifier_pooling

// A bias is there if and only if config.json says so.
void check_bias(Draft& draft, std::string_view flag, std::string_view tensor, bool otherwise = false);
void note_window(Draft& draft,
                 std::string_view key);  // a window that config.json has and the family's file has no key for
void require_no_window(Draft& draft);
void require_experts_everywhere(Draft& draft);      // mlp_only_layers, decoder_sparse_step
void split_expansion(Draft& draft, int64_t layer);  // of latent attention: keys and values apart, keys turned
void require_norm_of_router(Draft& draft, std::string_view key);  // the family's file has no key, and readers normalise
// Of the models whose tokenizer is GLM-4's.
FamilyOptions glm4_vocabulary();

}  // namespace parts

}  // namespace assay::converting
