// tokenizer.model: a vocabulary of SentencePiece, a protocol buffer. Source: sentencepiece_model.proto of
// github.com/google/sentencepiece.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace assay::converting {

enum class PieceKind { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

struct Piece {
  std::string text;
  float score = 0;
  PieceKind kind = PieceKind::normal;
};

struct Pieces {
  std::vector<Piece> all;
  bool is_bpe = false;  // else the scores are of a unigram model, which is encoded another way
  int unknown = 0, bos = 1, eos = 2, padding = -1;
  // How text is normalised (text/chars_map.h), and its blanks.
  std::string chars_map;
  bool add_space_prefix = true, remove_extra_whitespaces = true, escapes_blanks = true, blank_behind = false;
};

// Error(bad_file).
Pieces read_pieces(std::string_view bytes);

}  // namespace assay::converting
