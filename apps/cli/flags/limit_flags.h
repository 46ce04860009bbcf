// The flags of assay serve for what clients may ask for, and take their time with.
#pragma once

#include <cstdint>

#include "assay/server.h"
#include "flags/flags.h"

namespace assay::cli {

class LimitFlags {
 public:
  void add(Flags& flags);
  void set(ServerOptions& options) const;  // UsageError where one is out of range

 private:
  struct Count {
    const char* flag;
    const char* unit;
    const char* help;
    int64_t n, most;
  };
  struct Amount {
    const char* flag;
    const char* unit;
    const char* help;
    double x;
  };
  static constexpr int64_t kBytesMost = int64_t{1} << 30;
  const ServerOptions usual_ = {};

  Count body_{"--max-body", "BYTES", "Of a request", static_cast<int64_t>(usual_.limits.body_bytes), kBytesMost};
  Count connections_{"--max-connections", "N", "Open at a time", usual_.n_connections_max, 1 << 20};
  Count headers_{"--max-headers", "N", "Of a request", static_cast<int64_t>(usual_.limits.n_headers), 1 << 16};
  Count head_{"--max-header-bytes", "BYTES", "Of all headers of a request, with its first line",
              static_cast<int64_t>(usual_.limits.head_bytes), 1 << 24};
  Count target_{"--max-uri", "BYTES", "Of a request's path and query; --max-header-bytes at most",
                static_cast<int64_t>(usual_.limits.target_bytes), 1 << 24};
  Count depth_{"--max-json-depth", "N", "Levels of a body's JSON", usual_.limits.json_depth, 256};
  Count n_{"--max-n", "N", "Answers to a prompt that a request may ask for", usual_.limits.n, 128};
  Count stop_{"--max-stop", "N", "Stop strings of a request", usual_.limits.n_stop, 1024};
  Count stop_bytes_{"--max-stop-bytes", "BYTES", "Of a stop string", usual_.limits.n_stop_bytes, 1 << 16};
  Count logprobs_{"--max-top-logprobs", "N", "Likeliest tokens of each place that a request may ask for",
                  usual_.limits.n_top_logprobs, 1024};
  Count bias_{"--max-logit-bias", "N", "Tokens in a request's logit_bias", usual_.limits.n_logit_bias, 1 << 20};
  Count tools_{"--max-tools", "N", "Functions of a request", usual_.limits.n_tools, 1 << 12};
  Count unsent_{"--max-unsent", "BYTES",
                "Of a stream that its client has not taken; then the request stands aside until half of it is",
                static_cast<int64_t>(usual_.unsent_bytes_max), kBytesMost};
  Amount head_s_{"--header-timeout", "S", "For a request's headers", usual_.head_s_max};
  Amount body_rate_{"--body-rate", "BYTES", "That a body has to come with in a second, after the headers' time",
                    usual_.body_bytes_per_s};
  Amount idle_s_{"--idle-timeout", "S", "For a connection without a request", usual_.idle_s_max};
  Amount unsent_s_{"--unsent-timeout", "S", "For a client that takes nothing of its answer", usual_.unsent_s_max};
  Count* counts_[13] = {&body_, &connections_, &headers_,  &head_, &target_, &depth_, &n_,
                        &stop_, &stop_bytes_,  &logprobs_, &bias_, &tools_,  &unsent_};
  Amount* amounts_[4] = {&head_s_, &body_rate_, &idle_s_, &unsent_s_};
};

}  // namespace assay::cli
