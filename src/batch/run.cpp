// Lines in, lines out (assay/batch.h).
#include <fmt/format.h>

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "assay/batch.h"
#include "assay/error.h"
#include "assay/session.h"
#include "batch/answer_line.h"
#include "batch/line.h"

namespace assay {
namespace {

class BatchRun {
 public:
  BatchRun(Scheduler& scheduler, const BatchOptions& options, const LineSink& write)
      : scheduler_(scheduler), options_(options),
        write_(write), facts_{&scheduler.context().model(), options.created_unix} {}

  BatchCounts run(const LineSource& next, const std::function<bool()>& cancelled) {
    const auto n_parallel = static_cast<size_t>(scheduler_.context().options().n_sequences);
    std::string text;
    bool more = true;
    while (more || !open_.empty()) {
      if (cancelled && cancelled()) {
        drop_all();
        break;
      }
      while (more && open_.size() < n_parallel) {
        more = next(text);
        if (more) take(text);
      }
      if (!open_.empty()) scheduler_.step();
      flush();
      if (failure_) {
        drop_all();
        throw Error(*failure_);
      }
    }
    flush();
    return counts_;
  }

 private:
  struct Open {  // a request at work
    batch::Line line;
    int64_t place = 0;
    bool begins_inside = false;  // a block of reasoning
    Generation generation;
  };

  void take(const std::string& text) {
    ++n_read_;
    if (text.find_first_not_of(" \t\r") == std::string::npos) return;
    counts_.n_lines += 1;
    batch::Line line = batch::parse_line(text, n_read_, options_.defaults);
    if (options_.done.contains(line.key())) {
      counts_.n_skipped += 1;
      return;
    }
    const int64_t place = n_places_++;
    if (line.problem.empty() && !keys_.insert(line.key()).second) {
      line.problem = fmt::format("line {}: id: a line before has the same, {}", line.number, line.id_json);
    }
    if (!line.problem.empty()) return refuse(line, place, line.problem);
    try {
      submit(line, place);
    } catch (const Error& e) {
      if (e.code != Errc::bad_request) throw;
      refuse(line, place, fmt::format("line {}: {}", line.number, e.what()));
    }
  }

  void submit(const batch::Line& line, int64_t place) {
    Request request;
    request.prompt = prompt_of(line);
    request.generate = line.options;
    auto open = std::make_shared<Open>(Open{line, place, false, {}});
    const auto& tokenizer = facts_.model->tokenizer();
    if (options_.reasoning && tokenizer) {
      open->begins_inside = opens_reasoning(*tokenizer, *options_.reasoning, request.prompt);
      show_marks(*tokenizer, *options_.reasoning, request.generate);
      if (options_.n_reasoning_max >= 0) {
        request.generate.mask =
            reasoning_budget(tokenizer, *options_.reasoning, open->begins_inside, options_.n_reasoning_max);
      }
    }
    const auto id = scheduler_.submit(std::move(request), [this, open](RequestId of, const RequestEvent& event) {
      std::visit([&](const auto& e) { on_event(of, *open, e); }, event);
    });
    if (!id) throw Error(Errc::unsupported, "a batch needs a scheduler of its own: the queue of this one is full");
    open_.insert(*id);
  }

  std::vector<TokenId> prompt_of(const batch::Line& line) const {
    const Model& model = *facts_.model;
    if (line.prompt)
      return prompt_tokens(model, options_.chat_template.get(), options_.system, *line.prompt, options_.variables_json);
    if (options_.chat_template == nullptr) {
      throw Error(Errc::bad_request, "messages: need a chat template, and there is none; prompt takes raw text");
    }
    std::vector<Message> messages = line.messages;
    if (options_.system && messages.front().role != "system")
      messages.insert(messages.begin(), {"system", *options_.system});
    return chat_prompt(model, *options_.chat_template, messages, options_.variables_json);
  }

  void on_event(RequestId, Open& open, const RequestStarted& e) { open.generation.n_prompt = e.n_prompt; }
  void on_event(RequestId, Open& open, const RequestToken& e) {
    open.generation.ids.push_back(e.id);
    open.generation.text += e.text;
    if (e.logprobs) open.generation.logprobs.push_back(*e.logprobs);
  }
  void on_event(RequestId id, Open& open, const RequestFinished& e) {
    open_.erase(id);
    if (e.reason == FinishReason::cancelled) return;
    Generation& g = open.generation;
    g.text += e.text;
    g.finish_reason = e.reason;
    if (options_.reasoning) {
      ReasoningSplitter::Part parts = split_reasoning(*options_.reasoning, open.begins_inside, g.text);
      g.text = std::move(parts.text);
      g.reasoning = std::move(parts.reasoning);
    }
    counts_.n_prompt_tokens += g.n_prompt;
    counts_.n_answer_tokens += static_cast<int64_t>(g.ids.size());
    put(open.place, batch::answer_line(open.line, g, facts_));
  }
  void on_event(RequestId id, Open& open, const RequestFailed& e) {
    open_.erase(id);
    if (e.error.code == Errc::bad_request) {
      refuse(open.line, open.place, fmt::format("line {}: {}", open.line.number, e.error.what()));
    } else if (!failure_) {
      failure_ = e.error;
    }
  }

  void refuse(const batch::Line& line, int64_t place, std::string_view problem) {
    counts_.n_failed += 1;
    put(place, batch::error_line(line, problem));
  }

  void put(int64_t place, std::string text) { waiting_.emplace(place, std::move(text)); }

  // Writes what has everything before it. Not from a scheduler's sink, which must not throw.
  void flush() {
    for (auto first = waiting_.begin(); first != waiting_.end() && first->first == n_written_;
         first = waiting_.erase(first)) {
      write_(first->second);
      ++n_written_;
    }
  }

  void drop_all() {
    counts_.cancelled = true;
    for (const RequestId id : open_) scheduler_.cancel(id);
    while (!open_.empty() && scheduler_.step()) {
    }
  }

  Scheduler& scheduler_;
  const BatchOptions& options_;
  const LineSink& write_;
  batch::AnswerFacts facts_;
  BatchCounts counts_;
  int64_t n_read_ = 0;    // lines, empty ones among them
  int64_t n_places_ = 0;  // in the output
  int64_t n_written_ = 0;
  std::set<std::string> keys_;
  std::set<RequestId> open_;
  std::map<int64_t, std::string> waiting_;  // by place
  std::optional<Error> failure_;
};

}  // namespace

BatchCounts run_batch(Scheduler& scheduler, const BatchOptions& options, const LineSource& next, const LineSink& write,
                      const std::function<bool()>& cancelled) {
  return BatchRun(scheduler, options, write).run(next, cancelled);
}

}  // namespace assay
