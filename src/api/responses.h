// OpenAI's responses: a conversation as items of several types. Nothing of one is stored, so a request has all of it.
#pragma once

#include <boost/json.hpp>
#include <string>
#include <vector>

#include "api/fields.h"
#include "assay/session.h"

namespace assay::api {

// instructions and input as the messages of a conversation. ApiError(400): a member that an item of its type does not
// have, one that it needs, an output without its call.
std::vector<Message> response_messages(const boost::json::object& body);

// Takes `include` into the draft.
void read_included(const boost::json::object& body, Draft& draft);

// The members of a response object that repeat what was asked, as JSON text without braces.
std::string told_of_response(const boost::json::object& body, const Draft& draft);

}  // namespace assay::api
