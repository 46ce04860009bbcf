// See options.h.
#include "options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <string_view>

#include "assay/error.h"

namespace exporter {
namespace {

using assay::Errc;
using assay::Error;

int32_t parse_int(std::string_view flag, std::string_view text, int32_t min) {
  int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < min) {
    throw Error(Errc::bad_request, fmt::format("{}: needs a whole number from {} on, found \"{}\"", flag, min, text));
  }
  return value;
}

std::vector<int32_t> parse_ids(std::string_view text) {
  std::vector<int32_t> ids;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    ids.push_back(parse_int("--ids", text.substr(begin, end - begin), 0));
    begin = end + 1;
  }
  return ids;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) throw Error(Errc::io, fmt::format("{}: cannot be read", path));
  return text;
}

void parse_layers(std::string_view text, Options& options) {
  const size_t dash = std::min(text.find('-'), text.size());
  options.layer_first = parse_int("--layers", text.substr(0, dash), 0);
  options.layer_last =
      dash == text.size() ? options.layer_first : parse_int("--layers", text.substr(dash + 1), options.layer_first);
}

bool parse_choice(std::string_view flag, std::string_view text, std::string_view yes, std::string_view no) {
  if (text != yes && text != no)
    throw Error(Errc::bad_request, fmt::format("{}: needs {} or {}, found \"{}\"", flag, yes, no, text));
  return text == yes;
}

void check(const Options& options) {
  if (options.model_path.empty()) throw Error(Errc::bad_request, "-m: needs a model");
  if (options.out_path.empty()) throw Error(Errc::bad_request, "-o: needs the dump's path");
  if (options.has_text == !options.ids.empty()) throw Error(Errc::bad_request, "needs one of -p, -f and --ids");
}

}  // namespace

Options parse_options(int n_arguments, const char* const* arguments) {
  Options options;
  for (int i = 1; i < n_arguments; ++i) {
    const std::string_view flag = arguments[i];
    const auto value = [&]() -> std::string {
      if (i + 1 == n_arguments) throw Error(Errc::bad_request, fmt::format("{}: needs a value", flag));
      return arguments[++i];
    };
    const auto set_text = [&](std::string text) {
      options.text = std::move(text);
      options.has_text = true;
    };
    if (flag == "-m")
      options.model_path = value();
    else if (flag == "-p")
      set_text(value());
    else if (flag == "-f")
      set_text(read_file(value()));
    else if (flag == "--ids")
      options.ids = parse_ids(value());
    else if (flag == "-o")
      options.out_path = value();
    else if (flag == "--special")
      options.parse_special = true;
    else if (flag == "-ub")
      options.n_ubatch = parse_int(flag, value(), 1);
    else if (flag == "-t")
      options.n_threads = parse_int(flag, value(), 1);
    else if (flag == "--outputs")
      options.all_outputs = parse_choice(flag, value(), "all", "last");
    else if (flag == "--layers")
      parse_layers(value(), options);
    else if (flag == "--cache")
      options.cache_f32 = parse_choice(flag, value(), "f32", "f16");
    else if (flag == "--no-repack")
      options.repack = false;
    else if (flag == "--verbose")
      options.verbose = true;
    else
      throw Error(Errc::bad_request, fmt::format("unknown flag \"{}\"\n{}", flag, usage()));
  }
  check(options);
  return options;
}

std::string usage() {
  return "usage: assay-export-llama-cpp -m MODEL.gguf (-p TEXT | -f FILE | --ids 1,2,3) -o "
         "OUT.dump\n"
         "  --special             text of special tokens in the prompt is those tokens\n"
         "  -ub N                 tokens per batch (512)\n"
         "  -t N                  threads\n"
         "  --outputs all|last    logits of every token, or of the last (all)\n"
         "  --layers A-B          only these layers; the embeddings go with layer 0, the last norm "
         "and the logits with "
         "the last\n"
         "  --cache f16|f32       type of the KV cache (f16)\n"
         "  --no-repack           weights as the file has them: llama.cpp's other kernels\n"
         "  --verbose             llama.cpp's log\n";
}

}  // namespace exporter
