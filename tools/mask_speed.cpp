// What masks cost answers: tokens a second, free and held to a schema, alone and beside others. Alone: the median of
// five.
//   mask_speed MODEL cpu|cuda N    answers of N tokens
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "assay/constraint.h"
#include "assay/context.h"
#include "assay/generate.h"
#include "assay/model.h"
#include "assay/scheduler.h"

namespace {

// No answer to it is whole before its thousandth name.
constexpr const char* kSchema =
    R"({"type": "array", "minItems": 1000, "maxItems": 2000, "items": {"type": "object", "properties": {
        "name": {"type": "string", "minLength": 4, "maxLength": 40}, "kind": {"enum": ["red", "green", "yellow"]},
        "n": {"type": "integer"}}, "required": ["name", "kind", "n"]}})";

struct Speeds {
  std::shared_ptr<const assay::Model> model;
  assay::ContextOptions context;
  std::shared_ptr<const assay::Constraint> constraint;
  std::shared_ptr<const assay::TokenTree> tree;
  int64_t n = 0;

  assay::Request request(uint64_t i, bool is_held, bool is_greedy) const {
    assay::Request r;
    for (uint64_t t = 0; t < 16; ++t) r.prompt.push_back(static_cast<assay::TokenId>((i * 131 + t * 17) % 1000));
    r.generate.n_predict = n;
    r.generate.request = i;
    r.generate.stop_at_end = false;
    if (is_greedy) r.generate.sampling.temperature = 0;
    if (is_held) r.generate.mask = assay::constrain(constraint, tree);
    return r;
  }
  void alone(const std::string& what, bool is_held, bool is_greedy) const {
    assay::Context own(model, context);
    assay::Generator generator(own);
    std::vector<double> all;
    for (uint64_t i = 0; i < 6; ++i) {
      const assay::Request r = request(0, is_held, is_greedy);
      const double speed = generator.run(r.prompt, r.generate).decode.tokens_per_second();
      if (i > 0) all.push_back(speed);
    }
    std::sort(all.begin(), all.end());
    fmt::print("{:44} {:8.1f}\n", what, all[all.size() / 2]);
  }
  // The median speed of those of the requests that are free, and of those that are held.
  void together(uint64_t n_free, uint64_t n_held) const {
    assay::SchedulerOptions options;
    options.context = context;
    options.context.n_sequences = static_cast<int>(n_free + n_held);
    options.caches_prompts = false;
    assay::Scheduler scheduler(model, options);
    std::vector<double> speeds[2];
    for (int round = 0; round < 4; ++round) {
      for (uint64_t i = 0; i < n_free + n_held; ++i) {
        const bool is_held = i >= n_free;
        scheduler.submit(request(i, is_held, false),
                         [&speeds, is_held, round](assay::RequestId, const assay::RequestEvent& event) {
                           const auto* finished = std::get_if<assay::RequestFinished>(&event);
                           if (finished != nullptr && round > 0)
                             speeds[is_held ? 1 : 0].push_back(finished->decode.tokens_per_second());
                           if (const auto* failed = std::get_if<assay::RequestFailed>(&event))
                             fmt::print("failed: {}\n", failed->error.what());
                         });
      }
      while (scheduler.step()) {
      }
    }
    std::string line = fmt::format("{} free and {} held together, each", n_free, n_held);
    fmt::print("{:44}", line);
    for (auto& all : speeds) {
      std::sort(all.begin(), all.end());
      fmt::print(" {:8.1f}", all.empty() ? 0.0 : all[all.size() / 2]);
    }
    fmt::print("\n");
  }
};

}  // namespace

int main(int argc, char** argv) {
  const std::string backend = argc == 4 ? argv[2] : "";
  if (backend != "cpu" && backend != "cuda") {
    fmt::print(stderr, "usage: mask_speed MODEL cpu|cuda N\n");
    return 2;
  }
  Speeds speeds;
  speeds.model = assay::Model::load(argv[1], {});
  speeds.n = std::stoll(argv[3]);
  speeds.context.backend = backend == "cuda" ? assay::Backend::cuda : assay::Backend::cpu;
  speeds.context.n_ctx = speeds.n + 64;
  speeds.constraint = assay::Constraint::from_schema(kSchema);
  speeds.tree = std::make_shared<const assay::TokenTree>(*speeds.model->tokenizer(), speeds.model->vocab_size());
  fmt::print("{} tokens in the vocabulary; tokens/s\n", speeds.model->vocab_size());
  speeds.alone("free, greedy", false, true);
  speeds.alone("held, greedy", true, true);
  speeds.alone("free, sampled", false, false);
  speeds.alone("held, sampled", true, false);
  speeds.together(8, 0);
  speeds.together(7, 1);
  speeds.together(4, 4);
  speeds.together(0, 8);
}
