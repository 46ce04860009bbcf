// Finds stop strings in a stream of text, however it is cut into pieces, and holds back what may
// turn out to be the beginning of one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace assay::engine {

class StopStrings {
 public:
  // Error(bad_request) for an empty string, more than 64 strings or one longer than 4096 bytes.
  explicit StopStrings(std::vector<std::string> strings);

  // Returns the text that can be shown now. The first string to be complete ends the stream; of two
  // that end together the longer one counts. What stands before it is returned, and from then on
  // matched() names it.
  std::string push(std::string_view text);
  void push(std::string_view text, std::string& shown);  // the same at the end of `shown`
  std::string finish();                                  // what is still held back
  const std::string* matched() const noexcept { return matched_; }

 private:
  std::vector<std::string> strings_;
  const std::string* matched_ = nullptr;  // into strings_
  std::string held_;
};

}  // namespace assay::engine
