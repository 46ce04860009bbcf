// Tracing: observing changes no bit, figures are those of the values, dumps hold the values themselves.
// trace_slow_test.cpp has real models.
#include "assay/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "assay/error.h"
#include "assay/score.h"
#include "engine/context_state.h"
#include "engine/model_state.h"
#include "support/invariance.h"
#include "support/shared_data.h"
#include "support/temp_folder.h"
#include "support/tiny_llama.h"
#include "trace/dump.h"
#include "trace/statistics.h"

namespace assay {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kTokens = 13;

std::shared_ptr<const Model> tiny_model() {
  const test::TempFolder folder;  // the map outlives the name
  test::TinyLlama spec;
  spec.dtype = tensor::DType::Q4_K;
  test::TinyLlamaWriter(spec).file().write(folder / "tiny.gguf");
  return Model::load((folder / "tiny.gguf").string(), {.tokenizer = false});
}

std::vector<TokenId> some_ids() { return test::random_tokens(kTokens, 96); }

ContextOptions chunks_of(int64_t n, Numerics numerics = Numerics::exact) {
  ContextOptions options;
  options.n_ctx = 64;
  options.n_threads = 2;
  options.n_ubatch = n;
  options.n_outputs_max = n;
  options.numerics = numerics;
  return options;
}

struct Seen {
  int64_t n_rows = 0, width = 0;
  std::vector<double> values;
};

class Collector final : public ops::OpObserver {  // what a trace is held against
 public:
  bool wants(const ops::Op&) override { return true; }
  void on_op(const ops::Op& op, int64_t n_rows, int64_t width, std::span<const double> values) override {
    Seen& seen = ops[op.name];
    seen.n_rows += n_rows;
    seen.width = width;
    seen.values.insert(seen.values.end(), values.begin(), values.end());
  }
  std::map<std::string, Seen> ops;
};

std::map<std::string, Seen> collect(const std::shared_ptr<const Model>& model, const ContextOptions& options,
                                    std::span<const TokenId> ids) {
  Context context(model, options);
  Collector collector;
  const engine::Watched watched(context.state(), collector);
  context.decode_all(ids, nullptr);
  return std::move(collector.ops);
}

std::string refusal(Context& context, const TraceOptions& options) {
  try {
    trace_run(context, some_ids(), options);
  } catch (const Error& e) {
    EXPECT_EQ(e.code, Errc::bad_request) << e.what();
    return e.what();
  }
  return "taken";
}

TEST(Trace, ObservingChangesNoBit) {
  const test::TempFolder folder;
  const auto model = tiny_model();
  const std::vector<TokenId> ids = some_ids();
  std::vector<ContextOptions> settings = {chunks_of(64), chunks_of(5), chunks_of(64, Numerics::f32),
                                          chunks_of(4, Numerics::oracle)};
  settings.push_back(chunks_of(64));
  settings.back().activation_bits = 8;
  settings.back().cache_k = settings.back().cache_v = KvType::q8_0;
  settings.push_back(chunks_of(64));
  settings.back().kernels = Kernels::reference;
  for (const ContextOptions& options : settings) {
    Context plain(model, options), traced(model, options);
    const Score expected = score(plain, ids, 1);
    const Trace trace = trace_run(traced, ids, {.histogram = true, .dump_path = folder / "a.dump"});
    EXPECT_EQ(trace.logits_digest, expected.logits_digest);
    EXPECT_EQ(trace.kv_digest, expected.kv_digest);
    const Score afterwards = score(traced, ids, 1);  // and nothing stays behind
    EXPECT_EQ(afterwards.logits_digest, expected.logits_digest);
    EXPECT_EQ(afterwards.kv_digest, expected.kv_digest);
  }
}

// Devices run ops in orders of their own; what is shown of them is the same.
TEST(Trace, ShowsOpsInThePlansOrder) {
  const auto model = tiny_model();
  Context context(model, chunks_of(64));
  const Trace trace = trace_run(context, some_ids(), {});
  std::vector<std::string> shown, planned;
  for (const OpTrace& op : trace.ops) shown.push_back(op.op);
  for (const ops::Op& op : model->state().built.plan.ops) planned.push_back(op.name);
  EXPECT_EQ(shown, planned);
}

TEST(Trace, ObservingChangesNoBitOfGemma) {
  const std::filesystem::path path = test::shared("goldens/tiny/gemma3.gguf");
  ASSAY_REQUIRE_FILE(path);
  const auto model = Model::load(path.string(), {.tokenizer = false});
  Context plain(model, chunks_of(7)), traced(model, chunks_of(7));
  const Score expected = score(plain, some_ids(), 1);
  const Trace trace = trace_run(traced, some_ids());
  EXPECT_EQ(trace.logits_digest, expected.logits_digest);
  EXPECT_EQ(trace.kv_digest, expected.kv_digest);
  const auto has = [&](const std::string& name) {
    return std::any_of(trace.ops.begin(), trace.ops.end(), [&](const OpTrace& op) { return op.op == name; });
  };
  for (const char* name : {"blk.0.attn_q_norm", "blk.6.post_attention_norm", "blk.3.post_ffw_norm", "output"})
    EXPECT_TRUE(has(name)) << name;
}

TEST(Trace, FiguresAreThoseOfTheValues) {
  const auto model = tiny_model();
  for (const Numerics numerics : {Numerics::exact, Numerics::oracle}) {
    const std::map<std::string, Seen> seen = collect(model, chunks_of(64, numerics), some_ids());
    Context context(model, chunks_of(5, numerics));
    const Trace trace = trace_run(context, some_ids(), {.n_first = 3, .histogram = true});
    ASSERT_EQ(trace.ops.size(), seen.size());
    EXPECT_EQ(trace.ops.front().op, "token_embd");
    EXPECT_EQ(trace.ops.front().kind, "embed");
    EXPECT_EQ(trace.ops.back().op, "output");
    for (const OpTrace& op : trace.ops) {
      const Seen& expected = seen.at(op.op);
      EXPECT_EQ(op.n_rows, kTokens) << op.op;
      EXPECT_EQ(op.width, expected.width) << op.op;
      long double sum = 0, squares = 0;
      int64_t n_zero = 0, n_small = 0;
      for (const double value : expected.values) {
        sum += value;
        squares += static_cast<long double>(value) * value;
        n_zero += value == 0;
        n_small += value != 0 && std::abs(value) < 0x1p-4;
      }
      const auto n = static_cast<long double>(expected.values.size());
      const double rms = static_cast<double>(std::sqrt(squares / n));
      EXPECT_NEAR(op.mean, static_cast<double>(sum / n), 1e-12 * rms) << op.op;
      EXPECT_NEAR(op.rms, rms, 1e-12 * rms) << op.op;
      EXPECT_EQ(op.smallest, *std::min_element(expected.values.begin(), expected.values.end())) << op.op;
      EXPECT_EQ(op.largest, *std::max_element(expected.values.begin(), expected.values.end())) << op.op;
      EXPECT_EQ(op.n_zero, n_zero) << op.op;
      EXPECT_EQ(op.n_nan + op.n_infinite, 0) << op.op;
      EXPECT_EQ(op.first, std::vector<double>(expected.values.begin(), expected.values.begin() + 3)) << op.op;
      int64_t n_binned = 0, n_small_binned = 0;
      for (size_t i = 0; i < op.histogram.size(); ++i) {
        n_binned += op.histogram[i];
        if (i < 10) n_small_binned += op.histogram[i];  // below 2^(2 * 10 - 24)
      }
      EXPECT_EQ(n_binned + n_zero, op.n_rows * op.width) << op.op;
      EXPECT_EQ(n_small_binned, n_small) << op.op;
    }
  }
}

TEST(Trace, TheTableDependsOnTheNumbersAlone) {
  const auto model = tiny_model();
  Context whole(model, chunks_of(64));
  ContextOptions other = chunks_of(3);
  other.n_threads = 1;
  other.kernels = Kernels::reference;
  Context pieces(model, other);
  const TraceOptions options{.histogram = true};
  const std::string table = trace_run(whole, some_ids(), options).to_text();
  EXPECT_EQ(table, trace_run(pieces, some_ids(), options).to_text());
  EXPECT_THAT(table, HasSubstr("op                         shape       mean        rms   smallest    largest   zeros  "
                               "2^-24 .. 2^8      first values\n"));
  EXPECT_THAT(table, HasSubstr("\nblk.1.attn_residual       13x256 "));
}

TEST(Trace, ChoosesOpsLayersAndPositions) {
  const auto model = tiny_model();
  Context context(model, chunks_of(5));
  const auto names = [&](const TraceOptions& options) {
    std::vector<std::string> found;
    for (const OpTrace& op : trace_run(context, some_ids(), options).ops) found.push_back(op.op);
    return found;
  };
  EXPECT_THAT(names({.ops = "output"}), ElementsAre("output"));
  EXPECT_THAT(names({.ops = ".*attn_[qk]"}),
              ElementsAre("blk.0.attn_q", "blk.0.attn_k", "blk.1.attn_q", "blk.1.attn_k"));
  EXPECT_THAT(names({.ops = ".*attn_[qk]", .layers = {{1, 1}}}), ElementsAre("blk.1.attn_q", "blk.1.attn_k"));
  EXPECT_EQ(names({.layers = {{0, 0}}}).front(), "blk.0.attn_norm");
  const auto all = collect(model, chunks_of(64), some_ids());
  const Trace trace = trace_run(context, some_ids(), {.ops = "blk.0.attn_v", .positions = {{4, 6}}, .n_first = 2});
  ASSERT_EQ(trace.ops.size(), 1u);
  EXPECT_EQ(trace.ops[0].n_rows, 3);
  const Seen& values = all.at("blk.0.attn_v");
  EXPECT_THAT(trace.ops[0].first, ElementsAre(values.values[static_cast<size_t>(4 * values.width)],
                                              values.values[static_cast<size_t>(4 * values.width + 1)]));
}

// Rows of experts are those of the tokens that the positions name, whatever runs in one chunk.
TEST(Trace, ExpertsHaveARowForEachThatATokenGoesTo) {
  const std::filesystem::path path = test::shared("goldens/arch/mixtral.gguf");
  ASSAY_REQUIRE_FILE(path);
  const auto model = Model::load(path.string(), {.tokenizer = false});
  const auto all = collect(model, chunks_of(64), some_ids());
  const Seen &routes = all.at("blk.0.ffn_routes"), &down = all.at("blk.0.ffn_down_exps"),
             &sum = all.at("blk.0.ffn_moe");
  const int64_t n_used = routes.width / 2;
  ASSERT_GT(n_used, 1);
  EXPECT_EQ(down.n_rows, kTokens * n_used);
  EXPECT_EQ(down.width, sum.width);
  for (int64_t t = 0; t < kTokens; ++t) {
    double expected = 0;
    for (int64_t rank = 0; rank < n_used; ++rank)
      expected += routes.values[static_cast<size_t>(t * routes.width + rank)] *
                  down.values[static_cast<size_t>((t * n_used + rank) * down.width)];
    EXPECT_NEAR(sum.values[static_cast<size_t>(t * sum.width)], expected, 1e-6);
  }
  Context context(model, chunks_of(5));
  const Trace trace = trace_run(
      context, some_ids(), {.ops = R"(blk\.0\.ffn_(act_exps|down_exps|moe))", .positions = {{4, 6}}, .n_first = 1});
  ASSERT_EQ(trace.ops.size(), 3u);
  for (const OpTrace& op : trace.ops) {
    const Seen& seen = all.at(op.op);
    const int64_t n_ranks = seen.n_rows / kTokens;
    EXPECT_EQ(n_ranks, op.op == "blk.0.ffn_moe" ? 1 : n_used) << op.op;
    EXPECT_EQ(op.n_rows, 3 * n_ranks) << op.op;
    EXPECT_THAT(op.first, ElementsAre(seen.values[static_cast<size_t>(4 * n_ranks * seen.width)])) << op.op;
  }
}

TEST(Trace, RefusesWhatCannotBeMeant) {
  const auto model = tiny_model();
  Context context(model, chunks_of(64));
  EXPECT_THAT(refusal(context, {.ops = "attn_("}),
              HasSubstr("the expression for ops, 'attn_(': missing closing parenthesis at byte 6"));
  EXPECT_THAT(refusal(context, {.ops = "attn_q"}), HasSubstr("the expression for ops, 'attn_q', matches none of the"));
  EXPECT_THAT(refusal(context, {.ops = std::string(5000, 'a')}), HasSubstr("needs at most 4096 bytes, found 5000"));
  EXPECT_THAT(refusal(context, {.ops = "(?:[a-z0-9._]|[a-z0-9._][a-z0-9._]?)+[^a-z0-9._]+.*"}),
              HasSubstr("gave up on the name"));
  EXPECT_THAT(refusal(context, {.layers = {{0, 2}}}), HasSubstr("layers: needs a range within 0 to 1, found 0 to 2"));
  EXPECT_THAT(refusal(context, {.layers = {{1, 0}}}), HasSubstr("layers"));
  EXPECT_THAT(refusal(context, {.positions = {{0, 13}}}),
              HasSubstr("positions: needs a range within 0 to 12, found 0 to 13"));
  EXPECT_THAT(refusal(context, {.n_first = -1}), HasSubstr("first values: needs 0 or more, found -1"));
}

TEST(Trace, DumpsTheValuesThemselves) {
  const test::TempFolder folder;
  const auto model = tiny_model();
  const std::vector<TokenId> ids = some_ids();
  for (const Numerics numerics : {Numerics::exact, Numerics::oracle}) {
    const auto expected = collect(model, chunks_of(64, numerics), ids);
    Context context(model, chunks_of(5, numerics));
    trace_run(context, ids, {.positions = {{0, 0}}, .dump_path = folder / "a.dump", .text = "Hi"});
    trace::DumpReader reader(folder / "a.dump");
    EXPECT_THAT(reader.header().engine,
                HasSubstr(numerics == Numerics::oracle ? "oracle, float64" : "exact, 15 bits, cache f16"));
    EXPECT_EQ(reader.header().text, "Hi");
    EXPECT_EQ(reader.header().n_layers, 2);
    EXPECT_EQ(reader.header().vocab_size, 96);
    EXPECT_EQ(reader.header().declared.activation_bits, numerics == Numerics::oracle ? 0 : 15);
    std::map<std::string, Seen> found;
    std::vector<int32_t> tokens;
    int n_batches = 0;
    for (auto kind = reader.next(); kind != trace::DumpReader::Kind::end; kind = reader.next()) {
      if (kind == trace::DumpReader::Kind::batch) {
        ++n_batches;
        tokens.insert(tokens.end(), reader.batch().tokens.begin(), reader.batch().tokens.end());
        continue;
      }
      const trace::DumpTensor& tensor = reader.tensor();
      EXPECT_EQ(tensor.is_f64, numerics == Numerics::oracle);
      Seen& seen = found[tensor.op];
      seen.values.insert(seen.values.end(), tensor.values.begin(), tensor.values.end());
    }
    EXPECT_EQ(n_batches, 3);
    EXPECT_EQ(tokens, ids);
    EXPECT_EQ(found.size() + 4, expected.size());  // less two kv_store and two selections, which pass on
    for (const auto& [name, seen] : found) EXPECT_EQ(seen.values, expected.at(name).values) << name;
  }
}

TEST(Trace, AFullDiskEndsTheRun) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "needs /dev/full";
  const auto model = tiny_model();
  Context context(model, chunks_of(64));
  EXPECT_THROW(trace_run(context, some_ids(), {.dump_path = "/dev/full"}), Error);
  EXPECT_EQ(trace_run(context, some_ids()).logits_digest,
            score(context, some_ids(), 1).logits_digest);  // the context goes on
}

TEST(Statistics, CountsWhatIsNotFinite) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  trace::Statistics statistics(true);
  statistics.add_row(std::vector<double>{3, nan, -4, infinity}, 2);
  statistics.add_row(std::vector<double>{0, nan, -infinity, 1}, 2);
  statistics.finish();
  const OpTrace& op = statistics.figures();
  EXPECT_EQ(op.n_rows, 2);
  EXPECT_EQ(op.n_nan, 2);
  EXPECT_EQ(op.n_infinite, 2);
  EXPECT_EQ(op.n_zero, 1);
  EXPECT_EQ(op.mean, 0.0);
  EXPECT_EQ(op.rms, std::sqrt(26.0 / 4));
  EXPECT_EQ(op.smallest, -4);
  EXPECT_EQ(op.largest, 3);
  EXPECT_EQ(op.first[0], 3);
  EXPECT_TRUE(std::isnan(op.first[1]));
  trace::Statistics nothing(false);
  nothing.add_row(std::vector<double>{nan}, 0);
  nothing.finish();
  EXPECT_TRUE(std::isnan(nothing.figures().mean));
  EXPECT_TRUE(std::isnan(nothing.figures().largest));
  Trace trace;
  trace.ops = {op, nothing.figures()};
  trace.ops[0].op = "a";
  trace.ops[0].width = 4;
  EXPECT_THAT(
      trace.to_text(),
      HasSubstr(
          "\na     2x4          0       2.55         -4          3       1  2 nan, 2 inf          3       nan\n"));
}

TEST(Statistics, BinsByMagnitude) {
  EXPECT_EQ(trace::bin_of(0x1p-24), 0);
  EXPECT_EQ(trace::bin_of(-0x1.8p-23), 0);
  EXPECT_EQ(trace::bin_of(0x1p-22), 1);
  EXPECT_EQ(trace::bin_of(1.0), 12);
  EXPECT_EQ(trace::bin_of(-3.9), 12);
  EXPECT_EQ(trace::bin_of(4.0), 13);
  EXPECT_EQ(trace::bin_of(0x1p6), 15);
  EXPECT_EQ(trace::bin_of(1e300), 15);
  EXPECT_EQ(trace::bin_of(5e-324), 0);
}

}  // namespace
}  // namespace assay
