// Groups of flags that several commands share, and what the library is given for them.
#pragma once

#include <boost/json.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "assay/context.h"
#include "assay/generate.h"
#include "assay/model.h"
#include "flags.h"

namespace assay::cli {

// MODEL, or -m MODEL.
struct ModelFlag {
  std::string positional, flag;
  void add(Flags& flags);
  std::string path() const;  // UsageError where there is none, or two
};

// The path itself; Error(io) that says what to do where nothing is there.
const std::string& existing(const std::string& path);

// Where and how numbers are computed.
struct RuntimeFlags {
  int64_t n_ctx = 0, n_threads = 0, n_batch = 2048, n_ubatch = 512, activations = 15;
  std::optional<int64_t> n_gpu_layers;
  std::optional<std::string> devices, split_mode, tensor_split;
  std::string cache_k = "f16", cache_v = "f16", backend = "auto", kernels = "auto";
  std::optional<std::string> numerics;
  bool pin = false;

  // about_n_ctx: what -c means to the command.
  void add(Flags& flags, const std::string& about_n_ctx =
                             "Positions of the context; 0: the smaller of the model's own and 4096");
  ContextOptions options()
      const;  // Error(device) for a backend that is not built; notices for what has no effect

 private:
  void choose_devices(ContextOptions& o) const;
};

// A context, with a line of progress on a terminal while weights take long to reach a GPU.
Context make_context(std::shared_ptr<const Model> model, ContextOptions options);

struct SamplingFlags {
  int64_t seed = -1, n_predict = -1;
  std::optional<double> temperature, dynamic_range, dynamic_exponent, top_p, min_p, typical_p,
      top_n_sigma, xtc_probability, xtc_threshold, repeat_penalty, frequency_penalty,
      presence_penalty, dry_multiplier, dry_base;
  std::optional<int64_t> top_k, penalty_last_n, dry_allowed_length, dry_penalty_last_n;
  std::vector<std::string> dry_breakers, logit_bias, stop;
  bool ignore_eos = false, special = false, ignore_file = false;

  void add(Flags& flags);
  GenerateOptions options(
      const Model& model) const;  // the model's own defaults, and over them what the flags say
};

// The chat template and the system message.
struct TemplateFlags {
  std::optional<std::string> chat_template, chat_template_file, system, system_file;
  bool jinja = false;

  void add(Flags& flags);
  std::string template_text() const;  // empty: the model's own
  std::string system_text() const;    // empty: none
};

// What the numbers of a result rest on: the key "numerics" of every --json.
boost::json::object numerics_json(const Context& context);
boost::json::object timing_json(const PhaseTiming& timing);

// The file's content without one line break at its end, as llama.cpp reads prompts; checked to be
// UTF-8.
std::string prompt_from_file(const std::string& path);
std::string without_last_line_break(std::string text);

}  // namespace assay::cli
