// What comes of a response: the items of its output as they grow, the events that tell of them, and the whole object.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "api/api.h"

namespace assay::api {

class ResponseEvents {  // does not outlive what it was made of
 public:
  ResponseEvents(const Api& api, const Asked& asked) : api_(api), asked_(asked) {}

  // Each returns the text of events: "event: ...\ndata: ...\n\n".
  std::string begin();
  std::string add(const AnswerPiece& piece, std::span<const TokenLogprobs> logprobs, std::string_view timings = {});
  std::string finish(const Choice& choice);  // an end of its own
  std::string fail(const ApiError& failure);

  std::string response() const;  // the object as it stands

 private:
  struct Item {
    AnswerPiece::Kind kind = AnswerPiece::Kind::text;  // of a call: call
    std::string id, call_id, name, text;
    std::vector<TokenLogprobs> logprobs;
    std::string status = "in_progress";
  };
  std::string event(std::string_view type, std::string_view members);
  std::string of_response(std::string_view type);
  std::string open(AnswerPiece::Kind kind, const AnswerPiece& piece);
  std::string close(std::string_view status);
  std::string place(const Item& item, bool has_part) const;
  std::string part_json(const Item& item) const;
  std::string item_json(const Item& item) const;
  std::string logprobs_json_of(std::span<const TokenLogprobs> logprobs) const;

  const Api& api_;
  const Asked& asked_;
  std::vector<Item> items_;
  bool is_open_ = false;  // the last item still grows
  std::string status_ = "in_progress", reason_, error_, usage_, timings_;
  int64_t n_events_ = 0;
};

}  // namespace assay::api
