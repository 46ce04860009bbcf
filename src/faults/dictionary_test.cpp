// The dictionary as a whole: every mutation that any table offers is found again, healthy ops name
// nothing, nonsense is refused. The likeliest faults are computed by plain loops of their own in
// faults_test.cpp.
#include "faults/dictionary.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>

#include "faults/attention.h"
#include "faults/linear.h"
#include "faults/table.h"
#include "quant/format.h"
#include "support/failed_ops.h"
#include "support/tiny_plan.h"

namespace assay::faults {
namespace {

using test::Fed;
using test::fed_from;
using test::plain_f32;
using test::RecordedRun;
using test::TinyPlan;
using test::TinyShape;

dictionary::Sample everything(const FailedOp& f) {
  dictionary::Sample all;
  all.rows.resize(static_cast<size_t>(f.n_rows));
  all.columns.resize(static_cast<size_t>(f.width));
  std::iota(all.rows.begin(), all.rows.end(), 0);
  std::iota(all.columns.begin(), all.columns.end(), 0);
  return all;
}

bool is_wrong(const FailedOp& f) {
  for (size_t i = 0; i < f.found.size(); ++i) {
    if (!(std::abs(f.found[i] - f.expected.y[i]) <= f.expected.bound[i])) return true;
  }
  return false;
}

std::string shown(const std::vector<Cause>& causes) {
  std::string all;
  for (const Cause& cause : causes)
    all += fmt::format("  {} {} {:.3g} {}\n", cause.id, cause.reproduces ? "=" : "~", cause.residual, cause.text);
  return all;
}

// Each candidate of an op in turn takes the place of what was observed; it must be told, by its
// text, among those that reproduce it.
struct Tally {
  int tried = 0, equal_to_right = 0, told = 0, first = 0;
  std::set<std::string> ids;
};
void tell_all(const ops::Plan& plan, const FailedOp& right, const Declared& declared, base::ThreadPool& pool,
              Tally& tally, std::string_view ids = "") {
  FailedOp f = right;
  const dictionary::Case c{plan, right, declared, pool};
  std::vector<dictionary::Candidate> candidates;
  dictionary::for_each_entry(c, [&](std::vector<dictionary::Candidate> some) {
    std::move(some.begin(), some.end(), std::back_inserter(candidates));
  });
  for (const dictionary::Candidate& candidate : candidates) {
    if (!candidate.id.starts_with(ids)) continue;
    candidate.compute(everything(right), f.found.data());
    for (double& x : f.found) x = static_cast<double>(static_cast<float>(x));
    ++tally.tried;
    if (!is_wrong(f)) {
      ++tally.equal_to_right;
      continue;
    }
    const std::vector<Cause> causes = find_causes(plan, f, declared, pool);
    const auto found = std::find_if(causes.begin(), causes.end(),
                                    [&](const Cause& x) { return x.text == candidate.text && x.reproduces; });
    const ops::Op& op = c.op();
    EXPECT_NE(found, causes.end()) << op.name << " layer " << op.layer << ": " << candidate.id << ", " << candidate.text
                                   << "\n"
                                   << shown(causes);
    tally.ids.insert(candidate.id);
    if (found == causes.end()) continue;
    ++tally.told;
    if (causes[0].id == candidate.id) ++tally.first;
  }
}

void tell_all_ops(const TinyShape& shape, const Declared& declared, Tally& tally) {
  base::ThreadPool pool(1);
  const TinyPlan tiny(shape);
  const RecordedRun run(tiny.plan, {fed_from(0, 9) + fed_from(0, 4, 1), fed_from(9, 3)}, pool);
  std::set<std::string> seen = {"attn_v", "attn_output", "ffn_up", "ffn_down"};  // as attn_k and ffn_gate
  for (const ops::Op& op : tiny.plan.ops) {
    if (ops::values_of(op).output == ops::kNone || op.layer > 0 || !seen.insert(op.name).second) continue;
    tell_all(tiny.plan, run.op(op.name, op.layer, 1), declared, pool, tally);
  }
}

TEST(Dictionary, EveryMutationIsFoundAgain) {
  Tally tally;
  tell_all_ops({}, plain_f32(), tally);
  TinyShape gemma;
  gemma.gemma = true;
  gemma.window = 8;
  gemma.dtype = tensor::DType::Q5_0;
  tell_all_ops(gemma, plain_f32(), tally);
  EXPECT_GT(tally.told, 600);
  EXPECT_EQ(tally.told + tally.equal_to_right, tally.tried);
  EXPECT_GT(tally.first, tally.told * 9 / 10);
  RecordProperty("tried", tally.tried);
  RecordProperty("told", tally.told);
  RecordProperty("first", tally.first);
  RecordProperty("ids", static_cast<int>(tally.ids.size()));
}

TEST(Dictionary, EveryScaleOfAQuantisedCacheIsFoundAgain) {
  base::ThreadPool pool(1);
  Tally tally;
  const TinyPlan tiny({});
  const RecordedRun run(tiny.plan, {fed_from(0, 9)}, pool);
  Declared declared = plain_f32();
  declared.cache_k = declared.cache_v = ops::CacheType::q8_0;
  tell_all(tiny.plan, run.op("attention", 0), declared, pool, tally, "kv_scale");
  EXPECT_EQ(tally.told, 6);
}

// Every format's own ways of being decoded wrongly.
TEST(Dictionary, EveryDecodingIsFoundAgain) {
  base::ThreadPool pool(1);
  Tally tally;
  for (const quant::Format& format : quant::all_formats()) {
    TinyShape shape;
    shape.dtype = format.dtype;
    shape.vocab_size = 62;
    if (format.activation == quant::Activation::a256) shape.d_model = shape.d_ff = 256;
    const TinyPlan tiny(shape);
    const RecordedRun run(tiny.plan, {fed_from(0, 2), fed_from(2, 2)}, pool);
    tell_all(tiny.plan, run.op("embed", -1, 1), plain_f32(), pool, tally, "decode_");
  }
  EXPECT_EQ(tally.told + tally.equal_to_right, tally.tried);
  EXPECT_GT(tally.told, 200);
}

// Random weights make no text likely, whatever is changed; every change is a plan that runs.
TEST(Dictionary, FilesOfNoiseAreNotSuspected) {
  base::ThreadPool pool(1);
  const Fed text = fed_from(0, 20);
  for (const bool gemma : {false, true}) {
    TinyShape shape;
    shape.gemma = gemma;
    shape.window = gemma ? 8 : 0;
    shape.d_model = 128, shape.head_dim = 32, shape.n_heads = 4, shape.n_kv_heads = 2;
    const TinyPlan tiny(shape);
    EXPECT_TRUE(suspect_file(tiny.plan, text.tokens, pool).empty());
    EXPECT_TRUE(suspect_file(tiny.plan, std::span(text.tokens).first(1), pool).empty());
    EXPECT_TRUE(suspect_file(tiny.plan, {}, pool).empty());
  }
}

TEST(Dictionary, HealthyOpsNameNothing) {
  base::ThreadPool pool(1);
  const TinyPlan tiny({});
  const RecordedRun run(tiny.plan, {fed_from(0, 12)}, pool);
  for (const ops::Op& op : tiny.plan.ops) {
    if (ops::values_of(op).output == ops::kNone) continue;
    FailedOp f = run.op(op.name, op.layer);
    for (double& x : f.found) x = static_cast<double>(static_cast<float>(x));
    EXPECT_TRUE(find_causes(tiny.plan, f, plain_f32(), pool).empty()) << op.name;
  }
}

TEST(Dictionary, NoiseHasNoCause) {
  base::ThreadPool pool(1);
  const TinyPlan tiny({});
  const RecordedRun run(tiny.plan, {fed_from(0, 12)}, pool);
  test::Random random(5);
  for (const ops::Op& op : tiny.plan.ops) {
    if (ops::values_of(op).output == ops::kNone) continue;
    FailedOp f = run.op(op.name, op.layer);
    for (size_t i = 0; i < f.found.size(); ++i)
      f.found[i] += 100 * f.expected.bound[i] * static_cast<double>(random.normal());
    for (const Cause& cause : find_causes(tiny.plan, f, plain_f32(), pool))
      EXPECT_FALSE(cause.reproduces) << op.name << ": " << cause.text;
  }
}

// The declared rounding is no fault, and no mutation that changes nothing may claim to explain it.
TEST(Dictionary, DeclaredRoundingIsNoCause) {
  base::ThreadPool pool(1);
  const TinyPlan tiny({});
  const RecordedRun run(tiny.plan, {fed_from(0, 12)}, pool);
  Declared declared;
  declared.activation_bits = 8;
  declared.cache_k = declared.cache_v = ops::CacheType::q8_0;
  for (const char* name : {"attention", "attn_k", "ffn_down"}) {
    FailedOp f = run.op(name, 0);
    const dictionary::Case c{tiny.plan, f, declared, pool};
    const auto right = name == std::string_view("attention")
                           ? dictionary::by_rows(c, dictionary::attention_with(c, dictionary::right_attention(c)))
                           : dictionary::linear_with(c, dictionary::right_linear(c));
    std::vector<double> y(f.found.size());
    right(everything(f), y.data());
    f.found = y;
    f.found[5] += 1e-3 * (1 + std::abs(f.found[5]));  // one element has another fault
    ASSERT_TRUE(is_wrong(f));
    for (const Cause& cause : find_causes(tiny.plan, f, declared, pool))
      EXPECT_FALSE(cause.reproduces) << name << ": " << cause.text;
  }
}

TEST(Dictionary, IncompleteFailuresNameNothing) {
  base::ThreadPool pool(1);
  const TinyPlan tiny({});
  const RecordedRun run(tiny.plan, {fed_from(0, 5)}, pool);
  FailedOp f = run.op("attention", 0);
  f.found[3] += 1;
  FailedOp other = f;
  other.history.clear();
  find_causes(tiny.plan, other, plain_f32(), pool);
  other = f;
  other.positions.assign(other.positions.size(), 1000);
  find_causes(tiny.plan, other, plain_f32(), pool);
  other = f;
  other.found.clear();
  EXPECT_TRUE(find_causes(tiny.plan, other, plain_f32(), pool).empty());
  EXPECT_TRUE(find_causes(tiny.plan, FailedOp{}, plain_f32(), pool).empty());
}

}  // namespace
}  // namespace assay::faults
