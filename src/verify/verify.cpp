// Runs the stages of assay/verify.h in their order. A failing stage stops nothing: the later ones
// say what they find by themselves.
#include "assay/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "assay/bench.h"
#include "assay/convert.h"
#include "assay/error.h"
#include "assay/model.h"
#include "assay/override.h"
#include "assay/version.h"
#include "engine/context_options.h"
#include "verify/against.h"
#include "verify/modes.h"
#include "verify/stages/stages.h"
#include "verify/subject.h"

namespace assay {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

struct Loaded {
  std::shared_ptr<const Model> model;
  std::vector<std::string> changes;  // by override_kv
  std::string tokenizer_problem;     // why it was loaded without its vocabulary; empty: it was not
};

// A model whose vocabulary cannot be served still has weights, ops and a cache to verify.
Loaded load(const std::string& path, const std::vector<std::string>& override_kv) {
  const auto load_with = [&](const LoadOptions& options, std::string problem) -> Loaded {
    if (override_kv.empty()) return {Model::load(path, options), {}, std::move(problem)};
    OverriddenModel loaded = load_overridden(path, override_kv, options);
    return {std::move(loaded.model), std::move(loaded.changes), std::move(problem)};
  };
  try {
    return load_with({}, {});
  } catch (const Error& error) {
    if (error.code != Errc::bad_file && error.code != Errc::unsupported) throw;
    std::string problem = error.what();
    try {
      return load_with({.tokenizer = false}, problem);
    } catch (const Error&) {
      throw Error(error.code, problem);
    }
  }
}

class Runner {
 public:
  Runner(const VerifyOptions& options, VerifyReport& report) : options_(options), report_(report) {}

  std::function<void(double)> progress_of(std::string_view id) const {
    if (!options_.on_progress) return {};
    return [this, id](double share) { options_.on_progress(id, share); };
  }

  // run: gives the finished stage.
  template <class Run>
  void stage(std::string_view id, Run run) {
    if (options_.on_progress) options_.on_progress(id, 0);
    const Clock::time_point start = Clock::now();
    VerifyStage stage = run();
    stage.seconds = seconds_since(start);
    report_.stages.push_back(std::move(stage));
    if (options_.on_stage) options_.on_stage(report_.stages.back());
  }

 private:
  const VerifyOptions& options_;
  VerifyReport& report_;
};

// Those that look at one part each.
struct PlainStage {
  std::string_view id;
  VerifyStage (*check)(const verify::Subject&, const verify::StageRun&);
};

void run_stages(const Loaded& loaded, const verify::Subject& subject, verify::StageRun& run, Runner& runner,
                const VerifyOptions& options, const std::vector<std::string>& folders, VerifyReport& report) {
  constexpr PlainStage kBefore[] = {{"file", verify::check_file},
                                    {"metadata", verify::check_metadata},
                                    {"tokenizer", verify::check_tokenizer},
                                    {"template", verify::check_template},
                                    {"dequantisation", verify::check_dequantisation}};
  constexpr PlainStage kAfter[] = {{"kv_cache", verify::check_kv_cache},
                                   {"logits", verify::check_logits},
                                   {"sampler", verify::check_sampler},
                                   {"detokenizer", verify::check_detokenizer}};
  const auto plain = [&](const PlainStage& stage) {
    run.progress = runner.progress_of(stage.id);
    runner.stage(stage.id, [&] {
      VerifyStage result = stage.check(subject, run);
      if (stage.id == "tokenizer" && !loaded.tokenizer_problem.empty()) {
        result.verdict = Verdict::fail;
        result.summary = loaded.tokenizer_problem;
        result.details = {"the stages that follow run ids in place of text"};
      }
      return result;
    });
  };
  for (const PlainStage& stage : kBefore) {
    if (!options.file_only || stage.id != "template") plain(stage);
  }
  for (const std::string& folder : folders) {
    run.progress = runner.progress_of("folder");
    runner.stage("folder", [&] { return verify::check_folder(report.model_path, folder, run); });
  }
  if (options.file_only) return;
  run.progress = runner.progress_of("ops");
  runner.stage("ops", [&] {
    verify::OpsFindings found = verify::check_ops(subject, run);
    report.ops = std::move(found.ops);
    report.first_failure = found.first_failure;
    report.causes = std::move(found.causes);
    report.tokens = std::move(found.tokens);
    report.attention = std::move(found.attention);
    report.median_slack = found.median_slack;
    return std::move(found.stage);
  });
  for (const PlainStage& stage : kAfter) plain(stage);
  run.progress = runner.progress_of("text");
  runner.stage("text", [&] {
    verify::TextFindings found = verify::check_text(subject, run);
    if (!report.first_failure) report.causes = std::move(found.causes);
    return std::move(found.stage);
  });
}

}  // namespace

VerifyReport verify_model(const std::string& path, const VerifyOptions& options) {
  const Clock::time_point start = Clock::now();
  const Loaded loaded = load(path, options.override_kv);
  verify::require_judged(options.context);
  for (const int32_t layer : options.attention_layers) {
    if (layer < 0 || layer >= loaded.model->n_layers()) {
      throw Error(Errc::bad_request,
                  fmt::format("attention of layer {}: needs layers from 0 to {}", layer, loaded.model->n_layers() - 1));
    }
  }
  const verify::Subject subject = verify::own_subject(loaded.model, options.context);
  VerifyReport report;
  report.assay_version = ASSAY_VERSION;
  report.model_path = path;
  report.model_name = loaded.model->name();
  report.architecture = loaded.model->architecture();
  report.weights_type = loaded.model->weights_type();
  report.subject = subject.name;
  report.overrides = loaded.changes;
  base::ThreadPool pool(engine::resolve(options.context, *loaded.model).n_threads, options.context.pin_threads);
  verify::StageRun run{pool};
  run.quick = options.quick;
  run.prompt = options.prompt;
  run.attention_layers = options.attention_layers;
  run.suspect_file = options.suspect_file;
  run.cancelled = [&report, &options] {  // once asked to end it stays so
    if (!report.cancelled) report.cancelled = options.cancelled && options.cancelled();
    return report.cancelled;
  };
  Runner runner(options, report);
  std::vector<std::string> folders, sources;  // of --against
  for (const std::string& one : options.against) (is_model_folder(one) ? folders : sources).push_back(one);
  verify::require_sources(subject, options.context, sources);
  verify::prompt_size(subject, run);  // refused before the first stage
  for (const std::string& change : report.overrides) {
    if (options.on_override) options.on_override(change);
  }
  run_stages(loaded, subject, run, runner, options, folders, report);
  if (!sources.empty() && !options.file_only) {
    run.progress = runner.progress_of("against");
    runner.stage("against", [&] {
      verify::AgainstFindings found = verify::check_against(subject, options.context, sources, run);
      report.against = std::move(found.sources);
      return std::move(found.stage);
    });
  }
  report.peak_bytes = peak_memory_bytes();
  report.seconds = seconds_since(start);
  return report;
}

}  // namespace assay
