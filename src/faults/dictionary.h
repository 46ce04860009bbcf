// The fault dictionary: known ways to compute an op wrongly, tried on the first op that is out of its bound. The one
// that reproduces the observed values to within rounding is the cause.
#pragma once

#include <span>
#include <vector>

#include "assay/verify.h"
#include "base/thread_pool.h"
#include "bounds/op_checker.h"
#include "ops/plan/plan.h"

namespace assay::faults {

using bounds::Declared, bounds::FailedOp;

// Tries every mutation that applies to the op, best first. A cause that `reproduces` leaves every element within its
// bound; several may (a test cannot tell them apart), and then the report lists them all.
std::vector<Cause> find_causes(const ops::Plan& plan, const FailedOp& failed, const Declared& declared,
                               base::ThreadPool& pool);

// Whole-model mutations for a file that is wrong in itself (K rows permuted, theta or eps lost, gate and up swapped,
// head tied by mistake): the oracle runs the text with each, and a mutation that makes the text much more likely is
// suspected. Costs one short oracle run each.
std::vector<Cause> suspect_file(const ops::Plan& plan, std::span<const int32_t> ids, base::ThreadPool& pool);

}  // namespace assay::faults
