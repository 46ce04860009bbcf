// What the files dictionary_<kind>.cpp share. Each holds a table of entries; an entry looks at the
// failed op and offers candidates: ways to compute the op wrongly, each with a text that says what
// is done and what would be right. dictionary.cpp runs the candidates and compares them with what
// was observed. Internal to the dictionary.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/thread_pool.h"
#include "bounds/op_checker.h"
#include "ops/attention/attention.h"
#include "ops/plan/plan.h"

namespace assay::faults::dictionary {

using bounds::Declared, bounds::FailedOp;

// The part of an op's output that is computed: big products are first tried on a few tokens and
// some hundred outputs.
struct Sample {
  std::vector<int64_t> rows, columns;  // ascending
};

using RowFunction =
    std::function<void(int64_t row, double* y)>;  // a whole row of the output; called on several threads
using SampleFunction = std::function<void(const Sample& sample, double* y)>;  // [rows, columns]

// The right output and its bounds: of the tightest test that applies to the source.
struct Sharpest {
  std::span<const double> y, bound;
};
Sharpest sharpest(const FailedOp& failed);

struct Candidate {
  std::string id, text, faults;
  SampleFunction compute;
};

struct KeyValues;
// What many candidates of a case share, made when it is first asked for.
struct Shared {
  std::shared_ptr<const std::vector<double>> inputs;        // of a linear op, as declared
  std::map<int, std::shared_ptr<const KeyValues>> history;  // of attention, as the declared cache gives it back
};

// The failed op, with what entries ask of it. Views: the failed op and the plan must outlive it and
// all candidates.
struct Case {
  const ops::Plan& plan;
  const FailedOp& failed;
  const Declared& declared;
  base::ThreadPool& pool;
  std::shared_ptr<Shared> shared = std::make_shared<Shared>();

  const ops::Op& op() const { return plan.ops[static_cast<size_t>(failed.i_op)]; }
  template <class Record>
  const Record& record() const {
    return op().get<Record>();
  }
  const double* a(int64_t row) const { return failed.a.data() + row * failed.a_width; }
  const double* b(int64_t row) const { return failed.b.data() + row * failed.b_width; }
  const double* right(int64_t row) const;  // what it should have been
  int64_t position(int64_t row) const { return failed.positions[static_cast<size_t>(row)]; }
  int sequence(int64_t row) const { return failed.sequences.empty() ? 0 : failed.sequences[static_cast<size_t>(row)]; }
  int64_t batch_start(int64_t row) const;  // the first position of the row's sequence in the batch that failed

  const tensor::TensorView& view(ops::WeightId id) const { return plan.weights[static_cast<size_t>(id)].view; }
  std::vector<double> vector(ops::WeightId id) const;  // norm weights and biases
  const std::string& weight_name(ops::WeightId id) const { return plan.weights[static_cast<size_t>(id)].name; }
  const ops::Attention* attention() const;          // of the op's layer, or of the first; nullptr: the plan has none
  const ops::Op* writer(ops::ValueId value) const;  // the op that writes a value; nullptr: none
};

SampleFunction by_rows(const Case& c, RowFunction compute);

// Collects what the entries offer.
class Sink {
 public:
  explicit Sink(const Case& c) : case_(c) {}
  void begin(std::string_view id, std::string_view faults) { id_ = id, faults_ = faults; }
  void add(std::string text, SampleFunction compute) {
    candidates_.push_back({id_, std::move(text), faults_, std::move(compute)});
  }
  void add_rows(std::string text, RowFunction compute) { add(std::move(text), by_rows(case_, std::move(compute))); }
  std::vector<Candidate> take() { return std::exchange(candidates_, {}); }

 private:
  const Case& case_;
  std::string id_, faults_;
  std::vector<Candidate> candidates_;
};

struct Entry {
  const char* id;
  const char* faults;  // rows of the catalogue that look so
  void (*offer)(const Case& c, Sink& out);
};

// Embed, RmsNorm, ... : one table each; `any` applies to all ops.
std::span<const Entry> embed_entries() noexcept;
std::span<const Entry> norm_entries() noexcept;
std::span<const Entry> linear_entries() noexcept;
std::span<const Entry> linear_weight_entries() noexcept;
std::span<const Entry> kernel_entries() noexcept;
std::span<const Entry> rope_entries() noexcept;
std::span<const Entry> attention_entries() noexcept;
std::span<const Entry> attention_cache_entries() noexcept;
std::span<const Entry> gate_entries() noexcept;
std::span<const Entry> add_entries() noexcept;
std::span<const Entry> layer_norm_entries() noexcept;
std::span<const Entry> route_entries() noexcept;
std::span<const Entry> expert_linear_entries() noexcept;
std::span<const Entry> expert_sum_entries() noexcept;
std::span<const Entry> expert_scale_entries() noexcept;
std::span<const Entry> scale_entries() noexcept;
std::span<const Entry> scale_by_position_entries() noexcept;
std::span<const Entry> softcap_entries() noexcept;
std::span<const Entry> activate_entries() noexcept;
std::span<const Entry> clamped_gate_entries() noexcept;
std::span<const Entry> slice_entries() noexcept;
std::span<const Entry> conv_entries() noexcept;
std::span<const Entry> choose_keys_entries() noexcept;
std::span<const Entry> sparse_attention_entries() noexcept;
std::span<const Entry> linear_input_entries() noexcept;
std::span<const Entry> any_entries() noexcept;

// The tables that the failed op is looked up in, the likeliest first.
std::vector<std::span<const Entry>> tables_of(const Case& c);
// The candidates of one table entry after another: they may hold much memory, so nobody keeps all.
void for_each_entry(const Case& c, const std::function<void(std::vector<Candidate>)>& take);

// Rounded to a narrower type and back.
double as_f16(double x) noexcept;
double as_bf16(double x) noexcept;

}  // namespace assay::faults::dictionary
