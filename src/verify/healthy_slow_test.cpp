// No false alarm: 1,000 random small models in every format, numerics, cache type and kernel set,
// cut into random chunks, and both real models. Prints how tight the bounds are.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>

#include "assay/model.h"
#include "engine/model_state.h"
#include "support/checked_run.h"
#include "support/rounds.h"
#include "support/shared_data.h"
#include "support/tiny_plan.h"

namespace assay::verify {
namespace {

using test::CheckedRun;
using test::CheckedSetting;
using test::Random;

// How tight the bounds of one kind of op are: bound / error of ops, and the least that any element
// left.
struct Slack {
  double worst_ratio = 0;
  std::vector<double> given, declared;
};

class Tightness {
 public:
  void add(const bounds::OpChecker& checker) {
    for (const OpFigures& f : checker.figures()) {
      Slack& s = kinds_[f.kind];
      s.worst_ratio = std::max(s.worst_ratio, f.worst_ratio);
      if (f.local_error > 0) s.given.push_back(f.bound / f.local_error);
      if (f.declared_error > 0) s.declared.push_back(f.declared_bound / f.declared_error);
    }
  }
  void print(const std::string& name) {
    for (auto& [kind, s] : kinds_) {
      fmt::print(
          "{:24} {:10} bound / error: median {:7.1f}, least {:6.1f}; as declared {:7.1f}, {:6.1f}; "
          "worst element at {:.2f} of its bound\n",
          name, kind, middle(s.given), least(s.given), middle(s.declared), least(s.declared), s.worst_ratio);
    }
  }

 private:
  static double least(const std::vector<double>& x) { return x.empty() ? NAN : *std::min_element(x.begin(), x.end()); }
  static double middle(std::vector<double>& x) {
    if (x.empty()) return NAN;
    std::nth_element(x.begin(), x.begin() + static_cast<int64_t>(x.size() / 2), x.end());
    return x[x.size() / 2];
  }
  std::map<std::string, Slack> kinds_;
};

template <class T>
T any_of(Random& random, std::initializer_list<T> choices) {
  return choices.begin()[random.below(static_cast<int>(choices.size()))];
}

test::TinyShape random_shape(Random& random, ops::CacheType cache) {
  test::TinyShape s;
  const auto formats = quant::all_formats();
  const quant::Format& format = formats[static_cast<size_t>(random.below(static_cast<int>(formats.size())))];
  s.dtype = format.dtype;
  s.n_kv_heads = any_of<int64_t>(random, {1, 1, 2, 3});
  s.n_heads = s.n_kv_heads * any_of<int64_t>(random, {1, 2, 3, 4});
  s.head_dim = any_of<int64_t>(random, {32, 64, 96});
  const int64_t unit = tensor::traits(format.dtype).block_elements;
  if (unit == 256) {  // the width of all heads is a row of weights as well
    s.head_dim = any_of<int64_t>(random, {64, 128});
    s.n_heads = 256 / s.head_dim;
    s.n_kv_heads = any_of<int64_t>(random, {1, 2});
    s.d_model = 256, s.d_ff = 256 * any_of<int64_t>(random, {1, 2});
  } else if (unit == 32) {
    s.d_model = 32 * (1 + random.below(5)), s.d_ff = 32 * (1 + random.below(8));
  } else {
    s.d_model = 1 + random.below(150), s.d_ff = 1 + random.below(200);
    if (cache != ops::CacheType::q8_0) s.head_dim = 2 * (1 + random.below(40));
  }
  s.rope_dim = random.below(3) == 0 ? 2 * (1 + random.below(static_cast<int>(s.head_dim / 2))) : 0;
  s.rope_theta = any_of(random, {1e4, 1e6, 5e5, 100.0});
  s.rope_factor = any_of(random, {1.0, 1.0, 8.0});
  s.rope_magnitude = any_of(random, {1.0, 1.0, 1.2});
  s.vocab_size = 8 + random.below(120);
  s.n_layers = 1 + random.below(2);
  s.window = random.below(2) * (1 + random.below(9));
  s.gemma = random.below(3) == 0;
  s.tied = random.below(2) == 0;
  s.biases = random.below(3) == 0;
  s.eps = any_of(random, {1e-5f, 1e-6f, 1e-3f});
  s.attn_norm = any_of(random, {1.0f, 0.2f, 0.05f});
  s.seed = random.next() % 1'000'000;
  return s;
}

TEST(VerifyHealthy, RandomSmallModelsStayWithinTheirBounds) {
  base::ThreadPool pool(2);
  Tightness tightness;
  const std::vector<CheckedSetting> settings = test::checked_settings();
  const auto sets = backend::cpu::kernel_sets();
  int n_failed = 0;
  const int n_models = test::rounds(1000, 200);
  for (int i = 0; i < n_models && n_failed < 10; ++i) {
    Random random(static_cast<uint64_t>(i) + 1);
    CheckedSetting setting = settings[static_cast<size_t>(random.below(static_cast<int>(settings.size())))];
    setting.kernels = sets[static_cast<size_t>(random.below(static_cast<int>(sets.size())))];
    const test::TinyPlan tiny(random_shape(random, setting.cache));
    CheckedRun run(tiny.plan, setting, pool, 320, 2);
    const bool is_long = i % 50 == 0;  // across a segment of attention
    const std::vector<int32_t> tokens =
        run.random_tokens(is_long ? 300 : 6 + random.below(14), static_cast<uint64_t>(i));
    for (size_t done = 0; done < tokens.size();) {
      const size_t n = std::min(tokens.size() - done, static_cast<size_t>(1 + random.below(is_long ? 200 : 12)));
      run.run(std::span(tokens).subspan(done, n), random.below(2), nullptr, random.below(2) == 0);
      done += n;
    }
    EXPECT_EQ(run.failure(), "") << "model " << i << ", " << tensor::traits(tiny.plan.weights[0].view.dtype).name
                                 << ", " << setting.name;
    n_failed += run.checker.place().has_value() ? 1 : 0;
    if (!setting.oracle) tightness.add(run.checker);
  }
  tightness.print(fmt::format("{} small models", n_models));
}

void check_real(const std::filesystem::path& path, const char* title, const CheckedSetting& setting, int n_tokens) {
  ASSAY_REQUIRE_FILE(path);
  const std::shared_ptr<const Model> model = Model::load(path.string());
  const ops::Plan& plan = model->state().built.plan;
  base::ThreadPool pool(base::physical_cores());
  CheckedRun run(plan, setting, pool, n_tokens);
  const std::string text =
      "The quick brown fox, 3 of them: jumps over 12,345 lazy dogs.\n\tIt's 2026; caf\u00e9 "
      "\u4f60\u597d \U0001F600 <|im_end|>    four spaces.\n"
      "In the beginning the Universe was created. This has made a lot of people very angry and "
      "been widely regarded as a bad move. ";
  std::vector<int32_t> ids = model->tokenizer()->encode(text, {});
  while (static_cast<int>(ids.size()) < n_tokens)
    ids.insert(
        ids.end(), ids.begin(),
        ids.begin() + std::min<int64_t>(static_cast<int64_t>(ids.size()), n_tokens - static_cast<int64_t>(ids.size())));
  ids.resize(static_cast<size_t>(n_tokens));
  const auto begin = std::chrono::steady_clock::now();
  run.run(std::span(ids).first(static_cast<size_t>(n_tokens - 5)), 0, nullptr, false);
  run.run(std::span(ids).last(5));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_EQ(run.failure(), "") << title << ", " << setting.name;
  Tightness tightness;
  tightness.add(run.checker);
  tightness.print(fmt::format("{} {}", title, setting.name));
  fmt::print("{} {}: {} tokens in {:.1f} s\n", title, setting.name, n_tokens, seconds);
}

TEST(VerifyHealthy, SmolLM2StaysWithinItsBounds) {
  for (const size_t i : {1, 2, 3})
    check_real(test::smollm2(), "SmolLM2", test::checked_settings()[i], test::rounds(64, 32));
}

TEST(VerifyHealthy, Gemma3StaysWithinItsBounds) {
  for (const size_t i : {1, 2, 6})
    check_real(test::gemma3(), "Gemma-3", test::checked_settings()[i], test::rounds(64, 24));
}

}  // namespace
}  // namespace assay::verify
