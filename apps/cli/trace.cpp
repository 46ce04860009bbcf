// assay trace: what every operation of a run computed.
#include "assay/trace.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <charconv>

#include "assay/utf8.h"
#include "commands.h"
#include "id_list.h"
#include "json_text.h"
#include "options.h"
#include "terminal.h"

namespace assay::cli {
namespace {

namespace json = boost::json;

json::object op_json(const OpTrace& op, bool histogram) {
  json::object result = {{"op", op.op},
                         {"kind", op.kind},
                         {"layer", op.layer},
                         {"n_rows", op.n_rows},
                         {"width", op.width},
                         {"mean", op.mean},
                         {"rms", op.rms},
                         {"smallest", op.smallest},
                         {"largest", op.largest},
                         {"n_nan", op.n_nan},
                         {"n_infinite", op.n_infinite},
                         {"n_zero", op.n_zero},
                         {"first", json::value_from(op.first)}};
  if (histogram) result["histogram"] = json::value_from(op.histogram);
  return result;
}

json::object trace_json(const Trace& trace, const Context& context) {
  json::array ops;
  for (const OpTrace& op : trace.ops) ops.push_back(op_json(op, trace.has_histogram));
  return {{"ids", json::value_from(trace.ids)},
          {"ops", std::move(ops)},
          {"logits_digest", trace.logits_digest},
          {"kv_digest", trace.kv_digest},
          {"numerics", numerics_json(context)}};
}

// "3" or "3-7": first and last.
template <class T>
std::optional<std::pair<T, T>> parse_range(const char* flag,
                                           const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  const char* const end = text->data() + text->size();
  std::pair<T, T> range{};
  auto [at, error] = std::from_chars(text->data(), end, range.first);
  range.second = range.first;
  if (error == std::errc() && at < end && *at == '-') {
    const auto second = std::from_chars(at + 1, end, range.second);
    at = second.ptr;
    error = second.ec;
  }
  if (error != std::errc() || at != end || range.first < 0 || range.second < range.first) {
    throw UsageError(
        fmt::format("{}: needs a number or a range such as 2-5, found \"{}\"", flag, *text));
  }
  return range;
}

}  // namespace

int trace_command(const Arguments& arguments) {
  Flags flags("trace",
              "Runs a text and shows what every operation computed: mean, root mean square, "
              "extremes, zeros, what is not finite, first values. Observing changes no bit.",
              "  assay trace model.gguf -p 'The capital of France is' --ops 'output|.*residual'\n"
              "  assay trace model.gguf -p 'Hi' --layers 0-1 --histogram\n"
              "  assay trace model.gguf -p 'Hi' --dump hi.dump    all values, for assay verify "
              "--against and other programs\n");
  ModelFlag model_flag;
  RuntimeFlags runtime;
  std::optional<std::string> prompt, list, file, ops, layers, positions, dump;
  TraceOptions options;
  bool as_json = false;
  model_flag.add(flags);
  flags.value("-p,--prompt", prompt, "TEXT",
              "The text, raw: control tokens in it are tokens, BOS as the file says");
  flags.value("--ids", list, "LIST", "Token ids in place of text, e.g. 1,2,3");
  flags.value("--ids-file", file, "FILE", "The same from a file");
  flags.value("--ops", ops, "REGEX", "Only operations whose whole name matches, e.g. '.*attn_[qk]'");
  flags.value("--layers", layers, "A-B", "Only operations of these layers, counted from 0");
  flags.value("--positions", positions, "A-B",
              "Statistics of these positions only, counted from 0; all are run");
  flags.value("--first", options.n_first, "N", "How many values of the first row are shown");
  flags.on("--histogram", options.histogram, "Magnitudes in 16 bins, from 2^-24 to 2^8");
  flags.on("--json", as_json, "Prints ids, ops, logits_digest, kv_digest, numerics");
  flags.value("--dump", dump, "FILE",
              "Writes all values of the operations chosen (docs/dump-format.md)");
  runtime.add(flags);
  if (!flags.parse(arguments)) {
    Output().write(flags.help());
    return 0;
  }
  if (int{prompt.has_value()} + int{list.has_value()} + int{file.has_value()} != 1) {
    throw UsageError("needs one of -p TEXT, --ids LIST and --ids-file FILE");
  }
  const std::string path = model_flag.path();
  ContextOptions context_options = runtime.options();
  options.layers = parse_range<int32_t>("--layers", layers);
  options.positions = parse_range<int64_t>("--positions", positions);
  options.ops = ops.value_or("");
  options.dump_path = dump.value_or("");
  if (prompt) require_utf8(*prompt, "the text");
  std::vector<TokenId> ids;
  if (!prompt) ids = parse_ids(list ? *list : read_file(*file));
  const auto model = Model::load(existing(path), {.tokenizer = prompt.has_value()});
  if (prompt) {
    ids = model->tokenizer()->encode(*prompt,
                                     {.parse_special = true, .add_bos = {}, .add_eos = false});
    options.text = *prompt;
  }
  if (context_options.n_ctx == 0) context_options.n_ctx = static_cast<int64_t>(ids.size());
  Context context = make_context(model, context_options);
  Progress progress("running the text");
  context.set_progress([&](int64_t done, int64_t total) { progress.update(done, total); });
  const Trace trace = trace_run(context, ids, options);
  Output().write(as_json ? to_text(trace_json(trace, context)) + "\n" : trace.to_text());
  return 0;
}

}  // namespace assay::cli
