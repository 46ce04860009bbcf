// How far work on files has come, on standard error, and its end by a signal.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "assay/edit.h"
#include "io/terminal.h"

namespace assay::cli {

// On a terminal a line that is rewritten; elsewhere a plain line every ten seconds.
class FileWatch {
 public:
  // unit, unit_size: what `done` and `total` are shown in.
  explicit FileWatch(std::string what, std::string unit = "MiB", int64_t unit_size = 1 << 20);
  FileProgress hooks();  // must not outlive this
  // The same for work told by tensors: "NAME (3 of 272)" behind the bytes.
  std::function<void(const std::string& tensor, int64_t i, int64_t n, uint64_t done, uint64_t total)> tensor_hook();

 private:
  void update(int64_t done, int64_t total, std::string_view thing);

  std::string what_, unit_;
  int64_t unit_size_;
  Progress line_;
  std::chrono::steady_clock::time_point start_, told_;
};

// Says that an interruption left nothing behind; the exit code of its signal.
int end_of_interrupted();

}  // namespace assay::cli
