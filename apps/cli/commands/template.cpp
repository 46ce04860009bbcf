// assay template: the prompt text that a chat template makes of messages.
#include <fmt/format.h>

#include <cstddef>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "assay/chat.h"
#include "assay/error.h"
#include "assay/session.h"
#include "assay/tokenizer.h"
#include "assay/utf8.h"
#include "commands.h"
#include "flags/options.h"
#include "io/terminal.h"

namespace assay::cli {
namespace {

TemplateValue json_of(const std::string& path) {
  return TemplateValue::from_json(read_input(path), path == "-" ? "standard input" : path);
}

// The array itself, or the one under `key` of an object, as chat APIs send it.
TemplateValue::List list_in(const std::string& path, const char* key) {
  const TemplateValue all = json_of(path);
  const TemplateValue* value = all.dict() != nullptr ? all.find(key) : &all;
  if (value == nullptr || value->list() == nullptr)
    throw Error(Errc::bad_request,
                fmt::format("{}: needs a JSON array, or an object with one under \"{}\"", path, key));
  return *value->list();
}

TemplateValue::Dict object_in(const std::string& flag, const std::string& path) {
  const TemplateValue all = json_of(path);
  if (all.dict() == nullptr)
    throw Error(Errc::bad_request, fmt::format("{} {}: needs a JSON object, e.g. {{\"key\": 1}}", flag, path));
  return *all.dict();
}

// What may be why a template refuses messages: the first one whose content is no string. Empty where all are.
std::string odd_content(const TemplateValue::List& messages) {
  for (size_t i = 0; i < messages.size(); ++i) {
    const TemplateValue* content = messages[i].find("content");
    if (content != nullptr && !std::holds_alternative<std::string>(content->held))
      return fmt::format("; messages[{}].content is {}, and this template may take a string alone", i,
                         content->list() != nullptr                              ? "a list of parts"
                         : std::holds_alternative<std::nullptr_t>(content->held) ? "null"
                                                                                 : "no string");
  }
  return {};
}

bool is_jinja(const std::string& path) {
  return path.ends_with(".jinja") || path.ends_with(".jinja2") || path.ends_with(".j2");
}

bool is_gguf(const std::string& path) {
  char magic[4] = {};
  std::ifstream(path, std::ios::binary).read(magic, 4);
  return std::string_view(magic, 4) == "GGUF";
}

}  // namespace

int template_command(const Arguments& arguments) {
  Flags flags("template",
              "Renders messages with the chat template of a model (or of a Jinja file) and prints "
              "the prompt text, nothing else.",
              "  assay template model.gguf --messages chat.json\n"
              "  assay template llama3.jinja --messages chat.json --tools tools.json --bos-token "
              "'<|begin_of_text|>'\n"
              "  echo '[{\"role\":\"user\",\"content\":\"Hi\"}]' | assay template model.gguf "
              "--messages -\n");
  ModelFlag model;
  std::optional<std::string> messages, tools, extra, bos_token, eos_token;
  std::optional<int64_t> now;
  bool no_generation_prompt = false;
  model.add(flags);
  flags.value("--messages", messages, "FILE",
              "JSON: an array of messages, or an object with it under \"messages\"; - is standard input");
  flags.value("--tools", tools, "FILE", "JSON: an array of tool definitions");
  flags.value("--variables", extra, "FILE", "JSON: an object of further variables of the template");
  flags.on("--no-generation-prompt", no_generation_prompt,
           "Ends after the last message, not where the answer would begin");
  flags.value("--bos-token", bos_token, "TEXT", "In place of the file's own");
  flags.value("--eos-token", eos_token, "TEXT", "In place of the file's own");
  flags.value("--now", now, "SECONDS", "The time that strftime_now shows, in seconds since 1970");
  if (!flags.parse(arguments)) {
    Output().write(flags.help());
    return 0;
  }
  if (!messages) throw UsageError("no messages given: --messages FILE");
  const std::string given = model.path();
  TemplateInput input;
  std::string source;
  const std::string path = model.resolved();
  if (is_gguf(path)) {
    ChatFacts facts = read_chat_facts(path);
    source = std::move(facts.chat_template);
    input.bos_token = std::move(facts.bos_token);
    input.eos_token = std::move(facts.eos_token);
  } else if (is_jinja(path)) {
    source = read_file(path);
    require_utf8(source, path);
  } else {
    throw Error(Errc::bad_file, fmt::format("{}: neither a GGUF file nor a template, whose name ends in .jinja", path));
  }
  input.messages = list_in(*messages, "messages");
  if (tools) input.tools = list_in(*tools, "tools");
  if (tools && source.find("tools") == std::string::npos)
    notice("--tools has no effect: the template does not read them");
  if (extra) input.extra = object_in("--variables", *extra);
  input.add_generation_prompt = !no_generation_prompt;
  input.now_unix = now;
  if (bos_token) input.bos_token = *bos_token;
  if (eos_token) input.eos_token = *eos_token;
  const auto chat_template = ChatTemplate::parse(source);
  try {
    Output().write(chat_template->render(input));
  } catch (const Error& e) {
    if (e.code != Errc::bad_request) throw;
    throw Error(e.code, e.what() + odd_content(input.messages));
  }
  return 0;
}

}  // namespace assay::cli
