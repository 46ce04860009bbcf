// The program `assay`: finds the command, runs it, and turns what is thrown into one line and an
// exit code.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <new>
#include <string>
#include <vector>

#include "assay/error.h"
#include "commands.h"
#include "flags.h"
#include "terminal.h"

namespace assay::cli {
namespace {

struct Command {
  const char* name;
  int (*run)(const Arguments&);
  const char* summary;
};

constexpr Command kCommands[] = {
    {"run", run_command, "One answer to one prompt, on standard output"},
    {"chat", chat_command, "A conversation in the terminal"},
    {"serve", serve_command, "The model over HTTP, in the shapes of OpenAI's API"},
    {"tokenize", tokenize_command, "Text to token ids"},
    {"detokenize", detokenize_command, "Token ids to text"},
    {"template", template_command, "Messages to the prompt that a chat template makes of them"},
    {"logits", logits_command, "What the model says about a text: top logits, likelihood, digests"},
    {"trace", trace_command, "What every operation of a run computed: statistics, or all values"},
    {"inspect", inspect_command, "What a file holds, and the memory it needs"},
    {"verify", verify_command, "Every part of the chain checked, the first wrong operation named"},
    {"bench", bench_command, "Tokens per second, share of bandwidth, memory"},
    {"perplexity", perplexity_command,
     "How well a model predicts a text, and how far from another file or mode"},
    {"imatrix", imatrix_command, "What each weight is multiplied with: importance matrices for quantize"},
    {"diff", diff_command, "What differs between two model files, tensor by tensor"},
    {"edit", edit_command, "Metadata and tensors' names of a model file"},
    {"split", split_command, "A model file cut into several"},
    {"merge", merge_command, "The files of a split model as one"},
    {"devices", devices_command, "What a model can run on here"},
};

std::string overview() {
  std::string text =
      "assay runs GGUF language models and lets you check every number.\n\nUsage: assay COMMAND "
      "[flags]\n\nCommands:\n";
  for (const Command& c : kCommands) text += fmt::format("  {:<12}{}\n", c.name, c.summary);
  text +=
      "\nFirst steps:\n"
      "  assay run model.gguf -p \"Why is the sky blue?\"     one answer, then the program ends\n"
      "  cat letter.txt | assay run model.gguf -sys \"Shorten the text.\"\n"
      "  assay chat model.gguf                              talk; Ctrl-C ends an answer, Ctrl-D "
      "leaves\n"
      "  assay inspect model.gguf                           does it fit into memory?\n"
      "  assay bench model.gguf                             how fast is it here?\n"
      "\n`assay COMMAND --help` lists a command's flags. Each flag has a variable: --top-k 20 is "
      "ASSAY_TOP_K=20.\n"
      "The result never depends on threads, batch sizes or the processor: the same file, prompt "
      "and seed give the same text.\n"
      "Exit codes: 0 done, 1 another failure, 2 a wrong call, 3 a bad or unsupported model, 4 out "
      "of memory, 5 verify\n"
      "found something wrong, 130 and 143 interrupted.\n";
  return text;
}

int dispatch(Arguments arguments) {
  if (arguments.empty()) {
    fmt::print(stderr, "{}", overview());
    return 2;
  }
  std::string name = arguments.front();
  if (name == "help" || name == "--help" || name == "-h") {
    if (name == "help" && arguments.size() > 1) {
      arguments = {arguments[1], "--help"};
      name = arguments.front();
    } else {
      Output().write(overview());
      return 0;
    }
  }
  if (name == "--version" || name == "version") {
    Output().write(fmt::format("assay {}\nnumerics 1\n", ASSAY_VERSION));
    return 0;
  }
  const auto* command = std::find_if(std::begin(kCommands), std::end(kCommands),
                                     [&](const Command& c) { return name == c.name; });
  if (command == std::end(kCommands)) {
    std::string names;
    for (const Command& c : kCommands)
      names += fmt::format("{}{}", names.empty() ? "" : ", ", c.name);
    throw UsageError(fmt::format("there is no command '{}': needs one of {}", name, names));
  }
  arguments.erase(arguments.begin());
  try {
    return command->run(arguments);
  } catch (const UsageError& e) {
    throw UsageError(fmt::format("{} (assay {} --help lists the flags)", e.what(), name));
  }
}

int guarded(const Arguments& arguments) {
  try {
    return dispatch(arguments);
  } catch (const UsageError& e) {
    notice(e.what());
    return 2;
  } catch (const Error& e) {
    notice(e.what());
    return exit_code_of(e.code);
  } catch (const std::bad_alloc&) {
    notice("out of memory: try a smaller context (-c) or a smaller model");
    return 4;
  } catch (const std::exception& e) {
    notice(e.what());
    return 1;
  }
}

}  // namespace
}  // namespace assay::cli

int main(int argc, char** argv) {
  assay::cli::set_up_signals();
  return assay::cli::guarded(assay::cli::Arguments(argv + 1, argv + argc));
}
