// Bytes to token ids and back, by the vocabulary that a model's file carries.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace assay {

using TokenId = int32_t;

enum class TokenKind : uint8_t { normal, unknown, control, user_defined, unused, byte };

struct EncodeOptions {
  bool parse_special = false;   // text of a control token becomes that token; false: it stays text
  std::optional<bool> add_bos;  // nullopt: as the file says
  std::optional<bool> add_eos;
};

// Part of a prompt: text from a user keeps special tokens as text, text from a template has them
// parsed.
struct TextPiece {
  std::string text;
  bool parse_special = false;
};

class Tokenizer {  // any number of threads at a time
 public:
  // The tokenizer of a GGUF file (a vocabulary-only file will do). Throws Error(io, bad_file,
  // unsupported).
  static std::shared_ptr<const Tokenizer> load(const std::string& path);

  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options = {}) const;
  // The pieces as one text whose parts differ in whether special tokens are parsed
  // (options.parse_special is not used).
  std::vector<TokenId> encode(std::span<const TextPiece> pieces, const EncodeOptions& options = {}) const;
  // The bytes of the ids. special: control tokens appear as their text; false: they are left out. A
  // blank that the vocabulary's rules put before a text, and after its special tokens, is taken off
  // again. Throws Error(bad_request) for an id out of range.
  std::string decode(std::span<const TokenId> ids, bool special = false) const;
  std::string piece(TokenId id, bool special = true) const;  // the bytes one token stands for
  // The same at the end of `out`, whose memory a loop over tokens can use again.
  void append_piece(TokenId id, std::string& out, bool special = true) const;

  int32_t vocab_size() const noexcept;
  std::string_view text(TokenId id) const;  // as the file spells it
  TokenKind kind(TokenId id) const;
  std::optional<TokenId> find(std::string_view token_text) const;
  std::optional<TokenId> bos() const noexcept;
  std::optional<TokenId> eos() const noexcept;
  bool adds_bos() const noexcept;
  bool adds_eos() const noexcept;
  bool is_end_of_generation(TokenId id) const noexcept;
  std::vector<TokenId> end_of_generation() const;   // ascending
  std::string_view model() const noexcept;          // "llama", "gpt2", "gemma4", "bert", "t5"
  std::string_view pre_tokenizer() const noexcept;  // "smollm", ...; empty for SentencePiece-style

  struct State;
  explicit Tokenizer(std::unique_ptr<const State> state);  // for the library itself
  ~Tokenizer();

 private:
  std::unique_ptr<const State> state_;
};

// Turns a stream of ids into text, holding back bytes until they form whole UTF-8 characters. Bytes
// that can never become one come out as U+FFFD.
class StreamDecoder {  // one thread at a time
 public:
  // continues: the ids go on after a prompt, so a blank before their first word is text. false:
  // they are a text of their own, and the blank that some vocabularies put before a text is left
  // out, as in Tokenizer::decode.
  explicit StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool special = false, bool continues = true);
  std::string push(TokenId id);             // what can be shown now
  void push(TokenId id, std::string& out);  // the same at the end of `out`
  std::string finish();                     // what is left
 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  bool special_ = false;
  bool continues_ = true;
  bool opens_ = false;  // a blank that only opens a text is still to come
  std::string pending_;
};

}  // namespace assay
