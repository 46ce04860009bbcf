// assay logits: what the model says about a text.
#include <fmt/format.h>

#include <boost/json.hpp>
#include <cmath>

#include "assay/error.h"
#include "assay/score.h"
#include "assay/utf8.h"
#include "commands.h"
#include "flags/options.h"
#include "flags/override_flag.h"
#include "io/json_text.h"
#include "io/logprobs.h"
#include "io/terminal.h"
#include "io/text_input.h"

namespace assay::cli {
namespace {

namespace json = boost::json;

json::object score_json(const Score& s, const std::vector<TokenId>& ids, const Context& context, bool all) {
  json::array top;
  for (const auto& [id, logit] : s.top) top.push_back(json::array{id, logit});
  json::object result = {{"ids", json::value_from(ids)},
                         {"top", std::move(top)},
                         {"logsumexp", s.logsumexp},
                         {"mean_nll", ids.size() > 1 ? json::value(s.mean_nll) : json::value(nullptr)},
                         {"logits_digest", s.logits_digest},
                         {"kv_digest", s.kv_digest},
                         {"numerics", numerics_json(context)}};
  if (all) result["logprobs"] = logprobs_value(context.model().tokenizer().get(), s.places);
  return result;
}

std::string score_text(const Score& s, const std::vector<TokenId>& ids, const Model& model) {
  std::string text = fmt::format("{}, mean negative log-likelihood {}\n\n{:>8}  {:>10}  {:>8}  token\n",
                                 count_of(static_cast<int64_t>(ids.size()), "token"),
                                 ids.size() > 1 ? fmt::format("{:.6f}", s.mean_nll) : "none", "id", "logit", "p");
  for (const auto& [id, logit] : s.top) {
    const std::string piece = model.tokenizer() ? quoted_text(model.tokenizer()->piece(id)) : "";
    text += fmt::format("{:>8}  {:>10.5f}  {:>7.3f}%  {}\n", id, logit, 100 * std::exp(logit - s.logsumexp), piece);
  }
  if (!s.places.empty()) {
    text += '\n';
    text += logprobs_table(model.tokenizer().get(), s.places);
  }
  return text + fmt::format("\nlogits {}\nkv     {}\n", s.logits_digest, s.kv_digest);
}

}  // namespace

int logits_command(const Arguments& arguments) {
  Flags flags("logits",
              "Runs a text and shows the largest logits after its last token, its likelihood, and "
              "digests over the bits of everything computed.",
              "  assay logits model.gguf -p 'The capital of France is'\n"
              "  assay logits model.gguf --ids 504,3575,282 --json --top 5\n"
              "  assay logits model.gguf -p 'Hi' -t 1 --json | jq .logits_digest    the same for "
              "any -t and -ub\n"
              "  assay logits model.gguf -p 'The capital of France is Oslo.' --all --top 3\n");
  ModelFlag model_flag;
  OverrideFlag overrides;
  RuntimeFlags runtime;
  TextInput input;
  int64_t n_top = 10;
  bool as_json = false, all = false;
  model_flag.add(flags);
  overrides.add(flags);
  input.add(flags, "The text, raw: control tokens in it are tokens, BOS as the file says",
            "The same from a file (- is standard input); without either it is read from standard input");
  input.add_ids(flags);
  flags.value("--top", n_top, "N", "How many of the largest logits").at_least(1);
  flags.on("--all", all, "Also how likely each token of the text was, with the --top likeliest in its place");
  flags.on("--json", as_json, "Prints ids, top, logsumexp, mean_nll, logits_digest, kv_digest, numerics");
  runtime.add(flags);
  if (!flags.parse(arguments)) {
    Output().write(flags.help());
    return 0;
  }
  const std::string path = model_flag.path();
  ContextOptions options = runtime.options();
  const std::string text = input.is_ids() ? "" : input.text();
  std::vector<TokenId> ids;
  if (input.is_ids()) ids = input.listed_ids();
  const auto model = overrides.load(model_flag.resolved(), {.tokenizer = !input.is_ids() || !as_json});
  if (!input.is_ids()) ids = raw_ids(*model, text);
  if (options.n_ctx == 0) options.n_ctx = static_cast<int64_t>(ids.size());  // exactly what this text needs
  Context context = make_context(model, options, runtime.verbose);
  Progress progress("running the text");
  const Score s = score(context, ids, n_top, all ? Places::all : Places::last,
                        [&](int64_t done, int64_t total) { progress.update(done, total); });
  Output().write(as_json ? to_text(score_json(s, ids, context, all)) + "\n" : score_text(s, ids, *model));
  return 0;
}

}  // namespace assay::cli
