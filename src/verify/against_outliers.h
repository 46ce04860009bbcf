// Who is the outlier among several sources, and what is said of each.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "assay/verify.h"

namespace assay::verify {

// Marks the sources with an op out of its own bound. Where there is none, the one whose logits lie
// farthest from the float64 chain, if that is ten times beyond what its ops' bounds explain, given
// how much of their ops' error the other sources' logits show.
void mark_outliers(std::span<SourceFigures> sources);

// Lines for the report: whether its ops stay within their bounds, the first that does not, the
// causes.
std::vector<std::string> describe_source(const SourceFigures& source);

}  // namespace assay::verify
