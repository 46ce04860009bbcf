// The pictures of the HTML report, as inline SVG and tables.
#pragma once

#include <string>
#include <vector>

#include "assay/verify.h"

namespace assay::verify {

bool is_wrong(const OpFigures& op) noexcept;     // a value out of its bound, or none at all
double tightness(const OpFigures& op) noexcept;  // worst_ratio, infinite where there are values that are no numbers

// Error of every op in the plan's order on a log scale: local, its bound, and what has travelled.
std::string error_chart(const std::vector<OpFigures>& ops);

// The travelled error of every source, op by op.
std::string sources_chart(const std::vector<SourceFigures>& sources);

// Worst error / bound by op and layer. first: the op named in the verdict, outlined; empty: none.
std::string heat_map(const std::vector<OpFigures>& ops, const std::string& first);

// Gap between the two best tokens against the error that arrives, a dot a position.
std::string token_chart(const std::vector<TokenRisk>& tokens);

// One picture a head, brighter where more attention goes.
std::string attention_maps(const std::vector<VerifyReport::AttentionMap>& maps);

}  // namespace assay::verify
