// Lines that were typed, kept from one conversation to the next in a file that only its owner can read.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace assay::cli {

// ${XDG_STATE_HOME:-~/.local/state}/assay/history; empty where neither variable says where that is.
std::string default_history_path();

class HistoryFile {
 public:
  static constexpr size_t kLinesMax = 1000;  // the oldest leave the file first

  // Makes the file and its folders where they are missing, and takes rights from others where they have any. Error(io)
  // that names it.
  explicit HistoryFile(std::string path);

  std::vector<std::string> lines() const;  // oldest first; of several lines where an entry has some
  void add(std::string_view line);         // at the end, also where another conversation writes into it

 private:
  std::string path_;
};

}  // namespace assay::cli
