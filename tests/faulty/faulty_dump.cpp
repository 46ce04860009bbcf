// faulty_dump MODEL OUT.dump FAULT [PROMPT]: the dump of a run of the faulty engine, for the worked example of
// docs/verify.md and for looking at what `assay verify --against` says of an engine with a known fault. FAULT is an id
// of the catalogue ("C21"), or "none".
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "assay/error.h"
#include "engine/model_state.h"
#include "faulty/catalogue.h"
#include "faulty/faulty_executor.h"
#include "trace/dump.h"

namespace assay::faults {
namespace {

class DumpingObserver final : public ops::OpObserver {
 public:
  explicit DumpingObserver(trace::DumpWriter& writer) : writer_(writer) {}
  bool wants(const ops::Op&) override { return true; }
  void on_op(const ops::Op& op, int64_t n_rows, int64_t width, std::span<const double> values) override {
    writer_.add(op.name, n_rows, width, values, false);
  }

 private:
  trace::DumpWriter& writer_;
};

EngineOptions options_of(const std::string& id) {
  EngineOptions options;
  if (id == "none") return options;
  for (const Row& row : catalogue()) {
    if (row.id != id) continue;
    if (row.fault == Fault::none)
      throw Error(Errc::bad_request, fmt::format("{} is no fault of the engine that runs the ops", id));
    options.fault = row.fault;
    options.activation_bits = row.activation_bits;
    options.cache = row.cache;
    return options;
  }
  throw Error(Errc::bad_request, fmt::format("the catalogue has no row {}", id));
}

void write_dump(const std::string& path, const std::string& dump, const std::string& fault, const std::string& prompt) {
  const auto model = Model::load(path);
  const ops::Plan& plan = model->state().built.plan;
  const std::vector<TokenId> ids = model->tokenizer()->encode(prompt);
  const EngineOptions options = options_of(fault);
  trace::DumpHeader header;
  header.engine = "an engine of tests/faulty, fault " + fault;
  header.model = std::string(model->name());
  header.architecture = std::string(model->architecture());
  header.text = prompt;
  header.n_layers = model->n_layers();
  header.d_model = plan.d_model;
  header.vocab_size = plan.vocab_size;
  header.declared = declared_of(options);
  trace::DumpWriter writer(dump, header);
  DumpingObserver observer(writer);
  const auto executor = make_faulty_executor(plan, options, static_cast<int64_t>(ids.size()), 1);
  // The prompt but for its last tokens in one run, those one by one, as an engine that decodes.
  const size_t n_prefill = ids.size() > 4 ? ids.size() - 3 : ids.size();
  for (size_t begin = 0; begin < ids.size();) {
    const size_t n = begin == 0 ? n_prefill : 1;
    std::vector<int32_t> positions;
    for (size_t i = begin; i < begin + n; ++i) positions.push_back(static_cast<int32_t>(i));
    const std::vector<int32_t> sequences(n, 0);
    const std::vector<uint8_t> outputs(n, 1);
    const ops::Batch batch{std::span(ids).subspan(begin, n), positions, sequences, outputs, {.observer = &observer}};
    writer.begin_batch(batch);
    executor->run(batch);
    begin += n;
  }
  writer.finish();
}

}  // namespace
}  // namespace assay::faults

int main(int n_arguments, char** arguments) {
  if (n_arguments < 4 || n_arguments > 5) {
    fmt::print(stderr, "usage: faulty_dump MODEL OUT.dump FAULT [PROMPT]\n");
    return 2;
  }
  try {
    assay::faults::write_dump(arguments[1], arguments[2], arguments[3],
                              n_arguments == 5 ? arguments[4] : "The river rises in the hills");
  } catch (const assay::Error& error) {
    fmt::print(stderr, "faulty_dump: {}\n", error.what());
    return 1;
  }
  return 0;
}
