// See against.h.
#include "verify/against.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "assay/error.h"
#include "engine/context_options.h"
#include "engine/model_state.h"
#include "faults/dictionary.h"
#include "ops/plan/op_values.h"
#include "verify/against_outliers.h"
#include "verify/dump_source.h"
#include "verify/modes.h"
#include "verify/source_watch.h"
#include "verify/stages/stage_support.h"
#include "verify/token_findings.h"

namespace assay::verify {
namespace {

constexpr int64_t kProbeMin = 16, kProbeMax = 48;       // tokens, without a dump that says which
constexpr int64_t kBatchMax = 512;                      // of a long prompt
constexpr int64_t kLogitsBytesMax = int64_t{64} << 20;  // of one batch, as doubles

const ops::Plan& plan_of(const Subject& subject) { return subject.model->state().built.plan; }

// Tokens cut into batches, as all sources of our own run them.
struct Feed {
  std::vector<trace::DumpBatch> batches;
  int64_t n_ctx = 0, n_batch_max = 0;
  int n_sequences = 1;
};

ops::Batch as_batch(const trace::DumpBatch& batch) {
  return {batch.tokens, batch.positions, batch.sequences, batch.outputs};
}

Feed feed_of(const DumpSource& dump) { return {dump.batches, dump.n_ctx, dump.n_batch_max, dump.n_sequences}; }

Feed feed_of(const std::vector<TokenId>& ids, int64_t vocab_size) {
  const auto n = static_cast<int64_t>(ids.size());
  trace::DumpBatch batch;
  batch.tokens.assign(ids.begin(), ids.end());
  const int64_t n_outputs_max =
      std::max<int64_t>(1, kLogitsBytesMax / (vocab_size * static_cast<int64_t>(sizeof(double))));
  const int64_t stride = (n + n_outputs_max - 1) / n_outputs_max;
  for (int64_t i = 0; i < n; ++i) {
    batch.positions.push_back(static_cast<int32_t>(i));
    batch.outputs.push_back((n - 1 - i) % stride == 0 ? 1 : 0);  // the last one, and others evenly before it
  }
  batch.sequences.assign(ids.size(), 0);
  return {{std::move(batch)}, n, n, 1};
}

Feed in_chunks(const Feed& feed, int64_t n_chunk) {
  if (n_chunk == 0) return feed;
  Feed cut = feed;
  cut.batches.clear();
  cut.n_batch_max = n_chunk;
  const auto step = static_cast<size_t>(n_chunk);
  for (const trace::DumpBatch& batch : feed.batches) {
    for (size_t i = 0; i < batch.tokens.size(); i += step) {
      const size_t end = std::min(i + step, batch.tokens.size());
      const auto part = [&](const auto& all) {
        return std::decay_t<decltype(all)>(all.begin() + static_cast<std::ptrdiff_t>(i),
                                           all.begin() + static_cast<std::ptrdiff_t>(end));
      };
      cut.batches.push_back({part(batch.tokens), part(batch.positions), part(batch.sequences), part(batch.outputs)});
    }
  }
  return cut;
}

// One column of the comparison.
struct Source {
  std::string name;
  std::optional<DumpSource> dump;         // or
  std::shared_ptr<const Subject> engine;  // one of our own, with
  ContextOptions options;
  int64_t n_chunk = 0;
  RowBits bits;
  bool ran = false;
};

Source make_source(const std::string& text, const Subject& subject, const ContextOptions& base) {
  std::optional<Mode> mode = parse_mode(text, base);
  if (mode) {
    auto engine = std::make_shared<const Subject>(own_subject(subject.model, mode->options));
    return {fmt::format("{} ({})", text, engine->name), std::nullopt, engine, mode->options, mode->n_chunk, {}, false};
  }
  std::error_code ignored;  // what cannot be examined is no file, and the message says so
  if (!std::filesystem::exists(text, ignored)) {
    throw Error(Errc::bad_request,
                fmt::format("--against: needs a dump's path or one of {}, found \"{}\"", mode_names(), text));
  }
  DumpSource dump = examine_dump(text, plan_of(subject));
  std::string name = fmt::format("{} ({})", dump.header.engine, std::filesystem::path(text).filename().string());
  return {std::move(name), std::move(dump), nullptr, {}, 0, {}, false};
}

class Comparison {
 public:
  Comparison(const Subject& subject, const ContextOptions& context, std::span<const std::string> against,
             const StageRun& run)
      : subject_(subject), plan_(plan_of(subject)), run_(run) {
    const ContextOptions options = engine::resolve(context, *subject.model);
    sources_.push_back({subject.name, std::nullopt, std::make_shared<const Subject>(subject), options, 0, {}, false});
    for (const std::string& text : against) sources_.push_back(make_source(text, subject, options));
    choose_feed();
  }

  AgainstFindings findings() {
    for (size_t i = 0; i < sources_.size() && !is_cancelled(run_); ++i) judge(sources_[i], i);
    if (is_cancelled(run_)) return {stage(Verdict::skip, "cancelled"), std::move(figures_)};
    mark_outliers(figures_);
    for (const Source& source : sources_) check_tokens(source);
    compare_bits();
    return {summary(), std::move(figures_)};
  }

 private:
  void choose_feed();
  void judge(Source& source, size_t i);
  void judge_engine(const Source& source, SourceWatch& watch, size_t i) const;
  void judge_dump(const Source& source, SourceWatch& watch, size_t i) const;
  void progress(size_t i, double share) const;
  void check_tokens(const Source& source);
  void compare_bits();
  std::string describe_difference(const Source& a, const Source& b, const BitsDifference& difference) const;
  VerifyStage summary();
  VerifyStage stage(Verdict verdict, std::string text) const;
  void fail(std::string line) {
    failed_ = true;
    details_.push_back(std::move(line));
  }

  const Subject& subject_;
  const ops::Plan& plan_;
  const StageRun& run_;
  Feed feed_;
  std::vector<Source> sources_;
  std::vector<SourceFigures> figures_;  // of each source
  std::vector<std::string> details_;
  bool failed_ = false;
  int n_bits_compared_ = 0;
};

void Comparison::choose_feed() {
  for (const Source& source : sources_) {
    if (!source.dump) continue;
    feed_ = feed_of(*source.dump);
    return;
  }
  const int64_t n_max = std::max(kProbeMax, prompt_size(subject_, run_));
  feed_ = feed_of(probe_ids(subject_, run_, kProbeMin, n_max), plan_.vocab_size);
  if (feed_.n_batch_max > kBatchMax) feed_ = in_chunks(feed_, kBatchMax);
}

void Comparison::progress(size_t i, double share) const {
  if (run_.progress) run_.progress((static_cast<double>(i) + share) / static_cast<double>(sources_.size()));
}

void Comparison::judge(Source& source, size_t i) {
  const Feed feed = source.dump ? feed_of(*source.dump) : feed_;
  const trace::Declared& declared = source.dump ? source.dump->header.declared : source.engine->declared;
  SourceWatch watch(plan_, declared, feed.n_ctx, feed.n_sequences, run_.pool);
  source.dump ? judge_dump(source, watch, i) : judge_engine(source, watch, i);
  figures_.push_back(watch.figures(source.name));
  if (watch.first_failure() != nullptr)
    figures_.back().causes = faults::find_causes(plan_, *watch.first_failure(), declared, run_.pool);
  source.bits = watch.bits();
}

// Runs the feed on an engine of our own, under an observer.
void run_feed(const Source& source, const Feed& feed, ops::OpObserver& observer,
              const std::function<void(const ops::Batch&)>& begin, const std::function<bool()>& end) {
  const Feed cut = in_chunks(feed, source.n_chunk);
  const auto executor = source.engine->make_executor(cut.n_ctx, cut.n_batch_max, cut.n_sequences);
  for (const trace::DumpBatch& dumped : cut.batches) {
    ops::Batch batch = as_batch(dumped);
    begin(batch);
    batch.request.observer = &observer;
    executor->run(batch);
    if (!end()) return;
  }
}

void Comparison::judge_engine(const Source& source, SourceWatch& watch, size_t i) const {
  size_t n_done = 0;
  const size_t n_batches = in_chunks(feed_, source.n_chunk).batches.size();
  run_feed(
      source, feed_, watch, [&](const ops::Batch& batch) { watch.begin(batch); },
      [&] {
        watch.end();
        progress(i, static_cast<double>(++n_done) / static_cast<double>(n_batches));
        return !is_cancelled(run_);
      });
}

void Comparison::judge_dump(const Source& source, SourceWatch& watch, size_t i) const {
  DumpSink sink;
  sink.begin = [&](const ops::Batch& batch) { watch.begin(batch); };
  sink.tensor = [&](const ops::Op& op, const trace::DumpTensor& tensor) {
    watch.on_op(op, tensor.n_rows, tensor.width, tensor.values);
  };
  sink.end = [&] { watch.end(); };
  sink.progress = [&](double share) { progress(i, share); };
  replay_dump(*source.dump, plan_, sink);
}

void Comparison::check_tokens(const Source& source) {
  if (!source.dump || source.dump->header.text.empty() || !subject_.encode) return;
  std::vector<int32_t> ids;  // of the first sequence
  for (const trace::DumpBatch& batch : source.dump->batches) {
    for (size_t i = 0; i < batch.tokens.size(); ++i) {
      if (batch.sequences[i] == 0) ids.push_back(batch.tokens[i]);
    }
  }
  const std::optional<std::string> found =
      explain_tokens(*subject_.model->tokenizer(), subject_.encode, source.dump->header.text, ids);
  if (found) fail(fmt::format("{}: tokenizer: {}", source.name, *found));
}

// Keeps the rows of one op and token.
class RowCapture final : public ops::OpObserver {
 public:
  RowCapture(const ops::Plan& plan, const BitsDifference& wanted) : watch_(plan.ops[wanted.i_op]), wanted_(wanted) {
    domain_ = plan.values[static_cast<size_t>(ops::announced_value(watch_))].domain;
  }
  void begin(const ops::Batch& batch) {
    i_row_ = -1;
    int64_t n_rows = 0;
    for (size_t i = 0; i < batch.tokens.size(); ++i, ++n_tokens_) {
      const bool counts = !domain_.is_of_outputs() || batch.outputs[i] != 0;
      if (n_tokens_ == wanted_.i_token && counts) {
        i_row_ = n_rows;
        position_ = batch.positions[i];
      }
      n_rows += counts ? 1 : 0;
    }
  }
  bool wants(const ops::Op& op) override { return i_row_ >= 0 && op.name == watch_.name; }
  void on_op(const ops::Op&, int64_t, int64_t width, std::span<const double> values) override {
    const int64_t n = width * domain_.n_ranks;
    const std::span<const double> rows = values.subspan(static_cast<size_t>(i_row_ * n), static_cast<size_t>(n));
    values_.assign(rows.begin(), rows.end());
  }
  bool done() const { return !values_.empty(); }
  int32_t position() const { return position_; }
  const std::vector<double>& values() const { return values_; }

 private:
  const ops::Op& watch_;
  BitsDifference wanted_;
  ops::RowDomain domain_;
  size_t n_tokens_ = 0;
  int64_t i_row_ = -1;  // of tokens, or of outputs
  int32_t position_ = -1;
  std::vector<double> values_;
};

std::string Comparison::describe_difference(const Source& a, const Source& b, const BitsDifference& difference) const {
  const ops::Op& op = plan_.ops[difference.i_op];
  RowCapture of_a(plan_, difference), of_b(plan_, difference);
  run_feed(
      a, feed_, of_a, [&](const ops::Batch& batch) { of_a.begin(batch); }, [&] { return !of_a.done(); });
  run_feed(
      b, feed_, of_b, [&](const ops::Batch& batch) { of_b.begin(batch); }, [&] { return !of_b.done(); });
  const std::string head = fmt::format("{} and {} promise the same bits and part first at {}", a.name, b.name, op.name);
  const std::vector<double>&x = of_a.values(), &y = of_b.values();
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
    if (std::memcmp(&x[i], &y[i], sizeof x[i]) == 0) continue;
    return fmt::format("{}, position {}, element {}: {:.9g} and {:.9g}", head, of_a.position(), i, x[i], y[i]);
  }
  return head + ", in one run but not in the next: the bits are not repeatable";
}

void Comparison::compare_bits() {
  for (size_t i = 1; i < sources_.size(); ++i) {
    const Source& b = sources_[i];
    if (b.dump || !b.engine->same_bits) continue;
    const auto a =
        std::find_if(sources_.begin(), sources_.begin() + static_cast<std::ptrdiff_t>(i), [&](const Source& other) {
          return !other.dump && other.engine->same_bits && promise_same_bits(other.options, b.options);
        });
    if (a == sources_.begin() + static_cast<std::ptrdiff_t>(i)) continue;
    ++n_bits_compared_;
    const std::optional<BitsDifference> difference = first_difference(a->bits, b.bits);
    if (!difference) continue;
    fail(describe_difference(*a, b, *difference));
  }
}

VerifyStage Comparison::stage(Verdict verdict, std::string text) const {
  VerifyStage stage;
  stage.id = "against";
  stage.title = "Against others";
  stage.verdict = verdict;
  stage.summary = std::move(text);
  stage.details = details_;
  return stage;
}

VerifyStage Comparison::summary() {
  std::vector<std::string> lines;
  std::string outliers;
  for (size_t i = 0; i < figures_.size(); ++i) {
    const std::vector<std::string> said = describe_source(figures_[i]);
    lines.insert(lines.end(), said.begin(), said.end());
    if (sources_[i].dump && !sources_[i].dump->lacking.empty()) {
      const std::vector<std::string>& lacking = sources_[i].dump->lacking;
      lines.push_back(
          fmt::format("{}: lacks {} of the model's ops, the first is {}; their rounding counts for "
                      "those that follow",
                      sources_[i].name, lacking.size(), lacking.front()));
    }
    if (figures_[i].outlier) outliers += fmt::format("{}{}", outliers.empty() ? "" : "; ", figures_[i].name);
  }
  details_.insert(details_.begin(), lines.begin(), lines.end());
  const std::string bits = n_bits_compared_ == 0 ? "" : fmt::format(", {} compared by bits", n_bits_compared_);
  std::string text = fmt::format("{} sources{}: ", figures_.size(), bits);
  if (!outliers.empty()) return stage(Verdict::fail, text + "the outlier is " + outliers);
  if (failed_) return stage(Verdict::fail, text + "every op within its bound, but " + details_.back());
  return stage(Verdict::pass, text + "every op of each within its bound");
}

}  // namespace

void require_sources(const Subject& subject, const ContextOptions& context, std::span<const std::string> against) {
  const ContextOptions options = engine::resolve(context, *subject.model);
  for (const std::string& text : against) make_source(text, subject, options);
}

AgainstFindings check_against(const Subject& subject, const ContextOptions& context,
                              std::span<const std::string> against, const StageRun& run) {
  const auto begun = std::chrono::steady_clock::now();
  AgainstFindings findings = Comparison(subject, context, against, run).findings();
  findings.stage.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  return findings;
}

}  // namespace assay::verify
