// See arrange.h.
#include "convert/arrange.h"

#include <fmt/format.h>

#include "assay/error.h"
#include "base/shown.h"

namespace assay::converting {
namespace {

[[noreturn]] void refuse_shape(const StoredTensor& t, std::string_view needs) {
  throw Error(Errc::bad_file,
              fmt::format("{} has the shape [{}]; needs {}", base::shown(t.name), fmt::join(t.shape, ", "), needs));
}

// Halves of the rows of each matrix.
void halves(const StoredTensor& t, bool second, Arranged& all) {
  const size_t rank = t.shape.size();
  if (rank < 2 || t.shape[rank - 2] % 2 != 0) refuse_shape(t, "an even number of rows, gate above up");
  const int64_t n = t.shape[rank - 2] / 2;
  for (int64_t at = 0; at < t.rows(); at += 2 * n)
    all.slices.push_back({.tensor = &t, .first = at + (second ? n : 0), .n_rows = n});
  all.shape = t.shape;
  all.shape[rank - 2] = n;
}

// Columns first, first + step, ... of each matrix as rows.
void turned(const StoredTensor& t, int64_t first, int64_t n, int64_t step, Arranged& all) {
  const size_t rank = t.shape.size();
  const int64_t height = t.shape[rank - 2];
  for (int64_t at = 0; at < t.rows(); at += height) {
    all.slices.push_back(
        {.tensor = &t, .first = first, .n_rows = n, .step = step, .from_columns = true, .block_row = at});
  }
  all.shape = t.shape;
  all.shape[rank - 2] = n;
  all.shape[rank - 1] = height;
}

void turned_part(As as, const StoredTensor& t, Arranged& all) {
  if (t.shape.size() < 2) refuse_shape(t, "two dimensions or more");
  const int64_t width = t.shape.back();
  if (as == As::turned) return turned(t, 0, width, 1, all);
  if (width % 2 != 0) refuse_shape(t, "an even number of columns, gate and up");
  const bool is_second = as == As::turned_up || as == As::turned_odd,
             takes_turns = as == As::turned_even || as == As::turned_odd;
  turned(t, !is_second ? 0 : takes_turns ? 1 : width / 2, width / 2, takes_turns ? 2 : 1, all);
}

void every_other(const StoredTensor& t, int64_t first, Arranged& all) {
  if (t.shape.empty() || t.shape.back() % 2 != 0) refuse_shape(t, "an even number of columns, gate and up");
  all.slices.push_back({.tensor = &t, .first = first, .n_rows = t.rows() * t.cols() / 2, .step = 2});
  all.shape = t.shape;
  all.shape.back() /= 2;
  all.as_column = true;
}

// n_groups times: n_queries heads of queries, one of keys, one of values.
void apart(const StoredTensor& t, int64_t n_groups, int64_t n_queries, Arranged& all) {
  const int64_t rows = t.shape.size() == 1 ? t.cols() : t.rows();
  const int64_t group = n_groups > 0 ? rows / n_groups : 0, head = group / (n_queries + 2);
  if (head == 0 || head * (n_queries + 2) * n_groups != rows)
    refuse_shape(t,
                 fmt::format("the rows of {} groups of {} heads, one of keys and one of values", n_groups, n_queries));
  const auto part = [&](int64_t first, int64_t n) {
    for (int64_t i = 0; i < n_groups; ++i)
      all.slices.push_back({.tensor = &t, .first = i * group + first, .n_rows = n});
  };
  part(0, n_queries * head);
  part(n_queries * head, head);
  part((n_queries + 1) * head, head);
  all.shape = t.shape;
  all.as_column = t.shape.size() == 1;
}

void filters(const StoredTensor& t, Arranged& all) {
  if (t.shape.size() != 3 || t.shape[1] != 1) refuse_shape(t, "channels, 1 and the width of the filter");
  all.slices.push_back({.tensor = &t, .n_rows = t.rows()});
  all.shape = {t.shape[0], t.shape[2]};
}

// A vector as n_rows rows.
void vector_rows(const StoredTensor& t, int64_t n_rows, Arranged& all) {
  if (t.shape.size() != 1 || n_rows <= 0 || t.cols() % n_rows != 0)
    refuse_shape(t, n_rows > 0 ? fmt::format("one dimension, a multiple of {}", n_rows) : "one dimension");
  all.slices.push_back({.tensor = &t, .n_rows = n_rows});
  all.shape = {n_rows, t.cols() / n_rows};
}

}  // namespace

Arranged arrange(As as, std::span<const StoredTensor* const> sources, const HeadCounts& heads) {
  Arranged all;
  for (const StoredTensor* t : sources) {
    switch (as) {
      case As::gate:
      case As::up: halves(*t, as == As::up, all); break;
      case As::turned:
      case As::turned_gate:
      case As::turned_up:
      case As::turned_even:
      case As::turned_odd: turned_part(as, *t, all); break;
      case As::even:
      case As::odd: every_other(*t, as == As::odd ? 1 : 0, all); break;
      case As::heads_apart: apart(*t, heads.n_heads, 1, all); break;
      case As::groups_apart:
        apart(*t, heads.n_kv_heads, heads.n_kv_heads > 0 ? heads.n_heads / heads.n_kv_heads : 0, all);
        break;
      case As::filters: filters(*t, all); break;
      case As::column:
      case As::negative_exp_column: vector_rows(*t, t->shape.size() == 1 ? t->cols() : 0, all); break;
      case As::state_groups: vector_rows(*t, heads.n_state_groups, all); break;
      case As::plain:
      case As::negative_exp:
      case As::rope_q:
      case As::rope_k:
      case As::plus_one:
      case As::tied:
      case As::vocabulary:
        if (t->shape.empty()) refuse_shape(*t, "one dimension or more");
        all.slices.push_back({.tensor = t, .n_rows = t->rows()});
        all.shape = t->shape;
        break;
    }
  }
  return all;
}

}  // namespace assay::converting
