// Dumps that Hugging Face transformers made of small random models (tests/data/dumps/make_dumps.py) against our own
// values, op by op: names, rows, the order within heads, and every number. Transformers computes in f32, hence the
// tolerance (the worst measured is 4.2e-6).
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "engine/context_state.h"
#include "ops/plan/op_values.h"
#include "support/shared_data.h"
#include "trace/dump.h"

namespace assay {
namespace {

constexpr double kTolerance = 1e-5;  // of the op's root mean square

struct SeenValues {
  int64_t width = 0;
  std::vector<double> values;
};
using Values = std::map<std::string, SeenValues>;

class ValueCollector final : public ops::OpObserver {
 public:
  bool wants(const ops::Op& op) override { return !ops::passes_on(op); }
  void on_op(const ops::Op& op, int64_t, int64_t width, std::span<const double> values) override {
    SeenValues& seen = ops[op.name];
    seen.width = width;
    seen.values.insert(seen.values.end(), values.begin(), values.end());
  }
  Values ops;
};

Values read_dump(const std::filesystem::path& path, std::vector<TokenId>& ids) {
  Values values;
  trace::DumpReader reader(path.string());
  for (auto kind = reader.next(); kind != trace::DumpReader::Kind::end; kind = reader.next()) {
    if (kind == trace::DumpReader::Kind::batch) {
      ids.insert(ids.end(), reader.batch().tokens.begin(), reader.batch().tokens.end());
      continue;
    }
    SeenValues& seen = values[reader.tensor().op];
    seen.width = reader.tensor().width;
    seen.values.insert(seen.values.end(), reader.tensor().values.begin(), reader.tensor().values.end());
  }
  return values;
}

double difference(const SeenValues& found, const SeenValues& expected) {  // the largest, by the root mean square
  EXPECT_EQ(found.width, expected.width);
  EXPECT_EQ(found.values.size(), expected.values.size());
  double largest = 0, squares = 0;
  for (size_t i = 0; i < expected.values.size(); ++i) {
    largest = std::max(largest, std::abs(found.values[i] - expected.values[i]));
    squares += expected.values[i] * expected.values[i];
  }
  return largest / std::sqrt(squares / static_cast<double>(expected.values.size()));
}

class TransformersDump : public ::testing::TestWithParam<std::tuple<const char*, Numerics>> {
 protected:
  static Values own_values(const std::vector<TokenId>& ids) {
    ContextOptions options;
    options.n_threads = 1;
    options.n_ctx = 64;
    options.numerics = std::get<1>(GetParam());
    options.cache_k = options.cache_v = KvType::f32;
    Context context(Model::load(test::data(std::string("dumps/") + std::get<0>(GetParam()) + ".gguf").string(),
                                {.tokenizer = false}),
                    options);
    ValueCollector collector;
    const engine::Watched watched(context.state(), collector);
    context.decode_all(ids, nullptr);
    return std::move(collector.ops);
  }
};

TEST_P(TransformersDump, AgreesOpByOp) {
  std::vector<TokenId> ids;
  Values found = read_dump(test::data(std::string("dumps/") + std::get<0>(GetParam()) + ".dump"), ids);
  const Values expected = own_values(ids);
  ASSERT_EQ(ids.size(), 13u);
  for (const auto& [name, seen] : expected) {
    ASSERT_TRUE(found.contains(name)) << name;
    EXPECT_LT(difference(found.at(name), seen), kTolerance) << name;
  }
  EXPECT_EQ(found.size(), expected.size());
  // Two elements of a head that change places are seen.
  SeenValues& q = found.at("blk.1.attn_q");
  std::swap(q.values[1], q.values[4]);
  EXPECT_GT(difference(q, expected.at("blk.1.attn_q")), 0.01);
}

INSTANTIATE_TEST_SUITE_P(All, TransformersDump,
                         ::testing::Combine(::testing::Values("llama", "gemma3"),
                                            ::testing::Values(Numerics::f32, Numerics::oracle)),
                         [](const auto& parameters) {
                           return std::string(std::get<0>(parameters.param)) + "_" +
                                  std::string(name(std::get<1>(parameters.param)));
                         });

}  // namespace
}  // namespace assay
