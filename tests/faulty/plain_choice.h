// The faulty engine's choice of keys and attention over it: each op's formula in float64, over keys as the plain cache
// gives them back.
#pragma once

#include "faulty/fault.h"
#include "faulty/plain_cache.h"
#include "ops/plan/host_rows.h"
#include "ops/plan/plan.h"

namespace assay::faults {

// One token of an op of Role::cached.
void run_cached_plain(const ops::Op& op, const ops::HostRows<double>& rows, const PlainCache& cache, int sequence,
                      int64_t token, Fault fault);

}  // namespace assay::faults
