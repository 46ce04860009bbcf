// A choice of experts that rounding decides is no fault: verify says so, follows it and goes on. A choice that rounding
// cannot explain is one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "base/thread_pool.h"
#include "faulty/faulty_subject.h"
#include "support/gguf_edit.h"
#include "support/shared_data.h"
#include "support/temp_folder.h"
#include "verify/stages/stages.h"

namespace assay::faults {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

// A model whose router cannot tell experts 1 and 2 apart: their rows are the same.
std::shared_ptr<const Model> undecided() {
  const gguf::File file = gguf::File::open(test::shared("goldens/arch/mixtral.gguf"));
  const test::TempFolder folder;
  test::edited_copy(file, {}, [&](std::string_view name, test::Bytes& data) {
    if (!name.ends_with("ffn_gate_inp.weight")) return;
    const auto row = static_cast<std::ptrdiff_t>(file.find(std::string(name))->view.row_bytes());
    std::copy_n(data.begin() + row, row, data.begin() + 2 * row);
  }).write(folder / "m.gguf");
  return Model::load((folder / "m.gguf").string());
}

verify::OpsFindings check(Fault fault) {
  Row row{.id = "tie", .source = "", .what = "", .injected = "", .golden = "mixtral"};
  row.fault = fault;
  base::ThreadPool pool(1);
  verify::StageRun run{pool};
  run.quick = true;
  return verify::check_ops(faulty_subject(row, undecided()), run);
}

TEST(RoutingTie, IsSaidAndFollowed) {
  ASSAY_REQUIRE_FILE(test::shared("goldens/arch/mixtral.gguf"));
  const verify::OpsFindings found = check(Fault::route_ties_high);
  EXPECT_EQ(found.stage.verdict, Verdict::pass) << found.stage.to_text();
  EXPECT_THAT(found.stage.details, Contains(HasSubstr("routing is a tie within rounding: blk.0.ffn_routes, position")));
  EXPECT_THAT(found.stage.details, Contains(HasSubstr("expert 2 was taken, float64 takes 1")));
  for (const OpFigures& op : found.ops)
    EXPECT_LT(op.cumulative_error, 1e-4) << op.op;  // the float64 chain went the same way
}

TEST(RoutingTie, ThatIsDecidedAsDeclaredIsNoNews) {
  ASSAY_REQUIRE_FILE(test::shared("goldens/arch/mixtral.gguf"));
  const verify::OpsFindings found = check(Fault::none);
  EXPECT_EQ(found.stage.verdict, Verdict::pass) << found.stage.to_text();
  EXPECT_THAT(found.stage.details, Not(Contains(HasSubstr("rounding: blk.0.ffn_routes"))));
}

TEST(RoutingTie, AWrongChoiceIsAFault) {
  ASSAY_REQUIRE_FILE(test::shared("goldens/arch/mixtral.gguf"));
  const verify::OpsFindings found = check(Fault::route_best_passed_over);
  EXPECT_EQ(found.stage.verdict, Verdict::fail);
  ASSERT_TRUE(found.first_failure);
  EXPECT_EQ(found.first_failure->op, "blk.0.ffn_routes");
  ASSERT_FALSE(found.causes.empty());
  EXPECT_EQ(found.causes[0].id, "route_choice");
}

}  // namespace
}  // namespace assay::faults
