// Values that hold no schemas, as parts of a network: numbers, strings, and those that a schema lists.
#pragma once

#include <boost/json.hpp>
#include <string>

#include "constraint/json_parts.h"
#include "constraint/network.h"
#include "constraint/schema_reader.h"

namespace assay::constraint {

// One schema, where it stands, and what its values become.
struct ValueSchema {
  NetworkBuilder& net;
  JsonParts& parts;
  const SchemaReader& reader;
  const boost::json::object& object;
  const std::string& pointer;
};

// Each from a state to the one that is returned; where the schema is wrong, that is said and nothing is built.
StateId number_value(const ValueSchema& schema, bool integer, StateId from);
StateId string_value(const ValueSchema& schema, StateId from);
StateId listed_value(const ValueSchema& schema, StateId from);  // const, enum

}  // namespace assay::constraint
