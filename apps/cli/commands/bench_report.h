// What assay bench prints: tables in Markdown, and JSON, CSV and SQL with llama-bench's keys.
#pragma once

#include <boost/json.hpp>
#include <string>
#include <vector>

#include "assay/bench.h"

namespace assay::cli {

struct BenchReport {
  const Context& context;
  int64_t n_batch = 0;
  MachineLimits limits;
  int64_t peak_memory = 0;
};

std::string test_name(const BenchTest& test);  // "pp512 @ d4096 x 8"

// The results of several ways of running, in one of -o's formats. A context must live until add() has returned.
class BenchWriter {
 public:
  explicit BenchWriter(std::string format) : format_(std::move(format)) {}
  void add(const BenchReport& report, const std::vector<BenchResult>& results);
  std::string text() const;  // of what was added; ends with a newline

 private:
  std::string format_, rows_, feet_, last_foot_;
  boost::json::array all_;
};

std::string profile_text(const Profile& profile, const MachineLimits& limits);
boost::json::object profile_json(const Profile& profile, const MachineLimits& limits);

// start: at least one.
std::string start_text(const std::vector<StartTiming>& start);
boost::json::object start_json(const std::vector<StartTiming>& start);

}  // namespace assay::cli
