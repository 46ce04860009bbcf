// A plan cut before its head: it ends with the rows of which embeddings are made.
#pragma once

#include "ops/plan/plan.h"

namespace assay::ops {

// whole.hidden names them, of RowDomain::outputs; else Error(unsupported).
Plan without_head(const Plan& whole);

}  // namespace assay::ops
