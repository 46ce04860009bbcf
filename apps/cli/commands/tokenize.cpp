// assay tokenize, assay detokenize: text to token ids and back. A vocabulary-only file will do.
#include <fmt/format.h>

#include <boost/json.hpp>
#include <cctype>
#include <charconv>

#include "assay/error.h"
#include "assay/tokenizer.h"
#include "assay/utf8.h"
#include "commands.h"
#include "flags/options.h"
#include "io/id_list.h"
#include "io/json_text.h"
#include "io/terminal.h"

namespace assay::cli {

int tokenize_command(const Arguments& arguments) {
  Flags flags("tokenize", "Reads text (UTF-8) from standard input, or from -p or -f, and prints its token ids.",
              "  printf 'Hello world' | assay tokenize model.gguf\n"
              "  assay tokenize model.gguf -p 'Hello world' --json        "
              "{\"ids\":[...],\"pieces\":[...]}\n"
              "  assay tokenize model.gguf --no-special --no-bos < text   control tokens stay "
              "text, no BOS\n");
  ModelFlag model;
  std::optional<std::string> prompt, file;
  bool as_json = false, only_ids = false, from_stdin = false, show_count = false;
  std::optional<bool> special, bos;
  model.add(flags);
  flags.value("-p,--prompt", prompt, "TEXT", "The text, in place of standard input");
  flags.value("-f,--file", file, "FILE", "The same from a file, byte for byte (- is standard input)");
  flags.on("--stdin", from_stdin, "Reads standard input, as without -p and -f");
  flags.on("--json", as_json, "Prints {\"ids\": [...], \"pieces\": [...]}");
  flags.on("--ids", only_ids, "Prints the ids alone, as without --json");
  flags.on("--show-count", show_count, "Prints how many tokens there are, too");
  flags.on_off("--special,--parse-special", "--no-special,--no-parse-special", special,
               "Control tokens in the text become tokens (default), or stay text");
  flags.on_off("--bos", "--no-bos", bos, "Begins with the BOS token, or not; default: as the file says");
  flags.exclusive({"-p", "-f", "--stdin"});
  flags.exclusive({"--ids", "--json"});
  flags.habit("--log-disable");
  if (!flags.parse(arguments)) {
    Output().write(flags.help());
    return 0;
  }
  const auto tokenizer = Tokenizer::load(model.resolved());
  if (!prompt && !file && stdin_is_terminal()) notice("reading text from the terminal; Ctrl-D ends it");
  const std::string text = prompt ? *prompt : file ? read_input(*file) : read_stdin();
  require_utf8(text, "the text");
  EncodeOptions options;
  options.parse_special = special.value_or(true);
  options.add_bos = bos;
  const std::vector<TokenId> ids = tokenizer->encode(text, options);
  Output out;
  if (as_json) {
    boost::json::array pieces;
    for (TokenId id : ids) {
      const std::string piece = tokenizer->piece(id);
      if (find_invalid_utf8(piece)) {  // part of a character: the vocabulary's own spelling of it
        pieces.emplace_back(std::string(tokenizer->text(id)));
      } else {
        pieces.emplace_back(piece);
      }
    }
    boost::json::object all = {{"ids", boost::json::value_from(ids)}, {"pieces", std::move(pieces)}};
    if (show_count) all["count"] = ids.size();
    out.write(to_text(all) + "\n");
  } else {
    out.write(fmt::format("[{}]\n", fmt::join(ids, ", ")));
    if (show_count) out.write(fmt::format("Total number of tokens: {}\n", ids.size()));
  }
  return 0;
}

int detokenize_command(const Arguments& arguments) {
  Flags flags("detokenize",
              "Reads token ids from standard input (a JSON array, {\"ids\": [...]}, or numbers) and prints "
              "their text.",
              "  echo '[19556, 905]' | assay detokenize model.gguf\n"
              "  printf 'Hello' | assay tokenize model.gguf --json | assay detokenize model.gguf\n");
  ModelFlag model;
  std::optional<std::string> list, file;
  std::optional<bool> special;
  bool as_json = false;
  model.add(flags);
  flags.exclusive({"--ids", "--ids-file"});
  flags.value("--ids", list, "LIST", "The ids, e.g. 1,2,3, in place of standard input");
  flags.value("--ids-file", file, "FILE", "The same from a file");
  flags.on("--json", as_json, "Prints {\"text\": ...}; bytes that are no UTF-8 become U+FFFD");
  flags.on_off("--special", "--no-special", special, "Control tokens appear in the text, or are left out (default)");
  if (!flags.parse(arguments)) {
    Output().write(flags.help());
    return 0;
  }
  const auto tokenizer = Tokenizer::load(model.resolved());
  if (!list && !file && stdin_is_terminal()) notice("reading ids from the terminal; Ctrl-D ends them");
  const std::vector<TokenId> ids = parse_ids(list ? *list : file ? read_input(*file) : read_stdin());
  Output out;
  if (as_json) {
    StreamDecoder decoder(tokenizer, special.value_or(false),
                          false);  // a text of its own, as decode
    std::string text;
    for (TokenId id : ids) text += decoder.push(id);
    text += decoder.finish();
    out.write(to_text(boost::json::object{{"text", text}}) + "\n");
  } else {
    out.write(tokenizer->decode(ids, special.value_or(false)));
  }
  return 0;
}

}  // namespace assay::cli
