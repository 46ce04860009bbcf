// Lines from a terminal without editing.
#include <iostream>

#include "io/line_editor.h"
#include "io/terminal.h"

namespace assay::cli {

struct LineEditor::State {};

LineEditor::LineEditor(Complete, const std::vector<std::string>&) {}
LineEditor::~LineEditor() = default;

LineEditor::End LineEditor::read(const std::string& prompt, std::string& line) {
  std::cout << prompt << std::flush;
  if (std::getline(std::cin, line)) return End::line;
  if (interrupted() == 0 || exit_code_of_signal(interrupted()) != 130 || std::cin.bad()) return End::end_of_input;
  clear_interrupt();
  std::cin.clear();
  std::cout << '\n';
  return End::dropped;
}

}  // namespace assay::cli
