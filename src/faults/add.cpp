// Known ways to add a residual wrongly.
#include "ops/rows/add.h"

#include <fmt/format.h>

#include <cmath>

#include "backend/oracle/oracle_ops.h"
#include "faults/table.h"
#include "ops/plan/float64.h"
#include "ops/rows/rms_norm.h"

namespace assay::faults::dictionary {
namespace {

RowFunction weighted(const Case& c, double of_a, double of_b) {
  return [&c, of_a, of_b](int64_t row, double* y) {
    for (int64_t j = 0; j < c.failed.width; ++j) y[j] = of_a * c.a(row)[j] + of_b * c.b(row)[j];
  };
}

// a is the residual stream, b the branch, as every architecture file here writes them.
void offer_missing(const Case& c, Sink& out) {
  out.add_rows("the residual is missing: the branch alone is passed on", weighted(c, 0, 1));
  out.add_rows("the branch is missing: the residual alone is passed on", weighted(c, 1, 0));
}

void offer_twice(const Case& c, Sink& out) {
  out.add_rows("the residual is added twice", weighted(c, 2, 1));
  out.add_rows("the branch is added twice", weighted(c, 1, 2));
  out.add_rows("residual and branch are both added twice", weighted(c, 2, 2));
  out.add_rows("the branch is added to itself, not to the residual", weighted(c, 0, 2));
  out.add_rows("the residual is added to itself, not to the branch", weighted(c, 2, 0));
}

void offer_sign(const Case& c, Sink& out) {
  out.add_rows("the branch is subtracted from the residual", weighted(c, 1, -1));
  out.add_rows("the residual is subtracted from the branch", weighted(c, -1, 1));
}

void offer_scale(const Case& c, Sink& out) {
  out.add_rows("the sum is halved", weighted(c, 0.5, 0.5));
  out.add_rows("the sum is divided by the root of 2", weighted(c, std::sqrt(0.5), std::sqrt(0.5)));
}

// The residual as the block's first norm left it, for every norm that reads it.
void offer_normed(const Case& c, Sink& out) {
  const ops::ValueId residual = c.record<ops::Add>().a;
  for (const ops::Op& other : c.plan.ops) {
    const auto* norm = other.as<ops::RmsNorm>();
    if (norm == nullptr || norm->x != residual || norm->w == ops::kNone) continue;
    out.add_rows(
        fmt::format("the residual is taken after {}; it is what that norm reads", other.name),
        [&c, w = c.vector(norm->w), eps = static_cast<double>(norm->eps), d = norm->d](int64_t row, double* y) {
          const auto n = static_cast<size_t>(d);
          for (int64_t begin = 0; begin < c.failed.width; begin += d) {
            ops::rms_norm64(std::span(c.a(row) + begin, n), w, eps, std::span(y + begin, n));
          }
          for (int64_t j = 0; j < c.failed.width; ++j) y[j] += c.b(row)[j];
        });
  }
}

void offer_product(const Case& c, Sink& out) {
  out.add_rows("residual and branch are multiplied; they are added", [&c](int64_t row, double* y) {
    for (int64_t j = 0; j < c.failed.width; ++j) y[j] = c.a(row)[j] * c.b(row)[j];
  });
}

constexpr Entry kEntries[] = {
    {"add_missing", "", offer_missing}, {"add_twice", "", offer_twice}, {"add_normed", "", offer_normed},
    {"add_sign", "", offer_sign},       {"add_scale", "", offer_scale}, {"add_product", "", offer_product},
};

}  // namespace

std::span<const Entry> add_entries() noexcept { return kEntries; }

}  // namespace assay::faults::dictionary
