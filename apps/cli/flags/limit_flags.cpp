// See limit_flags.h.
#include "flags/limit_flags.h"

#include <fmt/format.h>

#include "io/terminal.h"

namespace assay::cli {

void LimitFlags::add(Flags& flags) {
  for (Count* c : counts_) flags.value(c->flag, c->n, c->unit, c->help);
  for (Amount* a : amounts_) flags.value(a->flag, a->x, a->unit, a->help);
}

void LimitFlags::set(ServerOptions& options) const {
  for (const Count* c : counts_) {
    if (c->n < 1 || c->n > c->most) throw UsageError(fmt::format("{} {}: needs 1 to {}", c->flag, c->n, c->most));
  }
  for (const Amount* a : amounts_) {
    if (!(a->x > 0 && a->x <= 1e6))
      throw UsageError(fmt::format("{} {}: needs more than 0, at most 1e6", a->flag, a->x));
  }
  if (target_.n > head_.n)
    throw UsageError(fmt::format("--max-uri {}: needs --max-header-bytes at most, {}", target_.n, head_.n));
  RequestLimits& limits = options.limits;
  limits.body_bytes = static_cast<size_t>(body_.n);
  limits.n_headers = static_cast<size_t>(headers_.n);
  limits.head_bytes = static_cast<size_t>(head_.n);
  limits.target_bytes = static_cast<size_t>(target_.n);
  limits.json_depth = depth_.n;
  limits.n = n_.n;
  limits.n_stop = stop_.n;
  limits.n_stop_bytes = stop_bytes_.n;
  limits.n_top_logprobs = logprobs_.n;
  limits.n_logit_bias = bias_.n;
  limits.n_tools = tools_.n;
  options.n_connections_max = connections_.n;
  options.unsent_bytes_max = static_cast<size_t>(unsent_.n);
  options.head_s_max = head_s_.x;
  options.body_bytes_per_s = body_rate_.x;
  options.idle_s_max = idle_s_.x;
  options.unsent_s_max = unsent_s_.x;
}

}  // namespace assay::cli
