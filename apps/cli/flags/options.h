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
#include "assay/scheduler.h"
#include "flags/flags.h"

namespace assay::cli {

// MODEL, or -m MODEL.
struct ModelFlag {
  std::string positional, flag, repository, url;  // one of them at most
  void add(Flags& flags);
  std::string path() const;      // as it was given; UsageError where there is none
  std::string resolved() const;  // the file itself, fetched first where -hf or -mu ask for it
};

// The path of a model by its path or its name in a store; Error(io) that says what to do where there is none,
// Error(bad_request) where several are meant.
std::string existing(const std::string& path_or_name);

// -t, -b, -ub and -ngl as lists, "1,2", of which bench measures every combination.
struct RuntimeLists {
  std::string threads = "0", batches = "2048", ubatches = "512";
  std::optional<std::string> gpu_layers;
};

std::vector<std::string> kernel_set_names();  // what --kernels takes, a row after a colon too

// Where and how numbers are computed.
struct RuntimeFlags {
  int64_t n_ctx = 0, n_threads = 0, n_batch = 2048, n_ubatch = 512, activations = 15;
  std::optional<int64_t> n_gpu_layers;
  std::optional<std::string> devices, split_mode, tensor_split;
  std::string cache_k = "f16", cache_v = "f16", backend = "auto", kernels = "auto";
  std::optional<std::string> numerics;
  bool pin = false, verbose = false;
  bool has_kernels_flag = true;  // false: the command declares --kernels by itself
  bool needs_cuda = true;        // false: --backend cuda may be asked for without a GPU here, and nothing runs

  // about_n_ctx: what -c means to the command. lists: where they are given, they take the place of the members.
  void add(Flags& flags,
           const std::string& about_n_ctx = "Positions of the context; 0: the smaller of the model's own and 4096",
           RuntimeLists* lists = nullptr);
  ContextOptions options() const;  // Error(device) for a backend that is not built; notices for what has no effect

 private:
  void add_lists(Flags& flags, RuntimeLists& lists);
  void choose_devices(ContextOptions& o) const;
  void say(const std::string& text) const;  // once, however often options() is asked
  mutable std::vector<std::string> said_;
};

// A context, with a line of progress on a terminal while weights take long to reach a GPU. verbose: says what it runs
// on and takes.
Context make_context(std::shared_ptr<const Model> model, ContextOptions options, bool verbose = false);
// The same for what answers one request at a time; keeps: what it holds of a prompt is of use to a later one.
std::unique_ptr<Scheduler> make_single_scheduler(std::shared_ptr<const Model> model, const ContextOptions& options,
                                                 DraftOptions drafts, bool keeps, bool verbose);
// One line where ops run by their reference, for want of a kernel on the device.
void say_borrowed(const Context& context);
// One line where the context is longer than the model was trained for.
void warn_beyond_training(const Context& context);

// --color [WHEN], for want_colour().
void add_colour(Flags& flags, std::string& when);
// What llama.cpp's programs take and nothing here needs: for run and chat.
void add_conversation_habits(Flags& flags);

struct SamplingFlags {
  std::optional<uint64_t> seed;  // none: a new one each time
  int64_t n_predict = -1;
  std::optional<double> temperature, dynamic_range, dynamic_exponent, top_p, min_p, typical_p, top_n_sigma,
      xtc_probability, xtc_threshold, repeat_penalty, frequency_penalty, presence_penalty, dry_multiplier, dry_base;
  std::optional<int64_t> top_k, penalty_last_n, dry_allowed_length, dry_penalty_last_n;
  std::vector<std::string> dry_breakers, logit_bias, stop;
  bool ignore_eos = false, special = false, ignore_file = false;

  void add(Flags& flags);
  GenerateOptions options(const Model& model) const;  // the model's own defaults, and over them what the flags say
};

// The chat template and the system message.
struct TemplateFlags {
  std::optional<std::string> chat_template, chat_template_file, system, system_file;

  void add(Flags& flags);
  std::string template_text() const;                  // empty: the model's own
  std::optional<std::string> system_message() const;  // which may be empty: that is not the template's own
  std::string system_text() const;                    // empty: none
};

// What the numbers of a result rest on: the key "numerics" of every --json.
boost::json::object numerics_json(const Context& context);
boost::json::object numerics_json(const ContextOptions& options, std::string_view kernels);
boost::json::object timing_json(const PhaseTiming& timing);

// The file's content without one line break at its end, as llama.cpp reads prompts; checked to be
// UTF-8.
std::string prompt_from_file(const std::string& path);  // "-" is standard input
std::string without_last_line_break(std::string text);
// "1 token", "2 tokens"
std::string count_of(int64_t n, std::string_view thing);
// "5 tokens, 12.3 tokens/s"; where nothing was timed (of one token the prompt has the time): "1 token"
std::string with_rate(const std::string& count, double tokens_per_second);

}  // namespace assay::cli
