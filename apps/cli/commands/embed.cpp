// assay embed: texts to vectors.
#include "assay/embed.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>

#include "assay/error.h"
#include "assay/utf8.h"
#include "commands.h"
#include "flags/options.h"
#include "flags/override_flag.h"
#include "io/id_list.h"
#include "io/json_text.h"
#include "io/terminal.h"
#include "io/text_input.h"

namespace assay::cli {
namespace {

namespace json = boost::json;

// Flags that give texts; each may be given again for another text.
struct Texts {
  std::vector<std::string> prompts, files, ids;
  bool lines = false;

  void add(Flags& flags) {
    flags.values("-p,--prompt", prompts, "TEXT",
                 "A text; control tokens in it are tokens, BOS and EOS as the file says; may be repeated");
    flags.values(
        "-f,--file", files, "FILE",
        "A text from a file (- is standard input); may be repeated. Without any text it is read from standard input");
    flags.values("--ids", ids, "LIST", "A text as token ids, e.g. 1,2,3; may be repeated");
    flags.on("--lines", lines,
             "Each line of a file or of standard input is a text of its own; empty ones are left out");
  }

  // In the order -p, -f, --ids; of the last kind no text.
  std::vector<std::string> read() const {
    std::vector<std::string> texts;
    for (const std::string& prompt : prompts) {
      require_some(prompt, "-p");
      require_utf8(prompt, "the text of -p");
      texts.push_back(prompt);
    }
    for (const std::string& file : files) take(prompt_from_file(file), file == "-" ? "standard input" : file, texts);
    if (!texts.empty() || !ids.empty()) return texts;
    if (stdin_is_terminal()) throw UsageError("no text: give -p TEXT, -f FILE, --ids LIST, or text on standard input");
    const std::string text = without_last_line_break(read_stdin());
    require_utf8(text, "standard input");
    take(text, "standard input (-p TEXT, -f FILE and --ids LIST give one)", texts);
    return texts;
  }

 private:
  void take(const std::string& text, const std::string& from, std::vector<std::string>& texts) const {
    const size_t n_before = texts.size();
    for (size_t begin = 0; lines && begin <= text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      std::string line = text.substr(begin, end - begin);
      if (line.ends_with('\r')) line.pop_back();
      if (!line.empty()) texts.push_back(std::move(line));
      begin = end + 1;
    }
    if (!lines && !text.empty()) texts.push_back(text);
    if (texts.size() == n_before) require_some("", from);
  }
};

// The number that a float's shortest text names: what is printed reads back as the same float32.
double shortest(double x, bool is_float) {
  if (!is_float) return x;
  double read = 0;
  const std::string text = fmt::format("{}", static_cast<float>(x));
  std::from_chars(text.data(), text.data() + text.size(), read);
  return read;
}

std::string line_of(const std::vector<double>& vector, const std::vector<TokenId>& ids, const Embedder& embedder,
                    bool as_json) {
  const bool is_float = embedder.context().options().numerics != Numerics::oracle;
  if (!as_json) {
    std::string line;
    for (const double x : vector) line += fmt::format("{}{}", line.empty() ? "" : " ", shortest(x, is_float));
    return line + '\n';
  }
  json::array numbers;
  for (const double x : vector) numbers.emplace_back(shortest(x, is_float));
  return to_text(json::object{{"embedding", std::move(numbers)},
                              {"ids", json::value_from(ids)},
                              {"pooling", name(embedder.pooling())},
                              {"normalized", embedder.normalizes()},
                              {"numerics", numerics_json(embedder.context())}}) +
         '\n';
}

}  // namespace

int embed_command(const Arguments& arguments) {
  Flags flags("embed",
              "Turns texts into vectors: the rows of the model's last norm, pooled and brought to length 1. One line a "
              "text, in the order of -p, -f, "
              "--ids; each has the bits that it has alone.",
              "  assay embed model.gguf -p 'a shoal of fish'\n"
              "  assay embed model.gguf -p 'a shoal of fish' -p 'a herd of cows' --json | jq -c .embedding\n"
              "  assay embed model.gguf -f texts.txt --lines --json >vectors.jsonl\n"
              "  assay embed model.gguf --ids 1,2,3 --pooling mean --no-normalize --numerics f32\n");
  ModelFlag model_flag;
  OverrideFlag overrides;
  RuntimeFlags runtime;
  runtime.cache_k = runtime.cache_v = "f32";
  Texts texts;
  std::optional<std::string> pooling;
  std::optional<bool> normalize;
  bool as_json = false;
  model_flag.add(flags);
  overrides.add(flags);
  texts.add(flags);
  flags.value("--pooling", pooling, "KIND", "How a text's rows become one vector")
      .one_of({"mean", "cls", "last"})
      .shows("what the file says");
  flags.on_off("--normalize", "--no-normalize", normalize,
               "Bring vectors to length 1 (default), or leave them as they are");
  flags.on("--json", as_json, "Prints a JSON object a text: embedding, ids, pooling, normalized, numerics");
  runtime.add(flags, "Positions of the context; 0: as many as the longest text needs");
  if (!flags.parse(arguments)) {
    Output().write(flags.help());
    return 0;
  }
  model_flag.path();
  EmbedOptions options;
  options.context = runtime.options();
  options.context.n_sequences = 0;
  options.normalize = normalize.value_or(true);
  if (pooling) options.pooling = parse_pooling(*pooling);
  const std::vector<std::string> read = texts.read();
  const auto model = overrides.load(model_flag.resolved(), {.tokenizer = !read.empty()});
  std::vector<std::vector<TokenId>> ids;
  for (const std::string& text : read)
    ids.push_back(model->tokenizer()->encode(text, {.parse_special = true, .add_bos = {}, .add_eos = {}}));
  for (const std::string& list : texts.ids) ids.push_back(parse_ids(list));
  if (options.context.n_ctx == 0) {
    for (const auto& text : ids)
      options.context.n_ctx = std::max(options.context.n_ctx, static_cast<int64_t>(text.size()));
  }
  Embedder embedder(model, options);
  warn_beyond_training(embedder.context());
  Progress progress("running the texts");
  embedder.set_progress([&](int64_t done, int64_t total) { progress.update(done, total); });
  const std::vector<std::vector<double>> vectors = embedder.embed(ids);
  Output output;
  for (size_t i = 0; i < vectors.size(); ++i) output.write(line_of(vectors[i], ids[i], embedder, as_json));
  return 0;
}

}  // namespace assay::cli
