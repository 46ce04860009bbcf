// The server's limits by name, each with its value and the flag that changes it: for /props and /openapi.json.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <string_view>
#include <vector>

#include "assay/server.h"

namespace assay::serve {

struct Limit {
  std::string_view name, flag;
  boost::json::value value;
};

// n_waiting_max, n_positions: of the scheduler, n_ctx: of a request.
std::vector<Limit> limits_of(const ServerOptions& options, int64_t n_waiting_max, int64_t n_ctx, int64_t n_positions);

boost::json::object values_of(const std::vector<Limit>& limits);
boost::json::object values_and_flags_of(const std::vector<Limit>& limits);

}  // namespace assay::serve
