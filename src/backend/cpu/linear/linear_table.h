// The table of the CPU's matrix products (linear.h). A row is a kernel and what it takes:
//
//   set     name      weights      planes  tokens      columns           kernel of a format
//   avx2    few       superblocks  1       5 to 32     any               skinny_a256_avx2
//   avx2    vector    superblocks  any     1 and more  any               gemv_a256_avx2
//   ...
//
// Of a set the first row that takes a product wins; behind the last stands the scalar reference. A product's rows are
// resolved once, when a plan is lowered, into ranges of tokens with one kernel each: nothing chooses again while it
// runs.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/gemv/gemv.h"
#include "lower/token_ranges.h"

namespace assay::backend::cpu {

enum class WeightKind { floats, blocks, superblocks };  // LinearTask::as_f32; blocks of 32; superblocks of 256
WeightKind weight_kind(const LinearTask& task) noexcept;

using lower::kAnyTokens;

// One of the two, or neither where a row has nothing for a format.
struct LinearKernel {
  GemvKernel vector = nullptr;  // rows stream past kGemvColumnsMax columns at a time
  GemmKernel matrix;            // a panel of rows meets all tokens

  bool is_there() const noexcept { return vector != nullptr || matrix.run != nullptr; }
};

struct LinearRow {
  std::string_view name;  // unique among the rows of a set that take the same weights and planes
  WeightKind weights;
  int planes;  // 0: one or two
  int64_t tokens_min, tokens_max;
  int64_t k_min, k_step;                                    // columns: so many or more, whole steps of them
  LinearKernel (*kernel)(const LinearTask& task) noexcept;  // for the task's format
  GemvWalk walk = {};                                       // of a vector's kernel
  bool (*is_wanted)() noexcept =
      nullptr;  // null: on every processor of the set; else the table passes it over where it says no

  // Whether the row takes the product with some number of tokens.
  bool takes(const LinearTask& task) const noexcept;
};

// One kernel for a range of tokens.
struct LinearRange {
  int64_t tokens_min = 1, tokens_max = kAnyTokens;
  std::string_view name = "reference";  // the row's
  LinearKernel kernel;                  // neither: the reference
  GemvLayout layout;                    // of activations, where the kernel is a vector's

  // Of the rows that take a product no two share a name.
  bool chooses_as(const LinearRange& other) const noexcept { return name == other.name; }
};

// The kernels of one product, by the number of its tokens.
class LinearChoice : public lower::TokenRanges<LinearRange> {
 public:
  LinearChoice() { add(LinearRange{}); }  // the reference for any number
  // From the set's table; of the task its format, columns, bytes of a row and planes count. first: the rows of this name
  // go before all others, wanted or not; empty: none.
  LinearChoice(Kernels set, const LinearTask& task, std::string_view first = {});
  // By one row alone, which takes the task; the reference outside of its tokens.
  LinearChoice(Kernels set, const LinearRow& row, const LinearTask& task);

  const LinearRange& at(int64_t n_tokens) const noexcept { return range_at(n_tokens); }
  // For any number of tokens up to the task's: scratch of a thread, and the step in which its rows are shared out.
  size_t scratch_bytes(const LinearTask& task) const noexcept;
  int64_t row_step(int64_t n_tokens_max) const noexcept;

 private:
  static LinearRange range_of(Kernels set, const LinearRow& row, const LinearTask& task) noexcept;
  void add_ranges(Kernels set, std::span<const LinearRow> rows, const LinearTask& task);
};

// The rows of a set, those of higher rank first; none of the reference.
std::span<const LinearRow> linear_table(Kernels set) noexcept;
// The name of a row as the table has it; hyphens may stand for its blanks. Error(bad_request) that lists the set's rows.
std::string_view require_row(Kernels set, std::string_view text);

}  // namespace assay::backend::cpu
