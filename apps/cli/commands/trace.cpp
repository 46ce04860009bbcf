// assay trace: what every operation of a run computed.
#include "assay/trace.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <charconv>

#include "commands.h"
#include "flags/options.h"
#include "flags/override_flag.h"
#include "io/json_text.h"
#include "io/terminal.h"
#include "io/text_input.h"

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
std::optional<std::pair<T, T>> parse_range(const char* flag, const std::optional<std::string>& text) {
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
    throw UsageError(fmt::format("{}: needs a number or a range such as 2-5, found \"{}\"", flag, *text));
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
  OverrideFlag overrides;
  RuntimeFlags runtime;
  TextInput input;
  std::optional<std::string> ops, layers, positions, dump;
  TraceOptions options;
  bool as_json = false;
  model_flag.add(flags);
  overrides.add(flags);
  input.add(flags, "The text, raw: control tokens in it are tokens, BOS as the file says",
            "The same from a file (- is standard input); without either it is read from standard input");
  input.add_ids(flags);
  flags.value("--ops", ops, "REGEX", "Only operations whose whole name matches, e.g. '.*attn_[qk]'");
  flags.value("--layers", layers, "A-B", "Only operations of these layers, counted from 0");
  flags.value("--positions", positions, "A-B", "Statistics of these positions only, counted from 0; all are run");
  flags.value("--first", options.n_first, "N", "How many values of the first row are shown").at_least(0);
  flags.on("--histogram", options.histogram, "Magnitudes in 16 bins, from 2^-24 to 2^8");
  flags.on("--json", as_json, "Prints ids, ops, logits_digest, kv_digest, numerics");
  flags.value(
      "--dump", dump, "FILE",
      "Writes all values of the operations chosen (docs/dump-format.md); - is standard output, then without the table");
  runtime.add(flags);
  if (!flags.parse(arguments)) {
    Output().write(flags.help());
    return 0;
  }
  if (dump && dump->empty()) throw UsageError("--dump needs a file's name, found an empty one");
  const std::string path = model_flag.path();
  ContextOptions context_options = runtime.options();
  options.layers = parse_range<int32_t>("--layers", layers);
  options.positions = parse_range<int64_t>("--positions", positions);
  options.ops = ops.value_or("");
  const bool dumps_to_stdout = dump == "-";
  options.dump_path = dumps_to_stdout ? "/dev/stdout" : dump.value_or("");
  if (!input.is_ids()) options.text = input.text();
  std::vector<TokenId> ids;
  if (input.is_ids()) ids = input.listed_ids();
  const std::string file = model_flag.resolved();
  require_other_file(dump, {file, input.file, input.ids_file});
  const auto model = overrides.load(file, {.tokenizer = !input.is_ids()});
  if (!input.is_ids()) ids = raw_ids(*model, options.text);
  if (context_options.n_ctx == 0) context_options.n_ctx = static_cast<int64_t>(ids.size());
  context_options.embeddings = !model->has_logits();  // an encoder's run ends with them
  Context context = make_context(model, context_options, runtime.verbose);
  Progress progress("running the text");
  options.progress = [&](int64_t done, int64_t total) { progress.update(done, total); };
  const Trace trace = trace_run(context, ids, options);
  if (dumps_to_stdout) return 0;  // the dump alone
  Output().write(as_json ? to_text(trace_json(trace, context)) + "\n" : trace.to_text());
  return 0;
}

}  // namespace assay::cli
