// See arguments.h.
#include "tools/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/ascii.h"
#include "base/utf8.h"
#include "constraint/json_parts.h"
#include "constraint/schema_keywords.h"

namespace assay::tools {

namespace json = boost::json;

namespace {

constexpr std::string_view kSpace = " \t\r\n";
constexpr size_t kNameMost = 4096;

// The inside of a JSON string. Bytes of UTF-8 pass, so that a text can be cut anywhere.
void add_escaped(std::string& out, std::string_view text) {
  constexpr std::string_view kPlain = "\"\\\b\f\n\r\t", kLetters = "\"\\bfnrt";
  for (const char c : text) {
    if (const size_t i = kPlain.find(c); i != std::string_view::npos) {
      out += '\\';
      out += kLetters[i];
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    } else {
      out += c;
    }
  }
}

std::string quoted_text(std::string_view text) {
  std::string out = "\"";
  add_escaped(out, text);
  return out + '"';
}

std::optional<json::value> parsed(std::string_view text) {
  json::error_code failure;
  json::parse_options options;
  options.max_depth = 64;
  json::value v = json::parse(json::string_view(text.data(), text.size()), failure, {}, options);
  if (failure) return std::nullopt;
  return v;
}

bool is_letter(char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); }

// A word of JSON or of Python; empty: none.
std::string_view json_word(std::string_view word) {
  if (word == "True" || word == "true") return "true";
  if (word == "False" || word == "false") return "false";
  return word == "None" || word == "null" ? std::string_view("null") : std::string_view();
}

// A word from `at` on, as JSON; false: it is none. An e belongs to a number.
bool begins_word(char c) { return is_letter(c) && c != 'e' && c != 'E'; }
bool add_word(std::string& out, std::string_view text, size_t& at) {
  size_t end = at;
  while (end < text.size() && is_letter(text[end])) ++end;
  const std::string_view word = json_word(text.substr(at, end - at));
  out += word;
  at = end;
  return !word.empty();
}

void add_code_point(std::string& out, uint32_t c) {
  std::string utf8;
  base::append_utf8(utf8, c > 0x10FFFF || (c >= 0xD800 && c < 0xE000) ? base::kReplacementChar : c);
  add_escaped(out, utf8);
}

// A text in quotes as Python's repr has it, from `at`, the quote, on; false: it has no end.
bool add_python_text(std::string& out, std::string_view text, size_t& at) {
  const char quote = text[at++];
  out += '"';
  while (at < text.size() && text[at] != quote) {
    if (text[at] != '\\' || at + 1 == text.size()) {
      add_escaped(out, text.substr(at++, 1));
      continue;
    }
    const char letter = text[at + 1];
    at += 2;
    const size_t n_digits = letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
    constexpr std::string_view kLetters = "nrt\\'\"", kStandFor = "\n\r\t\\'\"";
    if (n_digits > 0) {
      uint32_t c = 0;
      for (size_t i = 0; i < n_digits && at < text.size() && std::isxdigit(static_cast<unsigned char>(text[at])); ++i) {
        const char d = text[at++];
        c = c << 4 | static_cast<uint32_t>(d <= '9' ? d - '0' : (d | 0x20) - 'a' + 10);
      }
      add_code_point(out, c);
    } else if (const size_t i = kLetters.find(letter); i != std::string_view::npos) {
      add_escaped(out, kStandFor.substr(i, 1));
    } else {
      add_escaped(out, std::string{'\\', letter});
    }
  }
  out += '"';
  return at++ < text.size();
}

// A value as Python's repr has it, as JSON; empty: it is none.
std::string json_of_python(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '\'' || c == '"') {
      if (!add_python_text(out, text, at)) return {};
    } else if (begins_word(c)) {
      if (!add_word(out, text, at)) return {};
    } else {
      out += c;
      ++at;
    }
  }
  const auto value = parsed(out);
  return value ? constraint::json_dumps(*value) : std::string();
}

// A value whose texts stand between two marks, and whose names have none, as JSON; empty: it is none.
std::string json_of_notation(std::string_view text, std::string_view quote) {
  std::string out, open;
  bool is_name = false;
  for (size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    const char c = text[at];
    if (rest.starts_with(quote)) {
      const size_t end = text.find(quote, at + quote.size());
      if (end == std::string_view::npos) return {};
      out += quoted_text(text.substr(at + quote.size(), end - at - quote.size()));
      at = end + quote.size();
    } else if (is_name && c != '}' && c != ':') {
      const size_t end = text.find(':', at);
      if (end == std::string_view::npos) return {};
      out += quoted_text(text.substr(at, end - at));
      at = end;
    } else if (begins_word(c)) {
      if (!add_word(out, text, at)) return {};
    } else {
      if (c == '{' || c == '[') open += c;
      if ((c == '}' || c == ']') && !open.empty()) open.pop_back();
      is_name = c == '{' || (c == ',' && open.ends_with('{'));
      out += c;
      ++at;
    }
  }
  const auto value = parsed(out);
  return value ? constraint::json_dumps(*value) : std::string();
}

// A value as JSON; a text where it is nothing else.
std::string json_of(std::string_view text, std::string_view quote) {
  const std::string_view inner = base::trimmed(text, kSpace);
  std::string found;
  if (!quote.empty()) {
    found = json_of_notation(inner, quote);
  } else if (parsed(inner)) {
    return std::string(inner);
  } else if (!inner.empty()) {
    found = json_of_python(inner);
  }
  return found.empty() ? quoted_text(text) : found;
}

}  // namespace

size_t begun_at_end(std::string_view text, std::string_view mark) {
  for (size_t n = std::min(text.size(), mark.empty() ? 0 : mark.size() - 1); n > 0; --n) {
    if (text.ends_with(mark.substr(0, n))) return n;
  }
  return 0;
}

ArgumentKinds::ArgumentKinds(std::string_view parameters) {
  if (parameters.empty()) return;
  const auto document = parsed(parameters);
  if (!document) return;
  const json::value* schema = constraint::resolved(*document, &*document);
  const json::object* object = schema != nullptr ? schema->if_object() : nullptr;
  if (object == nullptr) return;
  const auto kind = [&](const json::value& v) {
    if (constraint::told_as_text(*document, v, false)) return Kind::text;
    return constraint::told_as_text(*document, v, true) ? Kind::text_or_null : Kind::value;
  };
  if (const json::value* more = object->if_contains("additionalProperties")) others_ = kind(*more);
  if (const json::value* v = object->if_contains("properties"); v != nullptr && v->is_object()) {
    for (const auto& [key, s] : v->get_object()) known_.emplace(std::string(key), kind(s));
  }
}

ArgumentKinds::Kind ArgumentKinds::of(const std::string& name) const {
  const auto it = known_.find(name);
  return it == known_.end() ? others_ : it->second;
}

ArgumentsReader::Went ArgumentsReader::take(std::string& held, std::string& out) {
  while (!done_) {
    const std::optional<bool> fits = step(held, out);
    if (!fits) return Went::on;
    if (!*fits) return Went::broken;
  }
  return Went::done;
}

std::optional<bool> ArgumentsReader::step(std::string& held, std::string& out) {
  std::optional<bool> fits;
  switch (place_) {
    case Place::begin:
      fits = take_mark(held, m_->begin);
      if (fits && *fits) {
        out += '{';
        place_ = Place::first;
      }
      return fits;
    case Place::first:
    case Place::next: return next_or_end(held, out);
    case Place::name: return take_name(held, out);
    case Place::value: return begin_value(held, out);
    case Place::text: return take_text(held, out);
    case Place::other: return take_other(held, out);
    case Place::behind:
      fits = take_mark(held, m_->behind);
      if (fits && *fits) place_ = Place::next;
      return fits;
  }
  return false;
}

std::optional<bool> ArgumentsReader::take_mark(std::string& held, std::string_view mark) {
  if (held.starts_with(mark)) {
    held.erase(0, mark.size());
    return true;
  }
  if (mark.starts_with(held)) return std::nullopt;
  return false;
}

std::optional<bool> ArgumentsReader::next_or_end(std::string& held, std::string& out) {
  if (held.starts_with(m_->end)) {
    held.erase(0, m_->end.size());
    out += '}';
    done_ = true;
    return true;
  }
  const std::string mark = (place_ == Place::first ? "" : m_->between) + m_->open;
  if (m_->end.starts_with(held)) return std::nullopt;
  const std::optional<bool> fits = take_mark(held, mark);
  if (fits && *fits) {
    if (place_ == Place::next) out += ", ";
    place_ = Place::name;
  }
  return fits;
}

std::optional<bool> ArgumentsReader::take_name(std::string& held, std::string& out) {
  size_t end = held.find(m_->middle);
  const size_t text_end = held.find(m_->text_middle);
  const bool says_text = text_end < end;
  end = std::min(end, text_end);
  if (end > kNameMost) {  // too long, by the same byte whatever the pieces
    const bool is_sure = held.size() >= kNameMost + std::max(m_->middle.size(), m_->text_middle.size());
    return is_sure ? std::optional(false) : std::nullopt;
  }
  const std::string name = held.substr(0, end);
  if (name.empty()) return false;
  held.erase(0, end + (says_text ? m_->text_middle : m_->middle).size());
  out += quoted_text(name) + ": ";
  kind_ = kinds_.of(name);
  if (m_->middle != m_->text_middle) kind_ = says_text ? ArgumentKinds::Kind::text : ArgumentKinds::Kind::value;
  place_ = Place::value;
  return true;
}

std::optional<bool> ArgumentsReader::begin_value(std::string& held, std::string& out) {
  bool is_text = kind_ == ArgumentKinds::Kind::text;
  if (!m_->quote.empty()) {
    if (!held.starts_with(m_->quote) && m_->quote.starts_with(held)) return std::nullopt;
    is_text = held.starts_with(m_->quote);
    if (is_text) held.erase(0, m_->quote.size());
  } else if (kind_ == ArgumentKinds::Kind::text_or_null) {
    for (const char* word : {"null", "None"}) {
      const std::string whole = word + m_->close;
      if (held.starts_with(whole)) {
        held.erase(0, whole.size());
        out += "null";
        place_ = Place::behind;
        return true;
      }
      if (whole.starts_with(held)) return std::nullopt;
    }
    is_text = true;
  }
  if (is_text) out += '"';
  place_ = is_text ? Place::text : Place::other;
  n_seen_ = depth_ = 0;
  in_quotes_ = 0;
  escaped_ = nested_ = closed_ = false;
  return true;
}

std::optional<bool> ArgumentsReader::take_text(std::string& held, std::string& out) {
  const std::string& close = m_->quote.empty() ? m_->close : m_->quote;
  const size_t end = held.find(close);
  const size_t n = end != std::string::npos ? end : held.size() - begun_at_end(held, close);
  add_escaped(out, std::string_view(held).substr(0, n));
  held.erase(0, end != std::string::npos ? end + close.size() : n);
  if (end == std::string::npos) return std::nullopt;
  out += '"';
  place_ = Place::behind;
  return true;
}

std::optional<bool> ArgumentsReader::take_other(std::string& held, std::string& out) {
  const auto end = end_of_other(held);
  if (!end) return std::nullopt;
  out += json_of(std::string_view(held).substr(0, *end), m_->quote);
  held.erase(0, *end + m_->close.size());
  place_ = Place::behind;
  return true;
}

// Where a value's closing mark stands, or, in a notation without one, what follows it. What looks like a mark inside of
// a list's or an object's text is none; behind a value that closed, or one that opens nothing, the first mark is it.
std::optional<size_t> ArgumentsReader::end_of_other(std::string_view held) {
  const bool by_notation = !m_->quote.empty();
  for (; n_seen_ < held.size(); ++n_seen_) {
    const std::string_view rest = held.substr(n_seen_);
    const char c = rest[0];
    if (by_notation && in_quotes_ == 0 && depth_ == 0 && (rest.starts_with(m_->between) || rest.starts_with(m_->end)))
      return n_seen_;
    if (by_notation) {
      if (in_quotes_ == 0 && depth_ == 0 && (m_->between.starts_with(rest) || m_->end.starts_with(rest)))
        return std::nullopt;
      if (rest.size() < m_->quote.size() && m_->quote.starts_with(rest)) return std::nullopt;
      if (rest.starts_with(m_->quote)) {
        in_quotes_ = in_quotes_ == 0 ? 'q' : 0;
        n_seen_ += m_->quote.size() - 1;
        continue;
      }
      if (in_quotes_ != 0) continue;
    } else if (!nested_ || closed_) {
      if (rest.starts_with(m_->close)) return n_seen_;
      if (m_->close.starts_with(rest)) return std::nullopt;
      const bool is_first = base::trimmed(held.substr(0, n_seen_), kSpace).empty();
      if (!is_first || closed_ || (c != '{' && c != '[' && c != '"')) continue;
      nested_ = true;
    }
    if (!by_notation && in_quotes_ != 0) {
      if (escaped_) {
        escaped_ = false;
      } else if (c == '\\') {
        escaped_ = true;
      } else if (c == in_quotes_) {
        in_quotes_ = 0;
        closed_ = depth_ == 0;
      }
    } else if (!by_notation && (c == '"' || c == '\'')) {
      in_quotes_ = c;
    } else if (c == '{' || c == '[') {
      ++depth_;
    } else if ((c == '}' || c == ']') && depth_ > 0) {
      closed_ = --depth_ == 0;
    }
  }
  return std::nullopt;
}

std::string write_arguments(const ArgumentMarks& marks, std::string_view arguments) {
  const auto value = parsed(arguments);
  if (!value || !value->is_object()) return std::string(arguments);
  constraint::Spelling spelling;
  if (!marks.quote.empty()) spelling = {marks.quote, true, marks.quote, ",", ":", true, true};
  std::string text = marks.begin;
  bool is_first = true;
  for (const auto& [key, v] : value->get_object()) {
    if (!is_first) text += marks.between;
    is_first = false;
    text += marks.open + std::string(key) + (v.is_string() ? marks.text_middle : marks.middle);
    text += v.is_string() && marks.quote.empty() ? std::string(v.get_string()) : constraint::spelled(v, spelling);
    text += marks.close + marks.behind;
  }
  return text + marks.end;
}

}  // namespace assay::tools
