// See manual.h. roff: man(7).
#include "flags/manual.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "flags/flags.h"

namespace assay::cli {
namespace {

constexpr const char* kManHead = R"('\" t
.TH ASSAY 1 "" "assay" "User Commands"
.SH NAME
assay \- run GGUF language models and check every number
.SH SYNOPSIS
.B assay
.I COMMAND
.RI [ MODEL ]
.RI [ flags ]
.SH DESCRIPTION
.B assay
runs language models from GGUF files on the CPU and on NVIDIA GPUs.
The same file, prompt and seed give the same text on every machine: a result depends neither on the number of threads, nor on
batch sizes, nor on the instruction set.
.PP
.I MODEL
is the path of a GGUF file (of a split model: its first part), or the name of a model as
.B assay list
shows it, or the beginning of one, given after the command or with
.BR \-m .
.PP
A flag is a word of its own, and its value is the next word, or stands behind = of a long flag. Of a flag given twice the last counts,
but for those that may be repeated. After \-\- no word is a flag.
)";

constexpr const char* kManTail = R"(.SH ENVIRONMENT
Each long flag has a variable, which every flag that says the same outranks: \-\-top\-k is
.BR ASSAY_TOP_K ,
\-\-model is
.BR ASSAY_MODEL .
.B NO_COLOR
and
.B TERM=dumb
turn colours off.
.SH EXIT STATUS
.TS
tab(|);
l l.
0|done (also where the reader of the output has gone)
1|another failure: a file that cannot be read, a device
2|a wrong call: a flag, prompt or option that cannot be served
3|a bad or unsupported model
4|out of memory
5|verify or inspect \-\-lint found something wrong
6|network: a server could not be reached, or sent what cannot be used
130, 143|ended by Ctrl-C, by SIGTERM; what there was of the answer was printed
.TE
.SH EXAMPLES
.nf
)";

// Text between requests: no line of it may begin one.
std::string roff(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool begins_line = i == 0 || text[i - 1] == '\n';
    if (begins_line && (text[i] == '.' || text[i] == '\'')) out += "\\&";
    if (text[i] == '\\') {
      out += "\\e";
    } else if (text[i] == '-') {
      out += "\\-";
    } else if (text[i] == '\'') {
      out += "\\(aq";
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string entry(const FlagFacts& flag) {
  std::string names;
  for (const auto* list : {&flag.names, &flag.off_names}) {
    for (const std::string& name : *list) names += (names.empty() ? "\\fB" : ", \\fB") + roff(name) + "\\fR";
  }
  if (!flag.kind.empty())
    names += (flag.value_optional ? " [\\fI" : " \\fI") + roff(flag.kind) + (flag.value_optional ? "\\fR]" : "\\fR");
  std::string help = roff(flag.help);
  if (!flag.default_value.empty()) help += fmt::format(" (default {})", roff(flag.default_value));
  return fmt::format(".TP\n{}\n{}.\n", names, help);
}

// Groups of flags that several commands share stand once, under the first of them.
void append_commands(std::string& out, const std::vector<CommandFacts>& commands) {
  std::set<std::string> told;
  for (const CommandFacts& command : commands) {
    out += fmt::format(".SS \"assay {}", command.name);
    for (const ArgumentFacts& argument : command.arguments) out += " [" + argument.name + "]";
    out += fmt::format("\"\n{}\n", roff(command.summary));
    std::string elsewhere, habits;
    std::set<std::string> here;
    for (const FlagFacts& flag : command.flags) {
      const bool is_shared = flag.group != "Flags";
      if (flag.habit) {
        for (const std::string& name : flag.names) habits += (habits.empty() ? "" : ", ") + name;
      } else if (is_shared && told.contains(flag.group)) {
        if (here.insert(flag.group).second) elsewhere += (elsewhere.empty() ? "" : "; ") + flag.group;
      } else {
        if (is_shared && here.insert(flag.group).second) out += fmt::format(".PP\n{}:\n", roff(flag.group));
        out += entry(flag);
      }
    }
    if (!elsewhere.empty()) out += fmt::format(".PP\nAnd the flags told above of: {}.\n", roff(elsewhere));
    if (!habits.empty()) out += fmt::format(".PP\nAccepted for habit, without effect: {}.\n", roff(habits));
    told.insert(here.begin(), here.end());
  }
}

// The first words of a summary, for a menu.
std::string title_of(const CommandFacts& command) {
  std::string title = command.summary.substr(0, command.summary.find_first_of(".:;\n"));
  std::erase_if(
      title, [](char c) { return c == '\'' || c == '"' || c == '`' || c == '$' || c == '\\' || c == '[' || c == ']'; });
  return title;
}

bool is_file(const FlagFacts& flag) {
  return flag.kind == "FILE" || flag.kind == "MODEL" || flag.kind.find("MODEL") == 0 || flag.kind.find("DUMP") == 0 ||
         flag.kind == "JINJA";
}

std::vector<std::string> all_names(const CommandFacts& command) {
  std::vector<std::string> all;
  for (const FlagFacts& flag : command.flags) {
    all.insert(all.end(), flag.names.begin(), flag.names.end());
    all.insert(all.end(), flag.off_names.begin(), flag.off_names.end());
  }
  return all;
}

std::string names_of(const std::vector<CommandFacts>& commands) {
  std::string names;
  for (const CommandFacts& command : commands) names += command.name + " ";
  return names + "help";
}

// Per command: its flags, and what follows which flag.
std::string bash(const std::vector<CommandFacts>& commands) {
  std::string out = fmt::format(R"(# Completion of assay for bash, made of the program's own table of flags.
_assay() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} command=${{COMP_WORDS[1]}} flags= choices= files=
  if ((COMP_CWORD == 1)); then
    mapfile -t COMPREPLY < <(compgen -W '{0} --help --version' -- "$word")
    return
  fi
  case $command in
    help) choices='{0}' ;;
)",
                                names_of(commands));
  for (const CommandFacts& command : commands) {
    out += fmt::format("    {})\n      flags='{}'\n      case $before in\n", command.name,
                       fmt::join(all_names(command), " "));
    for (const FlagFacts& flag : command.flags) {
      if (flag.kind.empty() || flag.value_optional) continue;
      out += fmt::format("        {}) {} ;;\n", fmt::join(flag.names, " | "),
                         !flag.choices.empty() ? fmt::format("choices='{}'", fmt::join(flag.choices, " "))
                         : is_file(flag)       ? "files=1"
                                               : "return");
    }
    out += "        *) files=1 ;;\n      esac\n      ;;\n";
  }
  return out + R"(  esac
  if [[ $word == -* ]]; then choices=$flags files=; fi
  mapfile -t COMPREPLY < <(compgen -W "$choices" -- "$word"; [[ $files ]] && compgen -f -- "$word")
  if [[ $files ]]; then compopt -o filenames; fi
}
complete -F _assay assay
)";
}

std::string zsh(const std::vector<CommandFacts>& commands) {
  std::string out =
      "#compdef assay\n# Completion of assay for zsh, made of the program's own table of flags.\n_assay() {\n  local "
      "-a commands\n  commands=(\n";
  for (const CommandFacts& command : commands) out += fmt::format("    '{}:{}'\n", command.name, title_of(command));
  out +=
      "    'help:The flags of a command'\n  )\n  if ((CURRENT == 2)) || [[ $words[2] == help ]]; then\n    _describe "
      "'command' commands\n    return\n  fi\n"
      "  case $words[2] in\n";
  for (const CommandFacts& command : commands) {
    out += fmt::format(
        "    {})\n      if [[ $PREFIX == -* ]]; then\n        compadd -- {}\n        return\n      fi\n      case "
        "$words[CURRENT-1] in\n",
        command.name, fmt::join(all_names(command), " "));
    for (const FlagFacts& flag : command.flags) {
      if (flag.kind.empty() || flag.value_optional) continue;
      out += fmt::format("        {}) {} ;;\n", fmt::join(flag.names, " | "),
                         !flag.choices.empty() ? fmt::format("compadd {}", fmt::join(flag.choices, " "))
                         : is_file(flag)       ? "_files"
                                               : "return");
    }
    out += "        *) _files ;;\n      esac\n      ;;\n";
  }
  return out + "  esac\n}\n_assay \"$@\"\n";
}

std::string fish(const std::vector<CommandFacts>& commands) {
  std::string out = "# Completion of assay for fish, made of the program's own table of flags.\n";
  for (const CommandFacts& command : commands) {
    out +=
        fmt::format("complete -c assay -n __fish_use_subcommand -f -a {} -d '{}'\n", command.name, title_of(command));
  }
  for (const CommandFacts& command : commands) {
    for (const FlagFacts& flag : command.flags) {
      out += fmt::format("complete -c assay -n '__fish_seen_subcommand_from {}'", command.name);
      for (const auto* names : {&flag.names, &flag.off_names}) {
        for (const std::string& name : *names) {
          out +=
              name.starts_with("--") ? " -l " + name.substr(2) : (name.size() == 2 ? " -s " : " -o ") + name.substr(1);
        }
      }
      if (!flag.kind.empty() && !flag.value_optional)
        out += !flag.choices.empty() ? fmt::format(" -x -a '{}'", fmt::join(flag.choices, " "))
               : is_file(flag)       ? " -r"
                                     : " -x";
      out += '\n';
    }
  }
  return out;
}

}  // namespace

std::string man_page(const std::vector<CommandFacts>& commands) {
  std::string out = kManHead;
  out += ".SH COMMANDS\n";
  append_commands(out, commands);
  out += kManTail;
  for (const CommandFacts& command : commands) out += roff(command.examples);
  return out + ".fi\n.SH SEE ALSO\nThe file docs/numerics.md of the sources states what every number is made of.\n";
}

std::string completion(const std::string& shell, const std::vector<CommandFacts>& commands) {
  if (shell == "bash") return bash(commands);
  if (shell == "zsh") return zsh(commands);
  if (shell == "fish") return fish(commands);
  throw UsageError(fmt::format("--completion {}: needs bash, zsh or fish", shell));
}

}  // namespace assay::cli
