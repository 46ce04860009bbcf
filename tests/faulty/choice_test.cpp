// An indexer's choice of keys: verify passes on a right one, follows one that rounding decides and says so, and names
// what is wrong with another.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "faulty/catalogue.h"
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

std::string choice_golden(const char* name) {
  return test::shared(std::string("goldens/arch/") + name + ".gguf").string();
}

verify::OpsFindings check_choice(const Row& row, std::shared_ptr<const Model> model) {
  base::ThreadPool pool(1);
  verify::StageRun run{pool};
  run.quick = true;
  return verify::check_ops(faulty_subject(row, std::move(model)), run);
}
verify::OpsFindings check_choice(const char* golden, Fault fault, std::shared_ptr<const Model> model) {
  Row row{.id = "choice", .source = "", .what = "", .injected = "", .golden = golden};
  row.fault = fault;
  return check_choice(row, std::move(model));
}

// A model whose indexers find all keys alike: the weights of their heads are 0.
std::shared_ptr<const Model> with_equal_keys() {
  const gguf::File file = gguf::File::open(choice_golden("deepseek32"));
  const test::TempFolder folder;
  test::edited_copy(file, {}, [](std::string_view name, test::Bytes& data) {
    if (name.ends_with("indexer.proj.weight")) std::ranges::fill(data, std::byte{0});
  }).write(folder / "m.gguf");
  return Model::load((folder / "m.gguf").string());
}

TEST(ChoiceOfKeys, ThatIsRightPasses) {
  ASSAY_REQUIRE_FILE(choice_golden("deepseek32"));
  for (const char* name : {"deepseek32", "glmdsa"}) {
    const verify::OpsFindings found = check_choice(name, Fault::none, Model::load(choice_golden(name)));
    EXPECT_EQ(found.stage.verdict, Verdict::pass) << found.stage.to_text();
    EXPECT_TRUE(std::ranges::any_of(found.ops, [](const OpFigures& op) { return op.kind == "choose_keys"; }));
    EXPECT_TRUE(std::ranges::any_of(found.ops, [](const OpFigures& op) { return op.kind == "sparse_attention"; }));
  }
}

TEST(ChoiceOfKeys, ThatRoundingDecidesIsSaidAndFollowed) {
  ASSAY_REQUIRE_FILE(choice_golden("deepseek32"));
  const verify::OpsFindings found = check_choice("deepseek32", Fault::choice_ties_high, with_equal_keys());
  EXPECT_EQ(found.stage.verdict, Verdict::pass) << found.stage.to_text();
  EXPECT_THAT(found.stage.details,
              Contains(HasSubstr("the choice of keys is a tie within rounding: blk.0.indexer.choice, position")));
  EXPECT_THAT(found.stage.details, Contains(HasSubstr("float64 takes 0")));
  for (const OpFigures& op : found.ops)
    EXPECT_LT(op.cumulative_error, 1e-4) << op.op;  // the float64 chain went the same way
  EXPECT_THAT(check_choice("deepseek32", Fault::none, with_equal_keys()).stage.details,
              Not(Contains(HasSubstr("the choice of keys is a tie"))));
}

TEST(ChoiceOfKeys, ThatIsWrongIsNamed) {
  ASSAY_REQUIRE_FILE(choice_golden("deepseek32"));
  int n_rows = 0;
  for (const Row& row : family_rows()) {
    if (row.golden == nullptr) continue;
    if (std::string(row.golden) != "deepseek32" && std::string(row.golden) != "glmdsa") continue;
    ++n_rows;
    const verify::OpsFindings found = check_choice(row, Model::load(choice_golden(row.golden)));
    EXPECT_EQ(found.stage.verdict, Verdict::fail) << row.what;
    ASSERT_TRUE(found.first_failure) << row.what;
    EXPECT_EQ(found.first_failure->op, row.op) << row.what;
    ASSERT_FALSE(found.causes.empty()) << row.what;
    EXPECT_EQ(found.causes[0].id, row.named_by.front()) << row.what;
  }
  EXPECT_EQ(n_rows, 2);
}

}  // namespace
}  // namespace assay::faults
