// JSON Schema as a network. Every keyword is enforced exactly, or it is a problem with its JSON pointer.
#pragma once

#include <boost/json.hpp>
#include <vector>

#include "assay/constraint.h"
#include "constraint/network.h"

namespace assay::constraint {

// Adds to `problems`; the network is whole only where there are none.
Network schema_network(const boost::json::value& schema, std::vector<SchemaProblem>& problems);
Network any_object_network();

}  // namespace assay::constraint
