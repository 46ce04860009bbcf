// See pieces.h.
#include "convert/pieces.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "assay/error.h"
#include "base/utf8.h"

namespace assay::converting {
namespace {

constexpr size_t kPiecesMax = size_t{1} << 22;

// The fields of one message, in their order.
class Message {
 public:
  explicit Message(std::string_view bytes) : bytes_(bytes) {}

  bool next() {
    if (at_ == bytes_.size()) return false;
    const uint64_t tag = varint();
    field_ = tag >> 3;
    wire_ = static_cast<int>(tag & 7);
    switch (wire_) {
      case 0: number_ = varint(); break;
      case 1: part_ = take(8); break;
      case 2: part_ = take(varint()); break;
      case 5: part_ = take(4); break;
      default: fail(fmt::format("a field of wire type {}", wire_));
    }
    return true;
  }
  uint64_t field() const noexcept { return field_; }
  uint64_t number() const {
    if (wire_ != 0) fail(fmt::format("field {} is no number", field_));
    return number_;
  }
  std::string_view bytes() const {
    if (wire_ != 2) fail(fmt::format("field {} is no text", field_));
    return part_;
  }
  float real() const {
    if (wire_ != 5) fail(fmt::format("field {} is no float", field_));
    float x;
    std::memcpy(&x, part_.data(), sizeof x);
    return x;
  }

 private:
  [[noreturn]] static void fail(const std::string& problem) {
    throw Error(Errc::bad_file, fmt::format("tokenizer.model: {}", problem));
  }
  std::string_view take(uint64_t n) {
    if (n > bytes_.size() - at_) fail(fmt::format("a field of {} bytes where {} are left", n, bytes_.size() - at_));
    const std::string_view part = bytes_.substr(at_, n);
    at_ += n;
    return part;
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    fail("a number of more than 64 bits");
  }

  std::string_view bytes_, part_;
  size_t at_ = 0;
  uint64_t field_ = 0, number_ = 0;
  int wire_ = 0;
};

Piece read_piece(std::string_view bytes, size_t i) {
  Piece piece;
  Message in(bytes);
  while (in.next()) {
    if (in.field() == 1) piece.text = in.bytes();
    if (in.field() == 2) piece.score = in.real();
    if (in.field() != 3) continue;
    if (in.number() < 1 || in.number() > 6)
      throw Error(Errc::bad_file, fmt::format("tokenizer.model: piece {} is of kind {}; needs 1 to 6", i, in.number()));
    piece.kind = static_cast<PieceKind>(in.number());
  }
  if (!std::isfinite(piece.score))
    throw Error(Errc::bad_file, fmt::format("tokenizer.model: the score of piece {} is {}", i, piece.score));
  if (!base::is_utf8(piece.text)) throw Error(Errc::bad_file, fmt::format("tokenizer.model: piece {} is no UTF-8", i));
  return piece;
}

void read_trainer(std::string_view bytes, Pieces& pieces) {
  Message in(bytes);
  while (in.next()) {
    const auto id = [&] { return static_cast<int>(static_cast<int64_t>(in.number())); };
    switch (in.field()) {
      case 3: pieces.is_bpe = in.number() == 2; break;
      case 24: pieces.blank_behind = in.number() != 0; break;
      case 40: pieces.unknown = id(); break;
      case 41: pieces.bos = id(); break;
      case 42: pieces.eos = id(); break;
      case 43: pieces.padding = id(); break;
      default: break;
    }
  }
}

void read_normalizer_spec(std::string_view bytes, Pieces& pieces) {
  Message in(bytes);
  while (in.next()) {
    switch (in.field()) {
      case 2: pieces.chars_map = in.bytes(); break;
      case 3: pieces.add_space_prefix = in.number() != 0; break;
      case 4: pieces.remove_extra_whitespaces = in.number() != 0; break;
      case 5: pieces.escapes_blanks = in.number() != 0; break;
      default: break;
    }
  }
}

}  // namespace

Pieces read_pieces(std::string_view bytes) {
  Pieces pieces;
  Message in(bytes);
  while (in.next()) {
    if (in.field() == 1) {
      if (pieces.all.size() == kPiecesMax)
        throw Error(Errc::bad_file, fmt::format("tokenizer.model: more than {} pieces", kPiecesMax));
      pieces.all.push_back(read_piece(in.bytes(), pieces.all.size()));
    }
    if (in.field() == 2) read_trainer(in.bytes(), pieces);
    if (in.field() == 3) read_normalizer_spec(in.bytes(), pieces);
  }
  if (pieces.all.empty()) throw Error(Errc::bad_file, "tokenizer.model: no pieces");
  return pieces;
}

}  // namespace assay::converting
