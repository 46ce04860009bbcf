// See limits.h.
#include "serve/limits.h"

namespace assay::serve {
namespace {

namespace json = boost::json;

json::string_view text(std::string_view s) { return {s.data(), s.size()}; }

// Whole numbers as such.
json::value number(double x) {
  const auto whole = static_cast<int64_t>(x);
  return static_cast<double>(whole) == x ? json::value(whole) : json::value(x);
}

}  // namespace

std::vector<Limit> limits_of(const ServerOptions& o, int64_t n_waiting_max, int64_t n_ctx, int64_t n_positions) {
  const RequestLimits& r = o.limits;
  return {
      {"positions", "-c", n_ctx},
      {"parallel", "-np", o.scheduler.context.n_sequences},
      {"total_tokens", "--max-total-tokens", n_positions},
      {"queue", "--max-queue", n_waiting_max},
      {"gap_ms", "--max-gap-ms", number(o.scheduler.gap_ms_max)},
      {"body_bytes", "--max-body", r.body_bytes},
      {"headers", "--max-headers", r.n_headers},
      {"header_bytes", "--max-header-bytes", r.head_bytes},
      {"target_bytes", "--max-uri", r.target_bytes},
      {"json_depth", "--max-json-depth", r.json_depth},
      {"connections", "--max-connections", o.n_connections_max},
      {"header_seconds", "--header-timeout", number(o.head_s_max)},
      {"body_bytes_per_second", "--body-rate", number(o.body_bytes_per_s)},
      {"idle_seconds", "--idle-timeout", number(o.idle_s_max)},
      {"unsent_seconds", "--unsent-timeout", number(o.unsent_s_max)},
      {"unsent_bytes", "--max-unsent", o.unsent_bytes_max},
      {"request_seconds", "--request-timeout", number(o.request_s_max)},
      {"drain_seconds", "--drain-timeout", number(o.drain_s_max)},
      {"n", "--max-n", r.n},
      {"stop", "--max-stop", r.n_stop},
      {"stop_bytes", "--max-stop-bytes", r.n_stop_bytes},
      {"top_logprobs", "--max-top-logprobs", r.n_top_logprobs},
      {"logit_bias", "--max-logit-bias", r.n_logit_bias},
      {"tools", "--max-tools", r.n_tools},
  };
}

json::object values_of(const std::vector<Limit>& limits) {
  json::object object;
  for (const Limit& limit : limits) object[text(limit.name)] = limit.value;
  return object;
}

json::object values_and_flags_of(const std::vector<Limit>& limits) {
  json::object object;
  for (const Limit& limit : limits)
    object[text(limit.name)] = json::object{{"value", limit.value}, {"flag", text(limit.flag)}};
  return object;
}

}  // namespace assay::serve
