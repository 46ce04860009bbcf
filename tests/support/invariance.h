// Runs the same tokens in every way that must not matter (threads, chunks, kernels, partitions) and compares the
// digests of all logits and of the cache, with each other and with the golden ones in tests/data/digests.json.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "assay/context.h"
#include "backend/cpu/linear/linear.h"
#include "quant/format.h"
#include "support/goldens.h"
#include "support/random_weights.h"
#include "support/shared_data.h"
#include "support/temp_folder.h"
#include "support/tiny_llama.h"

namespace assay::test {

struct Digests {
  std::string logits;
  std::string kv;
  friend bool operator==(const Digests&, const Digests&) = default;
};
inline std::ostream& operator<<(std::ostream& out, const Digests& d) { return out << d.logits << " " << d.kv; }

// One numerics setting.
struct Setting {
  Numerics numerics = Numerics::exact;
  int activation_bits = 15;
  KvType cache = KvType::f16;

  std::string name() const {
    const std::string mode =
        numerics == Numerics::exact ? "exact/" + std::to_string(activation_bits) : std::string(assay::name(numerics));
    return mode + " " + std::string(assay::name(cache));
  }
};

inline std::vector<Setting> all_settings() {
  std::vector<Setting> settings;
  for (const KvType cache : {KvType::f16, KvType::q8_0, KvType::f32}) {
    settings.push_back({Numerics::exact, 15, cache});
    settings.push_back({Numerics::exact, 8, cache});
    settings.push_back({Numerics::f32, 15, cache});
  }
  return settings;
}

// One way to run, none of which may change a bit.
struct Way {
  int n_threads = 2;
  int64_t n_ubatch = 512;
  Kernels kernels = Kernels::best;
  std::vector<size_t> pieces;  // lengths of the calls; empty: one call
  Backend backend = Backend::cpu;
  int64_t n_gpu_layers = -1;
  std::vector<int> devices = {};
  SplitMode split_mode = SplitMode::layer;
  std::string kernel_row = {};

  std::string name() const {
    const std::string split = n_gpu_layers < 0 && devices.empty()
                                  ? ""
                                  : ", -ngl " + std::to_string(n_gpu_layers) + " over " +
                                        std::to_string(devices.size()) + " named devices" +
                                        (split_mode == SplitMode::tensor ? ", tensor" : "");
    return std::string(assay::name(backend)) + split + ", " + std::to_string(n_threads) + " threads, ubatch " +
           std::to_string(n_ubatch) + ", " + std::string(assay::name(kernels)) +
           (kernel_row.empty() ? "" : ":" + kernel_row) + ", " + std::to_string(std::max<size_t>(1, pieces.size())) +
           " calls";
  }
};

inline bool can_run(Kernels kernels) { return backend::cpu::can_run(kernels); }

inline std::vector<size_t> random_pieces(size_t n_tokens, uint64_t seed) {
  Random random(seed);
  const int longest = 1 + random.below(60);
  std::vector<size_t> pieces;
  for (size_t done = 0; done < n_tokens; done += pieces.back()) {
    pieces.push_back(std::min(n_tokens - done, static_cast<size_t>(1 + random.below(longest))));
  }
  return pieces;
}

inline std::vector<TokenId> random_tokens(int n, int vocab_size) {
  Random random(7);
  std::vector<TokenId> ids;
  for (int i = 0; i < n; ++i) ids.push_back(random.below(vocab_size));
  return ids;
}

inline std::vector<tensor::DType> all_dtypes() {
  std::vector<tensor::DType> dtypes;
  for (const quant::Format& format : quant::all_formats()) dtypes.push_back(format.dtype);
  return dtypes;
}

// What the golden digests are of: by its name in the book a model, and the ids that it runs.
struct GoldenModel {
  std::string name;
  std::shared_ptr<const Model> model;
  std::vector<TokenId> ids;
};

// The small random model in this format.
inline GoldenModel golden_tiny_model(tensor::DType dtype) {
  TinyLlama spec;
  spec.dtype = dtype;
  const TempFolder folder;
  TinyLlamaWriter(spec).file().write(folder / "tiny.gguf");
  return {"random " + std::string(tensor::traits(dtype).name),
          Model::load((folder / "tiny.gguf").string(), {.tokenizer = false}), random_tokens(100, 96)};
}

// A real model, and 80 ids of the longest of its golden prompts.
inline GoldenModel golden_real_model(const std::filesystem::path& path) {
  const std::vector<GoldenPrompt> prompts = read_goldens(data("goldens/" + path.stem().string() + ".json"));
  const auto longest = std::max_element(prompts.begin(), prompts.end(),
                                        [](const auto& a, const auto& b) { return a.ids.size() < b.ids.size(); });
  return {path.stem().string(),
          Model::load(path.string(), {.tokenizer = false}),
          {longest->ids.begin(), longest->ids.begin() + 80}};
}

inline Digests run_digests(const std::shared_ptr<const Model>& model, std::span<const TokenId> ids,
                           const Setting& setting, const Way& way) {
  ContextOptions options;
  options.n_ctx = static_cast<int64_t>(ids.size()) + 20;
  options.n_ubatch = way.n_ubatch;
  options.n_outputs_max = way.n_ubatch;
  options.n_threads = way.n_threads;
  options.numerics = setting.numerics;
  options.activation_bits = setting.activation_bits;
  options.cache_k = options.cache_v = setting.cache;
  options.kernels = way.kernels;
  options.kernel_row = way.kernel_row;
  options.backend = way.backend;
  options.n_gpu_layers = way.n_gpu_layers;
  options.devices = way.devices;
  options.split_mode = way.split_mode;
  Context context(model, options);
  bool finite = true;  // NaNs would agree in anything
  const auto look = [&](int64_t, std::span<const double> logits) { finite = finite && std::isfinite(logits[0]); };
  if (way.pieces.empty()) context.decode_all(ids, look);
  for (size_t piece = 0, done = 0; piece < way.pieces.size(); done += way.pieces[piece++]) {
    context.decode_all(ids.subspan(done, way.pieces[piece]), look);
  }
  EXPECT_TRUE(finite);
  return {context.logits_digest(), context.kv_digest()};
}

// The golden digests of numerics version 1.
class DigestBook {
 public:
  DigestBook() {
    const boost::json::object book = read_json(data("digests.json"));
    for (const auto& entry : book.at("digests").as_object()) {
      const boost::json::array& pair = entry.value().as_array();
      digests_[std::string(entry.key())] = {pair[0].as_string().c_str(), pair[1].as_string().c_str()};
    }
  }
  void check(const std::string& key, const Digests& found) const {
    const auto entry = digests_.find(key);
    if (entry == digests_.end() || !(entry->second == found)) {
      ADD_FAILURE() << "not the golden digest of numerics 1:\n    \"" << key << "\": [\"" << found.logits << "\", \""
                    << found.kv << "\"],";
    }
  }

 private:
  std::map<std::string, Digests> digests_;
};

// Every way must give the digests of the first, and these must be the golden ones.
inline void expect_invariant(const GoldenModel& golden, const Setting& setting, const std::vector<Way>& ways,
                             const DigestBook& book, int64_t& n_runs) {
  const auto& [name, model, ids] = golden;
  const std::string key = name + " " + setting.name();
  const Digests first = run_digests(model, ids, setting, ways.front());
  book.check(key, first);
  ++n_runs;
  for (size_t i = 1; i < ways.size(); ++i) {
    if (!can_run(ways[i].kernels)) continue;
    EXPECT_EQ(run_digests(model, ids, setting, ways[i]), first) << key << ": " << ways[i].name();
    ++n_runs;
  }
}

}  // namespace assay::test
