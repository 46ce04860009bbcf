// verify and perplexity of the C interface.
#include "assay/perplexity.h"
#include "handles.h"

using assay::c::array;
using assay::c::guarded;
using assay::c::required;

namespace assay::c {
namespace {

constexpr assay_verify_options kVerifyDefaults = {
    sizeof(assay_verify_options), nullptr, nullptr, nullptr, 0, 0, 0, nullptr, nullptr};
constexpr assay_perplexity_options kPerplexityDefaults = {sizeof(assay_perplexity_options), 512, 0, nullptr, nullptr};

std::function<bool()> hook(assay_cancel_callback call, void* user) {
  if (call == nullptr) return {};
  return [call, user] { return call(user) != 0; };
}

std::string written(const VerifyReport& report, assay_format format) {
  switch (format) {
    case ASSAY_TEXT: return report.to_text();
    case ASSAY_JSON: return report.to_json();
    case ASSAY_HTML: return report.to_html();
  }
  refuse("format " + std::to_string(static_cast<int>(format)) + ": needs ASSAY_TEXT, ASSAY_JSON or ASSAY_HTML");
}

}  // namespace
}  // namespace assay::c

void assay_verify_options_init(assay_verify_options* options, size_t size) {
  assay::c::write_sized(options, size, assay::c::kVerifyDefaults);
}

assay_status assay_verify(const char* path, const assay_verify_options* options, assay_report** report,
                          assay_error** error) {
  return guarded(error, [&] {
    const assay_verify_options o = assay::c::read_sized(options, assay::c::kVerifyDefaults, "assay_verify_options");
    auto& to = required(report, "report");
    assay::VerifyOptions v;
    v.context = assay::c::context_options(o.context);
    v.quick = o.quick != 0;
    v.prompt = assay::c::text_or_empty(o.prompt);
    for (const char* text : array(o.against, o.n_against, "against"))
      v.against.emplace_back(&required(text, "an item of against"));
    v.cancelled = assay::c::hook(o.cancelled, o.user);
    to = new assay_report{assay::verify_model(&required(path, "path"), v)};
  });
}

int assay_report_passed(const assay_report* report) { return report->report.passed() ? 1 : 0; }
int assay_report_cancelled(const assay_report* report) { return report->report.cancelled ? 1 : 0; }

assay_status assay_report_write(const assay_report* report, assay_format format, char** text, size_t* n_bytes,
                                assay_error** error) {
  return guarded(error, [&] {
    auto& to = required(text, "text");
    const std::string found = assay::c::written(required(report, "report").report, format);
    to = assay::c::copied(found);
    if (n_bytes != nullptr) *n_bytes = found.size();
  });
}

void assay_report_free(assay_report* report) { delete report; }

void assay_perplexity_options_init(assay_perplexity_options* options, size_t size) {
  assay::c::write_sized(options, size, assay::c::kPerplexityDefaults);
}

assay_status assay_perplexity(assay_context* context, assay_context* base, const int32_t* ids, size_t n_ids,
                              const assay_perplexity_options* options, assay_perplexity_result* result,
                              assay_error** error) {
  return guarded(error, [&] {
    const assay_perplexity_options o =
        assay::c::read_sized(options, assay::c::kPerplexityDefaults, "assay_perplexity_options");
    const size_t size = required(result, "result").size;
    if (size <= sizeof size) assay::c::refuse("assay_perplexity_result: its size is not set");
    required(context, "context").generators.clear();
    if (base != nullptr) base->generators.clear();
    assay::PerplexityOptions p;
    p.n_chunk = o.n_chunk;
    p.n_chunks_max = o.n_chunks_max;
    p.cancelled = assay::c::hook(o.cancelled, o.user);
    const assay::PerplexityResult r =
        assay::perplexity(context->context, base == nullptr ? nullptr : &base->context, array(ids, n_ids, "ids"), p);
    const assay_perplexity_result found = {sizeof(assay_perplexity_result),
                                           r.n_tokens,
                                           r.n_scored,
                                           r.n_chunks,
                                           r.n_chunks_asked,
                                           r.perplexity,
                                           r.perplexity_error,
                                           r.mean_nll,
                                           r.mean_nll_error,
                                           r.base_perplexity,
                                           r.kl_divergence.mean,
                                           r.kl_divergence.standard_error,
                                           r.same_top};
    assay::c::write_sized(result, size, found);
  });
}
