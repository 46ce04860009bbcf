// assay batch: lines of JSON in, answers out, many at a time.
#include "assay/batch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iostream>
#include <iterator>

#include "assay/error.h"
#include "assay/session.h"
#include "commands.h"
#include "flags/options.h"
#include "flags/override_flag.h"
#include "flags/reasoning_flags.h"
#include "io/terminal.h"

namespace assay::cli {
namespace {

struct BatchFlags {
  ModelFlag model;
  OverrideFlag overrides;
  RuntimeFlags runtime;
  SamplingFlags sampling;
  TemplateFlags templates;
  ReasoningFlags reasoning;
  std::optional<std::string> input, output;
  std::optional<int64_t> n_parallel;
  bool resume = false, raw = false;

  void add(Flags& flags) {
    model.add(flags);
    overrides.add(flags);
    flags.value("-i,--input", input, "FILE", "Lines of JSON; without it they are read from standard input");
    flags.value("-o,--output", output, "FILE", "Where answers are written, a line each; without it on standard output");
    flags.on("--resume", resume, "Goes on with an output that is there: skips the lines that it answers");
    flags.value(
        "-np,--parallel", n_parallel, "N",
        "Answers at a time, each with -c positions (32, or fewer where memory is short). Never changes a result");
    flags.on("--no-chat-template", raw, "Gives the model each prompt as raw text; control tokens in it are tokens");
    sampling.add(flags);
    templates.add(flags);
    reasoning.add(flags);
    runtime.add(flags);
    for (const char* flag : {"-sys", "-sysf", "--chat-template", "--chat-template-file"})
      flags.exclusive({"--no-chat-template", flag});
  }
};

// The output file, opened before the work. Its end is where what was whole ends; without --resume what was in it stays
// until begin().
class AnswerFile {
 public:
  AnswerFile(const std::optional<std::string>& path, bool resume) {
    if (!path || *path == "-") return;
    path_ = *path;
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd_ < 0) fail();
    is_old_ = !resume;
    if (!resume) return;
    std::ifstream in(path_, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    try {
      found_ = read_batch_output(text);
    } catch (const Error& e) {
      throw Error(e.code, fmt::format("{}: {}", path_, e.what()));
    }
    if (found_.n_bytes_whole < static_cast<int64_t>(text.size()) && ::ftruncate(fd_, found_.n_bytes_whole) != 0) fail();
    if (::lseek(fd_, 0, SEEK_END) < 0) fail();
  }
  ~AnswerFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  AnswerFile(const AnswerFile&) = delete;
  AnswerFile& operator=(const AnswerFile&) = delete;

  const BatchOutput& found() const { return found_; }
  void begin() const {
    if (is_old_ && ::ftruncate(fd_, 0) != 0 && errno != EINVAL) fail();  // a pipe or a device has no length to cut
  }
  bool gone() const { return out_.gone(); }
  void write(std::string_view text) {
    if (fd_ < 0) return out_.write(text);
    while (!text.empty()) {
      const ssize_t n = ::write(fd_, text.data(), text.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail();
      text.remove_prefix(static_cast<size_t>(n));
    }
  }

 private:
  [[noreturn]] void fail() const { throw Error(Errc::io, fmt::format("{}: {}", path_, std::strerror(errno))); }

  std::string path_;
  int fd_ = -1;
  bool is_old_ = false;
  BatchOutput found_;
  Output out_;
};

class Lines {
 public:
  explicit Lines(const std::optional<std::string>& path) {
    if (!path || *path == "-") return;
    file_.open(*path, std::ios::binary);
    if (!file_) throw Error(Errc::io, fmt::format("{}: {}", *path, std::strerror(errno)));
    n_lines_ = std::count(std::istreambuf_iterator<char>(file_), {}, '\n');
    file_.clear();
    file_.seekg(0);
  }
  bool next(std::string& line) {
    return static_cast<bool>(std::getline(file_.is_open() ? static_cast<std::istream&>(file_) : std::cin, line));
  }
  int64_t n_lines() const { return n_lines_; }  // 0: not known

 private:
  std::ifstream file_;
  int64_t n_lines_ = 0;
};

// As many sequences as asked for, or as memory has room for.
std::unique_ptr<Scheduler> make_batch_scheduler(const std::shared_ptr<const Model>& model, SchedulerOptions options,
                                                std::optional<int64_t> n_parallel) {
  options.gap_ms_max = 1e9;  // nobody waits for the next token of an answer
  for (int n = static_cast<int>(n_parallel.value_or(kBatchParallel));; n /= 2) {
    options.context.n_sequences = n;
    options.context.n_ubatch = std::max<int64_t>(options.context.n_ubatch, n);
    try {
      return std::make_unique<Scheduler>(model, options);
    } catch (const Error& e) {
      if (e.code != Errc::out_of_memory || n_parallel || n == 1) throw;
    }
  }
}

BatchOptions batch_options(const BatchFlags& f, const Model& model, const std::string& template_text,
                           const BatchOutput& found) {
  BatchOptions options;
  options.defaults = f.sampling.options(model);
  const bool has_template = !template_text.empty() || !model.chat_template_source().empty();
  if (!f.raw && has_template) options.chat_template = require_chat_template(model, template_text);
  options.system = f.templates.system_message();
  if (options.system && !options.chat_template)
    throw UsageError("-sys needs a chat template, and the model has none: --chat-template FILE gives one");
  options.variables_json = f.reasoning.variables();
  const ReasoningOptions reasoning = f.reasoning.options(model, template_text, f.raw);
  options.reasoning = reasoning.marks;
  options.n_reasoning_max = reasoning.n_max;
  options.created_unix = static_cast<int64_t>(std::time(nullptr));
  options.done = found.keys;
  return options;
}

void summarise(const BatchCounts& counts, const BatchOutput& found, double seconds) {
  const int64_t n_failed = counts.n_failed + found.n_failed;
  notice(fmt::format(
      "{}{}{}; {} tokens of prompts, {} of answers in {:.1f} s{}", count_of(counts.n_lines, "line"),
      counts.n_skipped > 0 ? fmt::format(", {} answered before", counts.n_skipped) : "",
      n_failed > 0 ? fmt::format(", {} of them wrong: their answers say why", n_failed) : "", counts.n_prompt_tokens,
      counts.n_answer_tokens, seconds,
      seconds > 0 ? fmt::format(", {:.1f} tokens/s", static_cast<double>(counts.n_answer_tokens) / seconds) : ""));
}

}  // namespace

int batch_command(const Arguments& arguments) {
  Flags flags("batch",
              "Answers many prompts together: a line of JSON for each in, a line for each out, in their order. Each "
              "answer has the bits that "
              "`assay run` gives it alone.",
              "  assay batch model.gguf -i questions.jsonl -o answers.jsonl\n"
              "  assay batch model.gguf -i questions.jsonl -o answers.jsonl --resume      goes on where it was ended\n"
              "  printf '{\"prompt\": \"Hi\", \"max_tokens\": 20}\\n' | assay batch model.gguf --temp 0\n");
  BatchFlags f;
  f.add(flags);
  if (!flags.parse(arguments)) {
    Output().write(flags.help());
    return 0;
  }
  if (f.resume && (!f.output || *f.output == "-")) throw UsageError("--resume needs -o FILE, the output to go on with");
  if (f.n_parallel && (*f.n_parallel < 1 || *f.n_parallel > 1024))
    throw UsageError(fmt::format("-np {}: needs 1 to 1024", *f.n_parallel));
  const std::string template_text = f.templates.template_text();
  const std::string path = f.model.path();
  SchedulerOptions scheduling;
  scheduling.context = f.runtime.options();
  Lines lines(f.input);
  const std::string file = f.model.resolved();
  require_other_file(f.output, {f.input, file});
  const auto model = f.overrides.load(file);
  AnswerFile out(f.output, f.resume);
  const BatchOptions options = batch_options(f, *model, template_text, out.found());
  const std::unique_ptr<Scheduler> scheduler = make_batch_scheduler(model, scheduling, f.n_parallel);
  out.begin();
  catch_interrupts();
  Progress progress("answering", "lines");
  int64_t n_written = static_cast<int64_t>(out.found().keys.size());
  const auto start = std::chrono::steady_clock::now();
  const BatchCounts counts = run_batch(
      *scheduler, options, [&](std::string& line) { return lines.next(line); },
      [&](std::string_view line) {
        out.write(line);
        n_written += 1;
        if (lines.n_lines() > 0) progress.update(n_written, std::max(n_written, lines.n_lines()));
      },
      [&] { return interrupted() != 0 || out.gone(); });
  summarise(counts, out.found(), std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  if (interrupted() != 0) {
    if (f.output) notice("interrupted: the same command with --resume goes on");
    return exit_code_of_signal(interrupted());
  }
  return counts.n_failed + out.found().n_failed > 0 ? 1 : 0;
}

}  // namespace assay::cli
