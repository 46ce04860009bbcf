// What one op of a Plan is: a record of any type that says everything about the op that code walking a plan asks. An op
// is one set of files in this room (ops/rows/add.h and ops/rows/add.cpp, say); nobody else switches over all ops.
//
// A record type R is an aggregate of ids and numbers, with these members:
//   static constexpr const char* kKind;             "rms_norm": what traces and reports call it
//   static constexpr Role kRole;                    how executors have to run it
//   void fields(FieldVisitor& f);                   names each id it holds, by its role, in the order in which they are read
//   void check(const CheckScope&) const;            shapes and types against what the op can do; Error(unsupported) (ops/plan/check_scope.h)
//   void shard(ShardScope&) const;                  the same op in each shard of a plan (ops/plan/shard_scope.h)
//   OpWork work(const WorkScope&) const;            bytes and multiply-adds (ops/plan/work.h)
// that may be left out
//   static constexpr bool kRowsAlike = false;       its values have not all the same rows (ops/plan/row_domain.h): its check says which; else all have
// those of Role::row also
//   void run(const HostRows<float>&, int64_t begin, int64_t end) const noexcept;    the scalar reference: rows begin .. end - 1 (ops/plan/host_rows.h)
//   void run(const HostRows<double>&, int64_t begin, int64_t end) const noexcept;   its formula in float64, for the oracle
//   static constexpr bool kInPlace;                 its output may take the memory of an input of the same width: it reads each run of elements whole
//                                                   before it writes any of them
// those of Role::state
//   void run(const HostRows<float>&, const StateRun<float>&, int64_t begin, int64_t end) const noexcept;    the scalar reference: units begin .. end - 1
//   void run(const HostRows<double>&, const StateRun<double>&, int64_t begin, int64_t end) const noexcept;  of
// consecutive tokens (ops/state/state.h) those of Role::cached
//   void run(const HostRows<float>&, const CachedRun<float>&, int64_t begin, int64_t end) const noexcept;    the scalar reference: rows begin .. end - 1
//   void run(const HostRows<double>&, const CachedRun<double>&, int64_t begin, int64_t end) const noexcept;  of one
//     sequence (ops/plan/cached_run.h)
// The compiler refuses a record that lacks one. A device without a kernel for a row op runs its reference.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

namespace assay::ops {

using ValueId = int32_t;   // index into Plan::values
using WeightId = int32_t;  // index into Plan::weights
using RopeId = int32_t;    // index into Plan::ropes
inline constexpr int32_t kNone = -1;

class CheckScope;
class ShardScope;
class WorkScope;
template <class T>
struct HostRows;
template <class T>
struct StateRun;
template <class T>
struct CachedRun;

// What one op of a run has to do at least (WorkScope: ops/plan/work.h).
struct OpWork {
  int64_t bytes = 0;  // of weights, keys and values that are read
  int64_t multiply_adds = 0;
  bool of_integers = false;  // else of floats
};

// How an op has to be run.
enum class Role {
  row,      // row by row: row i of its output from rows i of its inputs, or from those of the same token where rows are
            // not alike, the token behind it and weights
  product,  // a matrix product: rows of its inputs, split by rows of the weights
  experts,  // a product with the matrices of the experts that each token was routed to
  attention,  // reads the KV cache
  store,      // writes the KV cache, no value
  select,     // rows of its input chosen by the batch
  gather,     // columns of all shards of a model
  state,      // token by token in order, from what it keeps of the tokens before
  cached,  // reads the KV cache in a way of its own: row i of its output from rows i of its inputs and one layer's keys
           // and values
};

// Told the ids that a record holds. What is not overridden is passed over.
class FieldVisitor {
 public:
  virtual ~FieldVisitor() = default;
  virtual void reads(ValueId&) {}
  virtual void writes(ValueId&) {}
  virtual void matrix(WeightId&) {}  // rows in any weight format
  virtual void vector(WeightId&) {}  // wanted as f32 whatever the file has: norms, biases; may be kNone
  virtual void cache_layer(int32_t&) {}
  virtual void state(int32_t&) {}  // index into Plan::states
};

class Record {
 public:
  template <class R>
  requires(!std::is_same_v<std::remove_cvref_t<R>, Record>) Record(R&& record)
      : held_(std::make_unique<Held<std::remove_cvref_t<R>>>(std::forward<R>(record))) {}  // NOLINT: a record is one
  Record(const Record& other) : held_(other.held_->clone()) {}
  Record(Record&&) noexcept = default;
  Record& operator=(const Record& other) {
    held_ = other.held_->clone();
    return *this;
  }
  Record& operator=(Record&&) noexcept = default;
  ~Record() = default;

  template <class R>
  bool is() const noexcept {
    return held_->type() == &kType<R>;
  }
  template <class R>
  const R* as() const noexcept {  // null where it is another
    return is<R>() ? &static_cast<const Held<R>&>(*held_).record : nullptr;
  }
  template <class R>
  R* as() noexcept {
    return is<R>() ? &static_cast<Held<R>&>(*held_).record : nullptr;
  }
  template <class R>
  const R& get() const {
    if (!is<R>()) refuse(R::kKind);
    return *as<R>();
  }
  template <class R>
  R& get() {
    return const_cast<R&>(std::as_const(*this).template get<R>());
  }

  // Throws std::logic_error: another record was meant. Not inline: kernels, built without exceptions, read this header.
  [[noreturn]] void refuse(const char* meant) const;
  const char* kind() const noexcept { return held_->kind(); }
  Role role() const noexcept { return held_->role(); }
  bool in_place() const noexcept { return held_->in_place(); }
  bool rows_alike() const noexcept { return held_->rows_alike(); }
  const void* type() const noexcept { return held_->type(); }  // one address a record type
  template <class R>
  static const void* type_of() noexcept {
    return &kType<R>;
  }
  void fields(FieldVisitor& visitor) { held_->fields(visitor); }
  void fields(FieldVisitor& visitor) const { held_->clone()->fields(visitor); }  // what the visitor changes is lost
  void check(const CheckScope& scope) const { held_->check(scope); }
  void shard(ShardScope& scope) const { held_->shard(scope); }
  OpWork work(const WorkScope& scope) const { return held_->work(scope); }
  void run(const HostRows<float>& rows, int64_t begin, int64_t end) const noexcept { held_->run(rows, begin, end); }
  void run(const HostRows<double>& rows, int64_t begin, int64_t end) const noexcept { held_->run(rows, begin, end); }
  void run(const HostRows<float>& rows, const StateRun<float>& at, int64_t begin, int64_t end) const noexcept {
    held_->run(rows, at, begin, end);
  }
  void run(const HostRows<double>& rows, const StateRun<double>& at, int64_t begin, int64_t end) const noexcept {
    held_->run(rows, at, begin, end);
  }
  void run(const HostRows<float>& rows, const CachedRun<float>& at, int64_t begin, int64_t end) const noexcept {
    held_->run(rows, at, begin, end);
  }
  void run(const HostRows<double>& rows, const CachedRun<double>& at, int64_t begin, int64_t end) const noexcept {
    held_->run(rows, at, begin, end);
  }

 private:
  struct Base {
    virtual ~Base() = default;
    virtual std::unique_ptr<Base> clone() const = 0;
    virtual const void* type() const noexcept = 0;
    virtual const char* kind() const noexcept = 0;
    virtual Role role() const noexcept = 0;
    virtual bool in_place() const noexcept = 0;
    virtual bool rows_alike() const noexcept = 0;
    virtual void fields(FieldVisitor&) = 0;
    virtual void check(const CheckScope&) const = 0;
    virtual void shard(ShardScope&) const = 0;
    virtual OpWork work(const WorkScope&) const = 0;
    virtual void run(const HostRows<float>&, int64_t begin, int64_t end) const noexcept = 0;
    virtual void run(const HostRows<double>&, int64_t begin, int64_t end) const noexcept = 0;
    virtual void run(const HostRows<float>&, const StateRun<float>&, int64_t begin, int64_t end) const noexcept = 0;
    virtual void run(const HostRows<double>&, const StateRun<double>&, int64_t begin, int64_t end) const noexcept = 0;
    virtual void run(const HostRows<float>&, const CachedRun<float>&, int64_t begin, int64_t end) const noexcept = 0;
    virtual void run(const HostRows<double>&, const CachedRun<double>&, int64_t begin, int64_t end) const noexcept = 0;
  };
  template <class R>
  static constexpr char kType = 0;
  template <class R>
  struct Held final : Base {
    explicit Held(R r) : record(std::move(r)) {}
    std::unique_ptr<Base> clone() const override { return std::make_unique<Held>(record); }
    const void* type() const noexcept override { return &kType<R>; }
    const char* kind() const noexcept override { return R::kKind; }
    Role role() const noexcept override { return R::kRole; }
    bool in_place() const noexcept override {
      if constexpr (R::kRole == Role::row) return R::kInPlace;
      return false;
    }
    bool rows_alike() const noexcept override {
      if constexpr (requires { R::kRowsAlike; }) return R::kRowsAlike;
      return true;
    }
    void fields(FieldVisitor& visitor) override { record.fields(visitor); }
    void check(const CheckScope& scope) const override { record.check(scope); }
    void shard(ShardScope& scope) const override { record.shard(scope); }
    OpWork work(const WorkScope& scope) const override { return record.work(scope); }
    void run(const HostRows<float>& rows, int64_t begin, int64_t end) const noexcept override {
      if constexpr (R::kRole == Role::row) record.run(rows, begin, end);
    }
    void run(const HostRows<double>& rows, int64_t begin, int64_t end) const noexcept override {
      if constexpr (R::kRole == Role::row) record.run(rows, begin, end);
    }
    void run(const HostRows<float>& rows, const StateRun<float>& at, int64_t begin,
             int64_t end) const noexcept override {
      if constexpr (R::kRole == Role::state) record.run(rows, at, begin, end);
    }
    void run(const HostRows<double>& rows, const StateRun<double>& at, int64_t begin,
             int64_t end) const noexcept override {
      if constexpr (R::kRole == Role::state) record.run(rows, at, begin, end);
    }
    void run(const HostRows<float>& rows, const CachedRun<float>& at, int64_t begin,
             int64_t end) const noexcept override {
      if constexpr (R::kRole == Role::cached) record.run(rows, at, begin, end);
    }
    void run(const HostRows<double>& rows, const CachedRun<double>& at, int64_t begin,
             int64_t end) const noexcept override {
      if constexpr (R::kRole == Role::cached) record.run(rows, at, begin, end);
    }
    R record;
  };

  std::unique_ptr<Base> held_;
};

}  // namespace assay::ops
