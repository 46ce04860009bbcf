// assay plan: the operations of a model, and the kernels that run them here.
#include "assay/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>

#include "assay/devices.h"
#include "assay/utf8.h"
#include "commands.h"
#include "flags/options.h"
#include "io/json_text.h"
#include "io/terminal.h"

namespace assay::cli {
namespace {

namespace json = boost::json;

std::string weight_text(const PlanWeight& weight) {
  std::string shape;
  for (const int64_t n : weight.shape) shape += fmt::format("{}{}", shape.empty() ? "" : "x", n);
  return weight.type + " " + shape;
}

// "1..4 avx2 vector, 5.. avx2 skinny"
std::string kernels_text(const std::vector<PlanKernel>& kernels) {
  if (kernels.empty()) return "not told by this device";
  std::string text;
  for (const PlanKernel& k : kernels) {
    std::string tokens;
    if (kernels.size() > 1)
      tokens =
          k.tokens_max == 0 ? fmt::format("{}.. ", k.tokens_min) : fmt::format("{}..{} ", k.tokens_min, k.tokens_max);
    text += fmt::format("{}{}{}{}", text.empty() ? "" : ", ", tokens, k.name, k.borrowed ? " (borrowed)" : "");
  }
  return text;
}

std::string line_of(const PlannedOp& op, bool with_kernels) {
  std::string operands;
  for (const std::string& read : op.reads) operands += fmt::format("{}{}", operands.empty() ? "" : ", ", read);
  for (const PlanWeight& weight : op.weights)
    operands += fmt::format("{}{}", operands.empty() ? "" : ", ", weight_text(weight));
  std::string line = fmt::format("{:<24} {:<16} {:>6} <- {}", op.name, op.kind,
                                 op.writes.empty() ? "" : fmt::format("{}", op.width), operands);
  line = printable(line) + "\n";
  return with_kernels ? line + std::string(32, ' ') + kernels_text(op.kernels) + "\n" : line;
}

json::object to_json(const PlannedOp& op) {
  json::array weights, kernels;
  for (const PlanWeight& w : op.weights)
    weights.push_back({{"name", w.name}, {"type", w.type}, {"shape", json::value_from(w.shape)}});
  for (const PlanKernel& k : op.kernels) {
    json::value last = nullptr;
    if (k.tokens_max != 0) last = k.tokens_max;
    kernels.push_back({{"name", k.name}, {"tokens_min", k.tokens_min}, {"tokens_max", last}, {"borrowed", k.borrowed}});
  }
  json::object made = {{"name", op.name},
                       {"kind", op.kind},
                       {"layer", nullptr},
                       {"reads", json::value_from(op.reads)},
                       {"writes", nullptr}};
  if (op.layer >= 0) made["layer"] = op.layer;
  if (!op.writes.empty()) made["writes"] = op.writes;
  made["width"] = op.width;
  made["weights"] = std::move(weights);
  made["bytes"] = op.work.bytes;
  made["multiply_adds"] = op.work.multiply_adds;
  made["kernels"] = std::move(kernels);
  return made;
}

std::string total_text(const std::vector<PlannedOp>& plan, int64_t n_tokens) {
  Work all;
  int64_t n_borrowed = 0;
  for (const PlannedOp& op : plan) {
    all += op.work;
    n_borrowed += std::ranges::any_of(op.kernels, [](const PlanKernel& k) { return k.borrowed; }) ? 1 : 0;
  }
  std::string text =
      fmt::format("{} operations; {} read{} {:.1f} MB and multipl{} {:.1f} million times", plan.size(),
                  count_of(n_tokens, "token"), n_tokens == 1 ? "s" : "", static_cast<double>(all.bytes) * 1e-6,
                  n_tokens == 1 ? "ies" : "y", static_cast<double>(all.multiply_adds) * 1e-6);
  if (n_borrowed > 0) text += fmt::format("; {} of them run a reference that this device borrows", n_borrowed);
  return text + "\n";
}

// What is shown, of a context here or of a card.
struct ShownPlan {
  std::vector<PlannedOp> plan;
  json::object numerics;
  std::string card;  // empty: a device here
  std::string why;   // that card was taken without being named; empty: it was named
};

// The GPU of a plan that is not this machine's: the one that is named, or the first of the known ones where backend
// cuda is asked for without a GPU here.
void choose_card(const ContextOptions& options, ShownPlan& shown) {
  if (!shown.card.empty() || options.backend != Backend::cuda) return;
  shown.why = list_devices().no_cuda;
  if (!shown.why.empty()) shown.card = card_names().front();
}

ShownPlan show_card(const std::shared_ptr<const Model>& model, const ContextOptions& options, int64_t n_tokens,
                    ShownPlan shown) {
  CardPlan on_card = plan_for_card(model, options, shown.card, n_tokens);
  shown.plan = std::move(on_card.ops);
  shown.numerics = numerics_json(on_card.options, "cuda of " + shown.card);
  return shown;
}

std::string card_text(const ShownPlan& shown) {
  if (shown.card.empty()) return "";
  if (shown.why.empty()) return fmt::format("kernels as on a card {}\n", shown.card);
  return fmt::format("kernels as on a card {}, for there is none here: {} (--card names another)\n", shown.card,
                     shown.why);
}

}  // namespace

int plan_command(const Arguments& arguments) {
  Flags flags("plan",
              "Lists the operations that a model's forward pass consists of, and with --kernels which kernel runs each "
              "on this device, by the number of tokens.",
              "  assay plan model.gguf\n"
              "  assay plan model.gguf --kernels --backend cpu\n"
              "  assay plan model.gguf --kernels --backend cuda --card a100\n"
              "  assay plan model.gguf --tokens 512 --json | jq '[.ops[].bytes] | add'\n");
  ModelFlag model;
  RuntimeFlags runtime;
  int64_t n_tokens = 1;
  bool as_json = false;
  std::string kernels;
  model.add(flags);
  flags.value("--tokens", n_tokens, "N", "Tokens of the run whose bytes and multiply-adds are counted").at_least(1);
  flags
      .choice("--kernels", kernels, "SET", kernel_set_names(),
              "The kernel of each operation, by the number of tokens; of a set: auto, reference, avx2, avx512, neon, "
              "neon-i8mm; avx2:vector: with a row of its table first")
      .with_part(':');
  ShownPlan shown;
  flags
      .value("--card", shown.card, "NAME",
             "With --backend cuda: the kernels on this GPU, which need not be here; without a GPU here h200")
      .one_of(card_names());
  flags.on("--json", as_json, "One JSON object");
  runtime.has_kernels_flag = false;
  runtime.needs_cuda = false;
  runtime.add(flags, "Positions of the context that is made; 0: as many as --tokens");
  if (!flags.parse(arguments)) {
    Output().write(flags.help());
    return 0;
  }
  const std::shared_ptr<const Model> loaded = Model::load(model.resolved(), {.tokenizer = false});
  if (!kernels.empty()) runtime.kernels = kernels;
  ContextOptions options = runtime.options();
  if (options.n_ctx == 0) options.n_ctx = n_tokens;
  if (!shown.card.empty() && options.backend != Backend::cuda)
    throw UsageError("--card " + shown.card + ": a GPU's kernels are those of --backend cuda");
  choose_card(options, shown);
  if (!shown.card.empty()) {
    shown = show_card(loaded, options, n_tokens, std::move(shown));
  } else {
    Context context = make_context(loaded, options, runtime.verbose);
    shown.plan = plan_of(context, n_tokens);
    shown.numerics = numerics_json(context);
  }
  if (as_json) {
    json::array ops;
    for (const PlannedOp& op : shown.plan) ops.push_back(to_json(op));
    json::object made = {{"architecture", loaded->architecture()}, {"tokens", n_tokens}};
    if (!shown.card.empty()) made["card"] = shown.card;
    made["numerics"] = std::move(shown.numerics);
    made["ops"] = std::move(ops);
    Output().write(to_text(made) + "\n");
    return 0;
  }
  std::string text;
  for (const PlannedOp& op : shown.plan) text += line_of(op, !kernels.empty());
  Output().write(text + total_text(shown.plan, n_tokens) + card_text(shown));
  return 0;
}

}  // namespace assay::cli
