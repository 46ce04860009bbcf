// Reads general.sampling.* as llama.cpp writes it.
#include "engine/sampling/sampling_defaults.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "assay/error.h"
#include "assay/model.h"
#include "engine/model_state.h"

namespace assay {
namespace engine {
namespace {

// llama.cpp's names of our steps, in their order.
constexpr std::string_view kSteps[] = {"penalties", "dry",   "top_n_sigma", "top_k",      "typ_p",
                                       "top_p",     "min_p", "xtc",         "temperature"};

// The steps that a file's sequence ("top_k;top_p;temperature") names; those it leaves out are off
// unless a flag turns them on.
void apply_sequence(std::string_view sequence, SamplerOptions& options) {
  size_t step = 0;
  bool named[std::size(kSteps)] = {};
  while (!sequence.empty()) {
    const size_t end = std::min(sequence.find(';'), sequence.size());
    const std::string_view word = sequence.substr(0, end);
    sequence.remove_prefix(std::min(end + 1, sequence.size()));
    const auto at = static_cast<size_t>(std::find(kSteps + step, std::end(kSteps), word) - kSteps);
    if (at == std::size(kSteps)) {
      const bool known = std::find(kSteps, std::end(kSteps), word) != std::end(kSteps);
      throw Error(Errc::unsupported,
                  fmt::format("general.sampling.sequence: {} '{}'; --no-model-sampling leaves the file's "
                              "wishes out",
                              known ? "another order of steps than ours, at" : "unknown step", word));
    }
    named[at] = true;
    step = at + 1;
  }
  const auto is_off = [&](std::string_view name) { return !named[std::find(kSteps, std::end(kSteps), name) - kSteps]; };
  if (is_off("penalties")) options.penalty_last_n = 0;
  if (is_off("top_k")) options.top_k = 0;
  if (is_off("top_p")) options.top_p = 1;
  if (is_off("min_p")) options.min_p = 0;
  if (is_off("xtc")) options.xtc_probability = 0;
  if (is_off("temperature")) options.temperature = 1;
}

}  // namespace

SamplerOptions default_sampling(const gguf::Metadata& metadata) {
  SamplerOptions o;
  const auto number = [&](std::string_view key, double& target) {
    if (const auto value = metadata.find_float(key)) target = *value;
  };
  const auto count = [&](std::string_view key, int64_t& target) {
    if (const auto value = metadata.find_integer(key)) target = *value;
  };
  count("general.sampling.top_k", o.top_k);
  number("general.sampling.top_p", o.top_p);
  number("general.sampling.min_p", o.min_p);
  number("general.sampling.xtc_probability", o.xtc_probability);
  number("general.sampling.xtc_threshold", o.xtc_threshold);
  number("general.sampling.temp", o.temperature);
  count("general.sampling.penalty_last_n", o.penalty_last_n);
  number("general.sampling.penalty_repeat", o.repeat_penalty);
  if (const auto mirostat = metadata.find_integer("general.sampling.mirostat"); mirostat.value_or(0) != 0) {
    throw Error(Errc::unsupported, fmt::format("general.sampling.mirostat {}: mirostat is not "
                                               "served; --no-model-sampling leaves the file's "
                                               "wishes out",
                                               *mirostat));
  }
  if (const auto sequence = metadata.find_string("general.sampling.sequence")) apply_sequence(*sequence, o);
  try {
    check(o);
  } catch (const Error& e) {
    throw Error(Errc::bad_file,
                fmt::format("general.sampling: {}; --no-model-sampling leaves the file's wishes out", e.what()));
  }
  return o;
}

}  // namespace engine

SamplerOptions default_sampling(const Model& model) { return engine::default_sampling(model.state().file.metadata()); }

}  // namespace assay
