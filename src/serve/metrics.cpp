// See metrics.h.
#include "serve/metrics.h"

#include <fmt/format.h>

#include <algorithm>

namespace assay::serve {
namespace {

std::string value(std::string_view name, std::string_view type, std::string_view help, double x) {
  return fmt::format("# HELP assay_{0} {2}\n# TYPE assay_{0} {1}\nassay_{0} {3}\n", name, type, help, x);
}

std::string by_label(std::string_view name, std::string_view label, std::string_view help,
                     const std::map<std::string, int64_t>& counts) {
  std::string text = fmt::format("# HELP assay_{0} {1}\n# TYPE assay_{0} counter\n", name, help);
  for (const auto& [key, n] : counts) text += fmt::format("assay_{}{{{}=\"{}\"}} {}\n", name, label, key, n);
  return text;
}

}  // namespace

void Histogram::add(double seconds) {
  const auto bound = std::lower_bound(kBounds.begin(), kBounds.end(), seconds);
  ++counts_[static_cast<size_t>(bound - kBounds.begin())];
  sum_ += seconds;
}

std::string Histogram::text(std::string_view name, std::string_view help) const {
  std::string text = fmt::format("# HELP assay_{0} {1}\n# TYPE assay_{0} histogram\n", name, help);
  int64_t n = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    n += counts_[i];
    text += fmt::format("assay_{}_bucket{{le=\"{}\"}} {}\n", name,
                        i < kBounds.size() ? fmt::format("{}", kBounds[i]) : "+Inf", n);
  }
  return text + fmt::format("assay_{0}_sum {1}\nassay_{0}_count {2}\n", name, sum_, n);
}

namespace {

// By the place of a guess in its run.
std::string accepted_at(const SchedulerFigures& f) {
  if (f.n_accepted_at.empty()) return {};
  const std::string name = "assay_spec_decode_num_accepted_tokens_per_pos_total";
  std::string text = fmt::format("# HELP {0} Tokens guessed ahead and right, by place\n# TYPE {0} counter\n", name);
  for (size_t i = 0; i < f.n_accepted_at.size(); ++i)
    text += fmt::format("{}{{position=\"{}\"}} {}\n", name, i, f.n_accepted_at[i]);
  return text;
}

}  // namespace

std::string Metrics::text(const SchedulerFigures& f, int64_t n_connections) const {
  const auto d = [](int64_t n) { return static_cast<double>(n); };
  return value("num_requests_running", "gauge", "Answers being computed", d(f.n_running)) +
         value("num_requests_waiting", "gauge", "Requests that wait for a place", d(f.n_waiting)) +
         value("num_requests_held", "gauge", "Answers that stand aside because their clients do not read",
               d(f.n_held)) +
         value("kv_cache_usage_perc", "gauge", "Share of the cache's positions that running requests use, 0 to 1",
               f.n_positions > 0 ? std::min(1.0, d(f.n_positions_used) / d(f.n_positions)) : 0) +
         value("kv_cache_pages", "gauge", "Pages of the cache", d(f.n_pages)) +
         value("kv_cache_pages_free", "gauge", "Pages that hold neither running requests nor what may be wanted again",
               d(f.n_pages_free)) +
         value("preemptions_total", "counter", "Times that a request lost its place in the cache for a while",
               d(f.n_preempted)) +
         value("preemptions_swapped_total", "counter", "Of these, kept in memory meanwhile", d(f.n_swapped)) +
         value("prefix_cache_disk_hits_total", "counter", "Tokens of prompts that were read from disk",
               d(f.n_prompt_tokens_read)) +
         value("spec_decode_num_draft_tokens_total", "counter", "Tokens guessed ahead", d(f.n_drafted)) +
         value("spec_decode_num_accepted_tokens_total", "counter", "Tokens guessed ahead and right", d(f.n_accepted)) +
         accepted_at(f) + value("num_connections", "gauge", "Open connections", d(n_connections)) +
         value("prefix_cache_queries_total", "counter", "Tokens of prompts", d(f.n_prompt_tokens)) +
         value("prefix_cache_hits_total", "counter", "Tokens of prompts that the cache held",
               d(f.n_prompt_tokens_cached)) +
         value("prompt_tokens_total", "counter", "Tokens of prompts", d(f.n_prompt_tokens)) +
         value("generation_tokens_total", "counter", "Tokens of answers", d(f.n_answer_tokens)) +
         by_label("request_success_total", "finished_reason", "Answers that came to an end", finished) +
         by_label("requests_rejected_total", "reason", "Requests that were not served", refused) +
         by_label("requests_cancelled_total", "phase", "Choices whose client had gone, by where they were then",
                  cancelled) +
         first_token.text("time_to_first_token_seconds", "From a request's coming to its first token") +
         between_tokens.text("inter_token_latency_seconds", "Between two tokens of an answer") +
         whole_request.text("e2e_request_latency_seconds", "From a request's coming to its answer's end") +
         in_queue.text("request_queue_time_seconds", "From a request's coming to its first step");
}

}  // namespace assay::serve
