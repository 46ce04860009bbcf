// PCRE2 with just-in-time compilation where the system allows it; without, the same matches,
// slower.
#include "text/splitter.h"

#include <string>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include "assay/error.h"

namespace assay::text {
namespace {

struct Free {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
  void operator()(pcre2_jit_stack* p) const { pcre2_jit_stack_free(p); }
};
template <class T>
using Owned = std::unique_ptr<T, Free>;

constexpr size_t kJitStackStart = size_t{32} << 10;
constexpr size_t kJitStackMax = size_t{8} << 20;

// \s of PCRE2 also has U+180E, which Unicode and the tokenizers' own engines have not.
std::string with_unicode_blanks(std::string_view expression) {
  std::string out;
  for (size_t i = 0; i < expression.size(); ++i) {
    if (expression[i] != '\\' || i + 1 == expression.size()) {
      out += expression[i];
      continue;
    }
    const char next = expression[++i];
    if (next == 's') {
      out += R"(\p{WSpace})";
    } else if (next == 'S') {
      out += R"(\P{WSpace})";
    } else {
      out += '\\';
      out += next;
    }
  }
  return out;
}

template <class T>
T* checked(T* made) {
  if (made == nullptr) throw Error(Errc::out_of_memory, "no memory for a pre-tokenizer");
  return made;
}

Owned<pcre2_code> compiled(std::string_view expression) {
  const std::string source = with_unicode_blanks(expression);
  int error = 0;
  PCRE2_SIZE where = 0;
  Owned<pcre2_code> code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(source.data()), source.size(),
                                       PCRE2_UTF | PCRE2_UCP, &error, &where, nullptr));
  if (code == nullptr) {
    throw Error(Errc::unsupported,
                fmt::format("this PCRE2 cannot compile the pre-tokenizer expression {} (error {} at {})", source, error,
                            where));
  }
  pcre2_jit_compile(code.get(),
                    PCRE2_JIT_COMPLETE);  // a refusal leaves the interpreter, which gives the same matches
  return code;
}

// What a match needs beside the expression: not to be shared between threads.
class Matcher {
 public:
  Matcher()
      : data_(checked(pcre2_match_data_create(1, nullptr))), context_(checked(pcre2_match_context_create(nullptr))),
        stack_(pcre2_jit_stack_create(kJitStackStart, kJitStackMax, nullptr)) {
    if (stack_) pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
    pcre2_set_match_limit(context_.get(), UINT32_MAX);
  }

  // The next match in piece at or after from. False: none.
  bool find(const pcre2_code* code, std::string_view piece, size_t from) {
    const int result = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(piece.data()), piece.size(), from,
                                   PCRE2_NO_UTF_CHECK, data_.get(), context_.get());
    if (result == PCRE2_ERROR_NOMATCH) return false;
    if (result < 0) {
      throw Error(Errc::bad_request,
                  fmt::format("the pre-tokenizer gave up on {} bytes of text (PCRE2 error {})", piece.size(), result));
    }
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data_.get());
    begin = ends[0];
    end = ends[1];
    return true;
  }

  size_t begin = 0;
  size_t end = 0;

 private:
  Owned<pcre2_match_data> data_;
  Owned<pcre2_match_context> context_;
  Owned<pcre2_jit_stack> stack_;
};

bool begins_character(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) != 0x80; }

void add_end(std::vector<uint32_t>& ends, uint32_t piece_begin, size_t end) {
  if (end > piece_begin && (ends.empty() || ends.back() < end)) ends.push_back(static_cast<uint32_t>(end));
}

// Cuts before every place in [begin, end) from which a multiple of three characters is left.
void cut_threes(std::string_view text, uint32_t piece_begin, size_t begin, size_t end, std::vector<uint32_t>& ends) {
  size_t n_characters = 0;
  for (size_t i = begin; i < end; ++i) n_characters += begins_character(text[i]);
  for (size_t i = begin; i < end; ++i) {
    if (!begins_character(text[i])) continue;
    if (n_characters % 3 == 0) add_end(ends, piece_begin, i);
    --n_characters;
  }
}

}  // namespace

struct Splitter::Expression {
  Owned<pcre2_code> code;
  Cut cut = Cut::isolate;
};

Splitter::Splitter(const PreTokenizerRules& rules) {
  for (const Step& step : rules.steps) expressions_.push_back({compiled(step.expression), step.cut});
}
Splitter::Splitter(Splitter&&) noexcept = default;
Splitter::~Splitter() = default;

std::vector<uint32_t> Splitter::split(std::string_view text) const {
  std::vector<uint32_t> ends;
  if (text.empty()) return ends;
  ends.push_back(static_cast<uint32_t>(text.size()));
  Matcher matcher;
  std::vector<uint32_t> next;
  for (const Expression& expression : expressions_) {
    next.clear();
    uint32_t piece_begin = 0;
    for (const uint32_t piece_end : ends) {
      const std::string_view piece = text.substr(piece_begin, piece_end - piece_begin);
      size_t from = 0;
      while (from < piece.size() && matcher.find(expression.code.get(), piece, from)) {
        const size_t begin = piece_begin + matcher.begin;
        const size_t end = piece_begin + matcher.end;
        if (expression.cut == Cut::isolate) {
          add_end(next, piece_begin, begin);
          add_end(next, piece_begin, end);
        } else {
          cut_threes(text, piece_begin, begin, end, next);
        }
        from = matcher.end;
        if (matcher.begin == matcher.end) {  // nothing found between two characters: on to the next
          do ++from;
          while (from < piece.size() && !begins_character(piece[from]));
        }
      }
      add_end(next, piece_begin, piece_end);
      piece_begin = piece_end;
    }
    ends.swap(next);
  }
  return ends;
}

}  // namespace assay::text
