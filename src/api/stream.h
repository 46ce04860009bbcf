// An answer as server-sent events, as it comes: in the shapes of chat completions and completions, or of responses.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "api/api.h"

namespace assay::api {

// Each function returns the text of the events that are to be sent now; it may be empty.
class StreamWriter {  // one thread at a time; does not outlive what it was made of
 public:
  using Time = std::chrono::steady_clock::time_point;
  virtual ~StreamWriter() = default;
  virtual std::string begin() = 0;
  virtual void started(size_t, const RequestStarted&, Time) {}  // at: when it happened
  virtual std::string token(size_t i_choice, const RequestToken& token, Time at) = 0;
  // Of a choice that came to its own end, or was cut short: then end() is told why.
  virtual std::string finish(size_t i_choice, const RequestFinished& finished) = 0;
  virtual std::string end(const std::optional<ApiError>& failure) = 0;
};

std::unique_ptr<StreamWriter> stream_writer(const Api& api, const Asked& asked);

// Whether an answer came to an end that is its own: not cancelled, not late.
bool is_whole(const RequestFinished& finished) noexcept;

}  // namespace assay::api
