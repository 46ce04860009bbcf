// See dump_source.h.
#include "verify/dump_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "assay/error.h"
#include "base/shown.h"
#include "ops/attention/kv_store.h"
#include "ops/plan/op_values.h"
#include "ops/rows/select_outputs.h"

namespace assay::verify {
namespace {

using Kind = trace::DumpReader::Kind;

std::map<std::string, size_t, std::less<>> op_indices(const ops::Plan& plan) {
  std::map<std::string, size_t, std::less<>> indices;
  for (size_t i = 0; i < plan.ops.size(); ++i) indices.emplace(plan.ops[i].name, i);
  return indices;
}

void require_equal(const std::string& path, std::string_view what, int64_t needed, int64_t found) {
  if (needed == found) return;
  throw Error(Errc::bad_request,
              fmt::format("{}: the dump is of another model: {} needs to be {}, found {}", path, what, needed, found));
}

// The rows of a domain in a batch; of all its tokens, or of those whose logits were wanted.
struct BatchRows {
  int64_t as_planned, of_all_tokens;
};
BatchRows rows_in(const ops::RowDomain& domain, const trace::DumpBatch& batch) {
  const auto n_tokens = static_cast<int64_t>(batch.tokens.size()),
             n_outputs = std::count(batch.outputs.begin(), batch.outputs.end(), uint8_t{1});
  return {domain.n_rows(n_tokens, n_outputs), domain.n_rows(n_tokens, n_tokens)};
}

// The rows and width that the plan gives an op's announced value.
void check_shape(const std::string& path, const ops::Plan& plan, const ops::Op& op, const trace::DumpBatch& batch,
                 const trace::DumpTensor& tensor) {
  const ops::Value& value = plan.values[static_cast<size_t>(ops::announced_value(op))];
  require_equal(path, fmt::format("the width of {}", op.name), value.width, tensor.width);
  const BatchRows rows = rows_in(value.domain, batch);
  if (tensor.n_rows == rows.of_all_tokens) return;  // an engine that computes all of them
  require_equal(path, fmt::format("the number of rows of {}", op.name), rows.as_planned, tensor.n_rows);
}

class Examiner {
 public:
  Examiner(DumpSource& source, const ops::Plan& plan) : source_(source), plan_(plan), indices_(op_indices(plan)) {}

  void take(trace::DumpBatch batch) {
    for (int32_t& sequence : batch.sequences) {
      const auto known = numbers_.emplace(sequence, static_cast<int32_t>(numbers_.size())).first;
      sequence = known->second;
      source_.n_ctx = std::max(source_.n_ctx, ++lengths_[sequence]);
    }
    source_.n_sequences = static_cast<int>(numbers_.size());
    source_.n_batch_max = std::max(source_.n_batch_max, static_cast<int64_t>(batch.tokens.size()));
    source_.batches.push_back(std::move(batch));
    source_.ops_present.emplace_back(plan_.ops.size(), false);
  }

  void take(const trace::DumpTensor& tensor) {
    const auto found = indices_.find(tensor.op);
    if (found == indices_.end()) {
      throw Error(Errc::bad_request, fmt::format("{}: the dump is of another model: {} is no op of this one",
                                                 source_.path, base::shown(tensor.op)));
    }
    std::vector<bool>& present = source_.ops_present.back();
    if (present[found->second]) {
      throw Error(Errc::bad_request, fmt::format("{}: {} needs to be once in a batch, found it twice in batch {}",
                                                 source_.path, tensor.op, source_.batches.size() - 1));
    }
    present[found->second] = true;
    ever_.insert(found->second);
    check_shape(source_.path, plan_, plan_.ops[found->second], source_.batches.back(), tensor);
  }

  void finish() {
    if (source_.batches.empty() || ever_.empty()) {
      throw Error(Errc::bad_request, fmt::format("{}: needs at least one batch with values, found none", source_.path));
    }
    for (size_t i = 0; i < plan_.ops.size(); ++i) {
      const ops::Op& op = plan_.ops[i];
      if (!ops::passes_on(op) && !ever_.contains(i)) source_.lacking.push_back(op.name);
    }
  }

 private:
  DumpSource& source_;
  const ops::Plan& plan_;
  std::map<std::string, size_t, std::less<>> indices_;
  std::map<int32_t, int32_t> numbers_;  // of the file's sequences
  std::map<int32_t, int64_t> lengths_;
  std::set<size_t> ever_;  // ops of any batch
};

// Of an op after the choice of outputs, the rows of those outputs, where the source computed all.
void keep_outputs(trace::DumpTensor& tensor, const ops::RowDomain& domain, const trace::DumpBatch& batch) {
  const auto n_ranks = static_cast<size_t>(domain.n_ranks), width = static_cast<size_t>(tensor.width) * n_ranks;
  size_t n_kept = 0;
  for (size_t i = 0; i < batch.outputs.size(); ++i) {
    if (batch.outputs[i] == 0) continue;
    std::copy_n(tensor.values.begin() + static_cast<std::ptrdiff_t>(i * width), width,
                tensor.values.begin() + static_cast<std::ptrdiff_t>(n_kept * width));
    ++n_kept;
  }
  tensor.values.resize(n_kept * width);
  tensor.n_rows = static_cast<int64_t>(n_kept * n_ranks);
}

// Hands a batch's tensors on in the plan's order; one that comes early is held until those before
// it were there.
class Sorter {
 public:
  Sorter(const DumpSource& source, const ops::Plan& plan, const DumpSink& sink)
      : source_(source), plan_(plan), sink_(sink), indices_(op_indices(plan)) {}

  void begin(size_t i_batch) {
    i_batch_ = i_batch;
    next_ = 0;
  }

  void take(trace::DumpTensor& tensor) {
    const auto found = indices_.find(tensor.op);
    if (found == indices_.end() || !has(found->second)) changed();
    const trace::DumpBatch& batch = source_.batches[i_batch_];
    const ops::Op& op = plan_.ops[found->second];
    check_shape(source_.path, plan_, op, batch,
                tensor);  // the file may not be what it was when it was examined
    const ops::Value& value = plan_.values[static_cast<size_t>(ops::announced_value(op))];
    if (value.domain.is_of_outputs() && tensor.n_rows == rows_in(value.domain, batch).of_all_tokens)
      keep_outputs(tensor, value.domain, batch);
    held_.insert_or_assign(found->second, std::move(tensor));
    hand_on();
  }

  void end() {
    if (!held_.empty()) changed();
  }

  [[noreturn]] void changed() const {
    throw Error(Errc::bad_file, fmt::format("{}: the dump changed while it was read", source_.path));
  }

 private:
  bool has(size_t i_op) const { return source_.ops_present[i_batch_][i_op]; }

  void hand_on() {
    for (; next_ < plan_.ops.size(); ++next_) {
      if (!has(next_)) continue;
      const auto ready = held_.find(next_);
      if (ready == held_.end()) return;
      sink_.tensor(plan_.ops[next_], ready->second);
      held_.erase(ready);
    }
  }

  const DumpSource& source_;
  const ops::Plan& plan_;
  const DumpSink& sink_;
  std::map<std::string, size_t, std::less<>> indices_;
  std::map<size_t, trace::DumpTensor> held_;  // by the op's place in the plan
  size_t i_batch_ = 0;
  size_t next_ = 0;  // the op that is due
};

}  // namespace

DumpSource examine_dump(const std::string& path, const ops::Plan& plan) {
  DumpSource source;
  source.path = path;
  trace::DumpReader reader(path);
  source.header = reader.header();
  require_equal(path, "its number of layers", static_cast<int64_t>(ops::n_layers(plan)), source.header.n_layers);
  require_equal(path, "d_model", plan.d_model, source.header.d_model);
  require_equal(path, "vocab_size", plan.vocab_size, source.header.vocab_size);
  Examiner examiner(source, plan);
  for (Kind kind = reader.next(); kind != Kind::end; kind = reader.next()) {
    kind == Kind::batch ? examiner.take(reader.batch()) : examiner.take(reader.tensor());
  }
  examiner.finish();
  return source;
}

void replay_dump(const DumpSource& source, const ops::Plan& plan, const DumpSink& sink) {
  trace::DumpReader reader(source.path);
  Sorter sorter(source, plan, sink);
  size_t n_begun = 0;
  const auto end_batch = [&] {
    if (n_begun == 0) return;
    sorter.end();
    sink.end();
    if (sink.progress) sink.progress(static_cast<double>(n_begun) / static_cast<double>(source.batches.size()));
  };
  for (Kind kind = reader.next(); kind != Kind::end; kind = reader.next()) {
    if (kind == Kind::tensor) {
      sorter.take(reader.tensor());
      continue;
    }
    end_batch();
    if (n_begun == source.batches.size()) sorter.changed();
    sorter.begin(n_begun);
    const trace::DumpBatch& batch = source.batches[n_begun++];
    sink.begin({batch.tokens, batch.positions, batch.sequences, batch.outputs});
  }
  end_batch();
}

}  // namespace assay::verify
