// See name_rules.h.
#include "quantize/name_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "assay/error.h"
#include "base/shown.h"
#include "quantize/mixes.h"

#ifndef PCRE2_CODE_UNIT_WIDTH
#define PCRE2_CODE_UNIT_WIDTH 8  // pcre2.h wants to be told
#endif
#include <pcre2.h>

namespace assay::quantizing {
namespace {

constexpr uint32_t kStepsMax = 100'000;  // of one match; names have at most 63 bytes

struct FreeCode {
  void operator()(pcre2_code* code) const noexcept { pcre2_code_free(code); }
};
struct FreeContext {
  void operator()(pcre2_match_context* context) const noexcept { pcre2_match_context_free(context); }
};
struct FreeMatch {
  void operator()(pcre2_match_data* match) const noexcept { pcre2_match_data_free(match); }
};

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 200> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

struct NameRules::Rule {
  std::string expression;
  std::unique_ptr<pcre2_code, FreeCode> code;
  tensor::DType dtype;
};

NameRules::NameRules(const std::vector<std::pair<std::string, std::string>>& rules) {
  for (const auto& [given, type] : rules) {
    std::string expression = given;
    std::transform(expression.begin(), expression.end(), expression.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    int error = 0;
    PCRE2_SIZE at = 0;
    std::unique_ptr<pcre2_code, FreeCode> code(
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(), 0, &error, &at, nullptr));
    if (code == nullptr) {
      throw Error(Errc::bad_request, fmt::format("{} is no regular expression: {} at character {}", base::shown(given),
                                                 message_of(error), at));
    }
    rules_.push_back({given, std::move(code), require_writable_type(type)});
  }
}

NameRules::~NameRules() = default;

bool NameRules::empty() const noexcept { return rules_.empty(); }

std::optional<tensor::DType> NameRules::type_of(std::string_view name) const {
  const std::unique_ptr<pcre2_match_context, FreeContext> context(pcre2_match_context_create(nullptr));
  const std::unique_ptr<pcre2_match_data, FreeMatch> match(pcre2_match_data_create(1, nullptr));
  if (context == nullptr || match == nullptr) throw std::bad_alloc();
  pcre2_set_match_limit(context.get(), kStepsMax);
  for (const Rule& rule : rules_) {
    const int found = pcre2_match(rule.code.get(), reinterpret_cast<PCRE2_SPTR>(name.data()), name.size(), 0, 0,
                                  match.get(), context.get());
    if (found >= 0) return rule.dtype;
    if (found != PCRE2_ERROR_NOMATCH) {
      throw Error(Errc::bad_request, fmt::format("the expression {} cannot be held against {}: {}",
                                                 base::shown(rule.expression), base::shown(name), message_of(found)));
    }
  }
  return std::nullopt;
}

}  // namespace assay::quantizing
