// Values that this library built as Boost's, as a template takes them.
#pragma once

#include <boost/json.hpp>

#include "assay/chat.h"

namespace assay::chat {

TemplateValue value_of(const boost::json::value& from);  // recurses: not for values that are deep as an input likes
TemplateValue::List list_of(const boost::json::array& from);
TemplateValue::Dict dict_of(const boost::json::object& from);

}  // namespace assay::chat
