// See op_filter.h. The expression comes from outside: its length, its steps and its memory are limited.
#include "trace/op_filter.h"

#include <memory>
#include <string>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include "assay/error.h"
#include "base/shown.h"
#include "ops/plan/op_values.h"

namespace assay::trace {
namespace {

constexpr size_t kExpressionBytesMax = 4096;
constexpr uint32_t kMatchSteps = 100000;
constexpr uint32_t kHeapKibibytes = 16384;

struct Free {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
};

std::string message_of(int error) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

class NameMatcher {
 public:
  explicit NameMatcher(const std::string& expression) : expression_(expression) {
    if (expression.size() > kExpressionBytesMax) {
      throw Error(Errc::bad_request, fmt::format("the expression for ops: needs at most {} bytes, found {}",
                                                 kExpressionBytesMax, expression.size()));
    }
    int error = 0;
    PCRE2_SIZE where = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(),
                              PCRE2_ANCHORED | PCRE2_ENDANCHORED, &error, &where, nullptr));
    if (!code_) {
      throw Error(Errc::bad_request, fmt::format("the expression for ops, {}: {} at byte {}", base::shown(expression),
                                                 message_of(error), where));
    }
    data_.reset(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
    context_.reset(pcre2_match_context_create(nullptr));
    if (!data_ || !context_) throw Error(Errc::out_of_memory, "no memory for the expression for ops");
    pcre2_set_match_limit(context_.get(), kMatchSteps);
    pcre2_set_depth_limit(context_.get(), kMatchSteps);
    pcre2_set_heap_limit(context_.get(), kHeapKibibytes);
  }

  bool matches(std::string_view name) const {
    const int result = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(name.data()), name.size(), 0, 0,
                                   data_.get(), context_.get());
    if (result == PCRE2_ERROR_NOMATCH) return false;
    if (result < 0) {
      throw Error(Errc::bad_request, fmt::format("the expression for ops, {}: gave up on the name {}: {}",
                                                 base::shown(expression_), name, message_of(result)));
    }
    return true;
  }

 private:
  std::string expression_;
  std::unique_ptr<pcre2_code, Free> code_;
  std::unique_ptr<pcre2_match_data, Free> data_;
  std::unique_ptr<pcre2_match_context, Free> context_;
};

}  // namespace

std::vector<bool> chosen_ops(const ops::Plan& plan, const TraceOptions& options) {
  const int32_t n_layers = ops::n_layers(plan);
  if (options.layers && (options.layers->first < 0 || options.layers->first > options.layers->second ||
                         options.layers->second >= n_layers)) {
    throw Error(Errc::bad_request, fmt::format("layers: needs a range within 0 to {}, found {} to {}", n_layers - 1,
                                               options.layers->first, options.layers->second));
  }
  std::unique_ptr<NameMatcher> matcher;
  if (!options.ops.empty()) matcher = std::make_unique<NameMatcher>(options.ops);
  std::vector<bool> chosen;
  bool any = false;
  for (const ops::Op& op : plan.ops) {
    const bool in_layers = !options.layers || (op.layer >= options.layers->first && op.layer <= options.layers->second);
    chosen.push_back(in_layers && (!matcher || matcher->matches(op.name)));
    any = any || chosen.back();
  }
  if (!any) {
    throw Error(Errc::bad_request,
                fmt::format("the expression for ops, {}, matches none of the {} names whole, {}as in {} or {}",
                            base::shown(options.ops), plan.ops.size(), options.layers ? "in these layers, " : "",
                            plan.ops[plan.ops.size() / 2].name, plan.ops.back().name));
  }
  return chosen;
}

}  // namespace assay::trace
