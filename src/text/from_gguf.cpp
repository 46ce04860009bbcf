// The keys of a vocabulary. Source: the GGUF specification, section "Tokenizer", and llama.cpp
// 0.5.0 for those it does not list.
#include "text/from_gguf.h"

#include <fmt/format.h>

#include <cstring>
#include <iterator>
#include <limits>
#include <string>

#include "assay/error.h"
#include "gguf/file.h"

namespace assay::text {
namespace {

using gguf::Metadata;
using gguf::ValueType;

std::optional<TokenId> read_id(const Metadata& metadata, const std::string& name) {
  const std::string key = "tokenizer.ggml." + name + "_token_id";
  const auto value = metadata.find_unsigned(key);
  if (!value) return std::nullopt;
  if (*value > static_cast<uint64_t>(std::numeric_limits<TokenId>::max())) {
    throw Error(Errc::bad_file, fmt::format("{} is {}, which is no token id", key, *value));
  }
  return static_cast<TokenId>(*value);
}

std::optional<TokenId> read_id(const Metadata& metadata, const std::string& name, const std::string& old_name) {
  const auto value = read_id(metadata, name);
  const auto old_value = read_id(metadata, old_name);
  return value ? value : old_value;
}

SpecialIds read_special(const Metadata& metadata, size_t n_tokens) {
  SpecialIds ids;
  ids.bos = read_id(metadata, "bos");
  ids.eos = read_id(metadata, "eos");
  ids.eot = read_id(metadata, "eot");
  ids.eom = read_id(metadata, "eom");
  ids.unknown = read_id(metadata, "unknown");
  ids.fim_prefix = read_id(metadata, "fim_pre", "prefix");
  ids.fim_suffix = read_id(metadata, "fim_suf", "suffix");
  ids.fim_middle = read_id(metadata, "fim_mid", "middle");
  ids.fim_pad = read_id(metadata, "fim_pad");
  ids.fim_repo = read_id(metadata, "fim_rep");
  ids.fim_separator = read_id(metadata, "fim_sep");
  ids.cls = read_id(metadata, "cls");
  ids.separator = read_id(metadata, "separator", "seperator");  // as most files spell it
  for (const char* unused : {"padding", "mask"}) {              // of no use to us, but wrong where they point nowhere
    const auto id = read_id(metadata, unused);
    if (id && static_cast<size_t>(*id) >= n_tokens) {
      throw Error(Errc::bad_file,
                  fmt::format("tokenizer.ggml.{}_token_id is {}, the vocabulary has {} tokens", unused, *id, n_tokens));
    }
  }
  return ids;
}

std::vector<TokenKind> read_kinds(const Metadata& metadata) {
  constexpr const char* kKey = "tokenizer.ggml.token_type";
  const gguf::Entry* entry = metadata.find(kKey);
  if (entry == nullptr) return {};
  if (entry->type == ValueType::array && entry->element_type != ValueType::i32 &&
      entry->element_type != ValueType::u32) {
    throw Error(Errc::bad_file,
                fmt::format("{} must hold 32-bit integers, it holds {}", kKey, name(entry->element_type)));
  }
  if (entry->type != ValueType::array) metadata.find_integers(kKey);  // throws, naming both types
  constexpr TokenKind kKinds[] = {TokenKind::unused,       TokenKind::normal, TokenKind::unknown, TokenKind::control,
                                  TokenKind::user_defined, TokenKind::unused, TokenKind::byte};
  std::vector<TokenKind> kinds(entry->count);
  for (size_t i = 0; i < kinds.size(); ++i) {
    uint32_t number = 0;
    std::memcpy(&number, entry->bytes.data() + i * sizeof number, sizeof number);
    if (number >= std::size(kKinds)) {
      const auto shown =
          entry->element_type == ValueType::i32 ? int64_t{static_cast<int32_t>(number)} : int64_t{number};
      throw Error(Errc::bad_file, fmt::format("{}: entry {} is {}, the kinds are 0 to 6", kKey, i, shown));
    }
    kinds[i] = kKinds[number];
  }
  return kinds;
}

std::span<const std::byte> read_chars_map(const Metadata& metadata) {
  constexpr const char* kKey = "tokenizer.ggml.precompiled_charsmap";
  const gguf::Entry* entry = metadata.find(kKey);
  if (entry == nullptr) return {};
  const bool is_bytes =
      entry->type == ValueType::array && (entry->element_type == ValueType::u8 || entry->element_type == ValueType::i8);
  if (!is_bytes) throw Error(Errc::bad_file, fmt::format("{} must be an array of bytes", kKey));
  return entry->bytes;
}

}  // namespace

VocabularyFacts read_facts(const Metadata& metadata) {
  VocabularyFacts facts;
  facts.model = metadata.require_string("tokenizer.ggml.model");
  if (!is_served(facts.model)) return facts;  // refused by name where the tokenizer is made
  facts.pre_tokenizer = metadata.find_string("tokenizer.ggml.pre").value_or("");
  facts.model_name = metadata.find_string("general.name").value_or("");
  const gguf::StringArray tokens = metadata.require_string_array("tokenizer.ggml.tokens");
  facts.tokens = PackedTexts(tokens.bytes, tokens.count);
  facts.kinds = read_kinds(metadata);
  facts.scores = metadata.find_floats("tokenizer.ggml.scores").value_or(std::vector<float>());
  facts.merges = metadata.find_strings("tokenizer.ggml.merges").value_or(std::vector<std::string_view>());
  if (facts.model == "t5") facts.chars_map = read_chars_map(metadata);
  facts.special = read_special(metadata, facts.tokens.size());
  facts.add_bos = metadata.find_bool("tokenizer.ggml.add_bos_token");
  facts.add_eos = metadata.find_bool("tokenizer.ggml.add_eos_token");
  facts.add_separator = metadata.find_bool("tokenizer.ggml.add_sep_token");
  facts.add_space_prefix = metadata.find_bool("tokenizer.ggml.add_space_prefix");
  facts.remove_extra_whitespaces = metadata.find_bool("tokenizer.ggml.remove_extra_whitespaces");
  return facts;
}

std::shared_ptr<const Tokenizer> make_tokenizer(const Metadata& metadata) {
  return make_tokenizer(read_facts(metadata));
}

}  // namespace assay::text

namespace assay {

std::shared_ptr<const Tokenizer> Tokenizer::load(const std::string& path) {
  const gguf::File file = gguf::File::open(path);
  return text::make_tokenizer(file.metadata());
}

}  // namespace assay
