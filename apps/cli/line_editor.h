// Reads lines from a terminal, with editing and history where libedit was found at build time
// (line_editor_libedit.cpp), else plainly (line_editor_plain.cpp).
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace assay::cli {

class LineEditor {
 public:
  LineEditor();
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // One line without its end; nullopt at the end of input (Ctrl-D). Ctrl-C drops the line typed so
  // far.
  std::optional<std::string> read(const std::string& prompt);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace assay::cli
