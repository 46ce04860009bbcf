// The exporter's flags.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace exporter {

struct Options {
  std::string model_path;
  std::string text;  // -p, -f
  bool has_text = false;
  std::vector<int32_t> ids;  // --ids
  std::string out_path;
  bool parse_special = false;  // the prompt's text of special tokens is those tokens
  int n_ubatch = 512;
  int n_threads = 0;        // 0: llama.cpp's own choice
  bool all_outputs = true;  // logits of every token; else of the last one
  int layer_first = 0,
      layer_last = INT32_MAX;  // the embeddings go with layer 0, norm and logits with the last
  bool cache_f32 = false;
  bool repack = true;  // llama.cpp's extra buffer types: other kernels, the same graph
  bool verbose = false;
};

// assay::Error(bad_request) for what it does not understand.
Options parse_options(int n_arguments, const char* const* arguments);

std::string usage();

}  // namespace exporter
