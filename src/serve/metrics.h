// What the server counts, as Prometheus reads it. Used by the thread of the sockets alone.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "assay/scheduler.h"

namespace assay::serve {

class Histogram {
 public:
  void add(double seconds);
  std::string text(std::string_view name, std::string_view help) const;

 private:
  static constexpr std::array<double, 14> kBounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                     0.25,  0.5,    1,     2.5,  10,    60,   600};
  std::array<int64_t, kBounds.size() + 1> counts_ = {};
  double sum_ = 0;
};

struct Metrics {
  Histogram first_token, between_tokens, whole_request, in_queue;
  std::map<std::string, int64_t> refused;   // by what: the status or the error's code
  std::map<std::string, int64_t> finished;  // by finish reason
  std::map<std::string, int64_t> cancelled = {
      {"queued", 0}, {"prefill", 0}, {"decode", 0}};  // whose client had gone, by phase

  std::string text(const SchedulerFigures& figures, int64_t n_connections) const;
};

}  // namespace assay::serve
