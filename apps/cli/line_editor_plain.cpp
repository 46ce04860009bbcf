// Lines from a terminal without editing.
#include <iostream>

#include "line_editor.h"
#include "terminal.h"

namespace assay::cli {

struct LineEditor::State {};

LineEditor::LineEditor() = default;
LineEditor::~LineEditor() = default;

std::optional<std::string> LineEditor::read(const std::string& prompt) {
  while (true) {
    std::cout << prompt << std::flush;
    std::string line;
    if (std::getline(std::cin, line)) return line;
    if (interrupted() == 0 || std::cin.bad()) return std::nullopt;
    if (exit_code_of_signal(interrupted()) != 130) return std::nullopt;
    clear_interrupt();
    std::cin.clear();
    std::cout << '\n';
  }
}

}  // namespace assay::cli
