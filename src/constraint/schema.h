// JSON Schema as a network. Every keyword is enforced exactly, or it is a problem with its JSON pointer.
#pragma once

#include <boost/json.hpp>
#include <vector>

#include "assay/constraint.h"
#include "constraint/json_parts.h"
#include "constraint/network.h"

namespace assay::constraint {

// Adds to `problems`; the network is whole only where there are none.
Network schema_network(const boost::json::value& schema, std::vector<SchemaProblem>& problems);
// The same as a rule of a larger network, which is whole only where nothing was added to `problems`.
RuleId add_schema(NetworkBuilder& net, JsonParts& parts, const boost::json::value& schema,
                  std::vector<SchemaProblem>& problems);
Network any_object_network();

}  // namespace assay::constraint
