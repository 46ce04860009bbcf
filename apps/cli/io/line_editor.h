// Reads lines from a terminal, with editing, history, completion and pasted text as one line where libedit was found at
// build time (line_editor_libedit.cpp), else plainly (line_editor_plain.cpp).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "commands/completion.h"

namespace assay::cli {

class LineEditor {
 public:
  // complete: told the line up to the cursor. history: what the arrow keys bring back, oldest first.
  using Complete = std::function<Completion(std::string_view)>;
  explicit LineEditor(Complete complete = {}, const std::vector<std::string>& history = {});
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  enum class End {
    line,
    dropped,       // by Ctrl-C
    end_of_input,  // Ctrl-D, or a signal that asks to end
  };
  // One line without its end; what was pasted may have several.
  End read(const std::string& prompt, std::string& line);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace assay::cli
