// The encoder of metadata_json.h. It walks an entry's encoding, whose extent and nesting the reader has checked.
#include "engine/metadata_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <boost/json/string.hpp>
#include <cmath>
#include <cstring>
#include <utility>

#include "assay/utf8.h"
#include "base/utf8.h"

namespace assay::engine {
namespace {

using gguf::ValueType;

class Encoder {
 public:
  Encoder(std::span<const std::byte> bytes, int64_t items_max) : bytes_(bytes), items_max_(items_max) {}

  void value(ValueType type, bool show);
  void items(ValueType type, uint64_t count, bool show);
  JsonValue result() && { return {std::move(out_), shortened_}; }

 private:
  template <class T>
  T take() {
    T number;
    std::memcpy(&number, bytes_.data(), sizeof number);
    bytes_ = bytes_.subspan(sizeof number);
    return number;
  }
  std::string_view take_text(uint64_t length) {
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()), length);
    bytes_ = bytes_.subspan(length);
    return text;
  }
  template <class T>
  void number(bool show) {
    const T taken = take<T>();
    if (show) out_ += fmt::to_string(taken);
  }
  template <class T>
  void real(bool show) {  // the shortest digits that give the same bits back
    const T taken = take<T>();
    if (show) out_ += std::isfinite(taken) ? fmt::format("{}", taken) : fmt::format("\"{}\"", taken);
  }

  std::span<const std::byte> bytes_;
  int64_t items_max_;
  std::string out_;
  bool shortened_ = false;
};

// Recurses once for each level of nesting, of which the reader allows few.
void Encoder::value(ValueType type, bool show) {
  switch (type) {
    case ValueType::u8: return number<uint8_t>(show);
    case ValueType::i8: return number<int8_t>(show);
    case ValueType::u16: return number<uint16_t>(show);
    case ValueType::i16: return number<int16_t>(show);
    case ValueType::u32: return number<uint32_t>(show);
    case ValueType::i32: return number<int32_t>(show);
    case ValueType::u64: return number<uint64_t>(show);
    case ValueType::i64: return number<int64_t>(show);
    case ValueType::f32: return real<float>(show);
    case ValueType::f64: return real<double>(show);
    case ValueType::boolean: {
      const bool taken = take<uint8_t>() != 0;
      if (show) out_ += taken ? "true" : "false";
      return;
    }
    case ValueType::string: {
      const std::string_view text = take_text(take<uint64_t>());
      if (show) out_ += json_string(text);
      return;
    }
    case ValueType::array: {
      const auto inner = static_cast<ValueType>(take<uint32_t>());
      return items(inner, take<uint64_t>(), show);
    }
  }
}

void Encoder::items(ValueType type, uint64_t count, bool show) {
  const uint64_t n_shown = items_max_ > 0 ? std::min<uint64_t>(count, static_cast<uint64_t>(items_max_)) : count;
  if (show) out_ += '[';
  for (uint64_t i = 0; i < count; ++i) {
    const bool show_item = show && i < n_shown;
    if (show_item && i > 0) out_ += ", ";
    value(type, show_item);
  }
  if (show && n_shown < count) shortened_ = true;
  if (show) out_ += ']';
}

}  // namespace

JsonValue metadata_json(const gguf::Entry& entry, int64_t items_max) {
  if (entry.type == ValueType::string) {
    return {json_string({reinterpret_cast<const char*>(entry.bytes.data()), entry.bytes.size()}), false};
  }
  Encoder encoder(entry.bytes, items_max);
  if (entry.type == ValueType::array) {
    encoder.items(entry.element_type, entry.count, true);
  } else {
    encoder.value(entry.type, true);
  }
  return std::move(encoder).result();
}

std::string json_string(std::string_view text) {
  const std::string repaired = base::repaired_utf8(text);
  return json_without_controls(boost::json::serialize(boost::json::string(repaired)));
}

}  // namespace assay::engine
