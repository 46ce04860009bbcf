// JSON Schema as a network. Every keyword is enforced exactly, or it is a problem with its JSON pointer.
#pragma once

#include <boost/json.hpp>
#include <string>
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

// An object as some chat templates write it: begin, then for each member open NAME middle VALUE close behind, with
// `between` two of them, then end. All are bytes of the network.
struct MemberMarks {
  std::string begin, open, middle, text_middle, close, behind, between, end;
  JsonParts* texts = nullptr;  // spells the values of members that are told_as_text, and the names of others
};
// As add_schema, of a schema of objects.
RuleId add_members(NetworkBuilder& net, JsonParts& parts, const MemberMarks& marks, const boost::json::value& schema,
                   std::vector<SchemaProblem>& problems);

}  // namespace assay::constraint
