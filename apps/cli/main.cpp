// The program `assay`: finds the command, runs it, and turns what is thrown into one line and an
// exit code.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "assay/devices.h"
#include "assay/error.h"
#include "assay/pull.h"
#include "commands.h"
#include "commands/stores.h"
#include "flags/flags.h"
#include "flags/manual.h"
#include "flags/other_programs.h"
#include "io/terminal.h"
#include "io/version.h"

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
    {"batch", batch_command, "Many prompts together, lines of JSON in and out"},
    {"serve", serve_command, "The model over HTTP, in the shapes of OpenAI's API"},
    {"check-schema", check_schema_command, "What of a JSON Schema would be refused"},
    {"tokenize", tokenize_command, "Text to token ids"},
    {"detokenize", detokenize_command, "Token ids to text"},
    {"template", template_command, "Messages to the prompt that a chat template makes of them"},
    {"logits", logits_command, "What the model says about a text: top logits, likelihood, digests"},
    {"embed", embed_command, "Texts to vectors: pooled embeddings"},
    {"trace", trace_command, "What every operation of a run computed: statistics, or all values"},
    {"inspect", inspect_command, "What a file holds, and the memory it needs"},
    {"plan", plan_command, "The operations of a model, and the kernels that run them here"},
    {"verify", verify_command, "Every part of the chain checked, the first wrong operation named"},
    {"bench", bench_command, "Tokens per second, share of bandwidth, memory"},
    {"perplexity", perplexity_command, "How well a model predicts a text, and how far from another file or mode"},
    {"imatrix", imatrix_command, "What each weight is multiplied with: importance matrices for quantize"},
    {"diff", diff_command, "What differs between two model files, tensor by tensor"},
    {"edit", edit_command, "Metadata and tensors' names of a model file"},
    {"split", split_command, "A model file cut into several"},
    {"merge", merge_command, "The files of a split model as one"},
    {"convert", convert_command, "A folder of Hugging Face to a GGUF file"},
    {"quantize", quantize_command, "A file of float weights to one of quantised weights"},
    {"pull", pull_command, "Fetches a model by name or address"},
    {"list", list_command, "The models that can be named in place of a path"},
    {"show", show_command, "One of them: digest, origin, what it needs"},
    {"rm", rm_command, "Removes models from our own store"},
    {"doctor", doctor_command, "What this machine can run, and common mistakes"},
    {"devices", devices_command, "What a model can run on here"},
};

// Variables that the program reads and that no flag has.
bool is_variable_of_program(std::string_view name) { return name == "ASSAY_MODELS"; }

std::string overview() {
  std::string text =
      "assay runs GGUF language models and lets you check every number.\n\nUsage: assay COMMAND "
      "[flags]\n\nCommands:\n";
  for (const Command& c : kCommands) text += fmt::format("  {:<14}{}\n", c.name, c.summary);
  text +=
      "\nFirst steps:\n"
      "  assay run model.gguf -p \"Why is the sky blue?\"     one answer, then the program ends\n"
      "  cat letter.txt | assay run model.gguf -sys \"Shorten the text.\"\n"
      "  assay chat model.gguf                              talk; Ctrl-C ends an answer, Ctrl-D "
      "leaves\n"
      "  assay pull smollm2                                 fetches a small model; then: assay run smollm2 -p Hi\n"
      "  assay inspect model.gguf                           does it fit into memory?\n"
      "  assay bench model.gguf                             how fast is it here?\n"
      "\n`assay COMMAND --help` lists a command's flags. Each long flag has a variable: --top-k 20 is "
      "ASSAY_TOP_K=20.\n"
      "The result never depends on threads, batch sizes or the processor: the same file, prompt "
      "and seed give the same text.\n"
      "Exit codes: 0 done, 1 another failure, 2 a wrong call, 3 a bad or unsupported model, 4 out "
      "of memory, 5 verify\n"
      "found something wrong, 6 network, 130 and 143 interrupted.\n";
  return text;
}

bool is_model(const std::string& name) {
  try {
    return !stores_here().resolve(name).empty();
  } catch (const Error&) {
    return false;
  }
}

const Command& find_command(const std::string& name) {
  const auto* command =
      std::find_if(std::begin(kCommands), std::end(kCommands), [&](const Command& c) { return name == c.name; });
  if (command != std::end(kCommands)) return *command;
  if (const char* advice = advice_for_verb(name))
    throw UsageError(fmt::format("there is no command '{}': {}", name, advice));
  if (name.starts_with('-'))
    throw UsageError(fmt::format("{} stands before a command, which comes first: assay run {} ...", name, name));
  if (name.ends_with(".gguf"))
    throw UsageError(fmt::format("there is no command '{}': assay run {} -p TEXT asks it, assay chat {} talks with it",
                                 name, name, name));
  const auto* nearest = std::min_element(
      std::begin(kCommands), std::end(kCommands),
      [&](const Command& a, const Command& b) { return distance(name, a.name) < distance(name, b.name); });
  if (name.size() > 1 && distance(name, nearest->name) < std::min<size_t>(name.size(), 3))
    throw UsageError(
        fmt::format("there is no command '{}'; the nearest is {} (assay --help lists them)", name, nearest->name));
  if (is_model(name))
    throw UsageError(
        fmt::format("there is no command '{}': assay run {} -p TEXT asks that model, assay chat {} talks with it", name,
                    name, name));
  std::string names;
  for (const Command& c : kCommands) names += fmt::format("{}{}", names.empty() ? "" : ", ", c.name);
  throw UsageError(fmt::format("there is no command '{}': needs one of {}", name, names));
}

// The command's flags, without running it.
CommandFacts describe(const Command& command) {
  try {
    command.run(describe_arguments());
  } catch (const CommandFacts& facts) {
    return facts;
  }
  throw std::logic_error(fmt::format("assay {} has no flags", command.name));
}

std::vector<CommandFacts> describe_all() {
  std::vector<CommandFacts> all;
  for (const Command& command : kCommands) all.push_back(describe(command));
  return all;
}

// ASSAY_ variables that set nothing, whichever command reads them.
std::string unknown_variables() {
  std::set<std::string> known;
  for (const CommandFacts& command : describe_all()) {
    for (const FlagFacts& flag : command.flags) {
      for (const auto* names : {&flag.names, &flag.off_names}) {
        for (const std::string& name : *names) known.insert(variable_of(name));
      }
    }
  }
  std::string unknown;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const std::string name(text.substr(0, text.find('=')));
    if (name.starts_with("ASSAY_") && !known.contains(name) && !is_variable_of_program(name))
      unknown += (unknown.empty() ? "" : ", ") + name;
  }
  return unknown;
}

void name_unknown_variables(const Command& command, const Arguments& arguments) {
  const std::vector<std::string> given = flags_given(describe(command), arguments);
  const char* variable = std::getenv("ASSAY_VERBOSE");
  const bool is_verbose =
      (variable != nullptr && std::string_view(variable) == "1") ||
      std::any_of(given.begin(), given.end(), [](const std::string& f) { return f == "-v" || f == "--verbose"; });
  if (!is_verbose) return;
  const std::string unknown = unknown_variables();
  if (!unknown.empty()) notice(fmt::format("no flag reads {}", unknown));
}

// assay help COMMAND; assay help --man and --completion SHELL, which the build asks for.
int help_command(const Arguments& arguments) {
  if (arguments[0] == "--man" && arguments.size() == 1) {
    Output().write(man_page(describe_all()));
    return 0;
  }
  if (arguments[0] == "--completion" && arguments.size() == 2) {
    Output().write(completion(arguments[1], describe_all()));
    return 0;
  }
  const Command& command = find_command(arguments[0]);
  Output().write(help_text(describe(command)));
  return 0;
}

// ${XDG_CACHE_HOME:-~/.cache}/assay/vulkan; empty where the environment names neither.
std::string shader_folder() {
  const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  if (cache != nullptr && *cache == '/') return std::string(cache) + "/assay/vulkan";
  return home == nullptr || *home == 0 ? std::string() : std::string(home) + "/.cache/assay/vulkan";
}

int dispatch(Arguments arguments) {
  if (arguments.empty()) {
    to_stderr(overview());
    return 2;
  }
  std::string name = arguments.front();
  if (name == "help" || name == "--help" || name == "-h") {
    if (name == "help" && arguments.size() > 1) return help_command({arguments.begin() + 1, arguments.end()});
    Output().write(overview());
    return 0;
  }
  if (name == "--version" || name == "version") {
    Output().write(fmt::format("assay {}\nnumerics 1\n", version_text()));
    return 0;
  }
  const Command& command = find_command(name);
  arguments.erase(arguments.begin());
  name_unknown_variables(command, arguments);
  try {
    return command.run(arguments);
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
  } catch (const Interrupted& e) {
    return exit_code_of_signal(e.signal);
  } catch (const NetworkError& e) {
    notice(e.what());
    return kExitNetwork;
  } catch (const Error& e) {
    const std::string what = e.what();
    notice(what.find("n_ctx") == std::string::npos ? what : what + "; -c sets n_ctx");
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
  assay::keep_shaders_in(assay::cli::shader_folder());
  return assay::cli::guarded(assay::cli::Arguments(argv + 1, argv + argc));
}
