// See quantize_target.h.
#include "commands/quantize_target.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <utility>

#include "assay/model.h"
#include "assay/quantize_target.h"
#include "flags/options.h"
#include "io/terminal.h"

namespace assay::cli {
namespace {

// What types are measured on where no text is given: about 250 tokens of prose, code, numbers and another language.
constexpr const char* kTargetText =
    "The harbour was quiet when the first boats came back. On the quay a woman counted the crates, wrote the number in "
    "a "
    "small book and asked the captain why he had been away for nine days instead of four. He said that the wind had "
    "turned, that they had waited behind an island, and that nobody had been afraid, which was almost true.\n\n"
    "A prime number is a natural number greater than 1 that is not a product of two smaller natural numbers. The first "
    "ones are 2, 3, 5, 7, 11, 13, 17, 19, 23 and 29; there are 168 of them below 1000.\n\n"
    "def mean(values):\n    total = 0.0\n    for value in values:\n        total += value\n    return total / "
    "len(values) if values else None\n\n"
    "Question: Which gas do plants take from the air, and what do they give back?\nAnswer: They take carbon dioxide "
    "and "
    "give back oxygen, which they make of water with the energy of light.\n\n"
    "Am Morgen des dritten Tages lag Schnee auf den D\xc3\xa4"
    "chern, und die Kinder liefen ohne M\xc3\xbctzen hinaus.\n";

// "700M", "2G", "1.5G": powers of ten.
uint64_t target_bytes(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  const double scale = unit == "G" || unit == "GB"   ? 1e9
                       : unit == "M" || unit == "MB" ? 1e6
                       : unit == "K" || unit == "KB" ? 1e3
                       : unit.empty()                ? 1
                                                     : 0;
  const double bytes = number * scale;
  if (error != std::errc() || !(bytes >= 1 && bytes < 1e18)) {
    throw UsageError(fmt::format("--target-size {}: needs a size such as 700M, 2.5G or 4096", text));
  }
  return static_cast<uint64_t>(bytes);
}

double target_bits(const std::string& text) {
  double bits = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bits);
  if (error != std::errc() || end != text.data() + text.size() || !(bits > 0 && bits <= 32)) {
    throw UsageError(fmt::format("--target-bpw {}: needs a number of bits above 0, up to 32", text));
  }
  return bits;
}

}  // namespace

void TargetFlags::add(Flags& flags) {
  flags.group("Types by measurement, in place of a recipe; TYPE may be left out");
  flags.value("--target-size", size, "N(K|M|G)", "The file's largest size: the types that cost least in KL divergence");
  flags.value("--target-bpw", bits, "BITS", "The same by bits per weight");
  flags.value("-f,--target-text", text, "FILE",
              "What the cost is measured on, its first 256 tokens; a built-in text where it is not given");
}

bool choose_by_target(const std::string& in, const TargetFlags& asked, QuantizeOptions& options) {
  if (asked.size && asked.bits) throw UsageError("--target-size and --target-bpw: one of them at most");
  TargetOptions target;
  if (asked.size) target.bytes_max = target_bytes(*asked.size);
  if (asked.bits) target.bits_per_weight = target_bits(*asked.bits);
  target.quantize = options;
  target.cancelled = options.cancelled;
  const auto tokenizer = Model::load(in)->tokenizer();
  Progress progress("measuring", "tensors");
  target.progress = [&](const std::string& tensor, int64_t done, int64_t total) {
    progress.update(done, total, tensor);
  };
  const TargetChoice choice =
      choose_types(in, tokenizer->encode(asked.text ? prompt_from_file(*asked.text) : kTargetText), target);
  if (choice.cancelled) return false;
  std::string lines;
  for (const auto& [regex, type] : choice.rules()) lines += fmt::format("{}={}\n", regex, type);
  Output().write(lines);
  notice(fmt::format("{} tensors, {} bytes at most, {:.4f} bits a weight, about {:.4g} of KL divergence",
                     choice.tensors.size(), choice.bytes, choice.bits_per_weight, choice.kl_divergence));
  notice(fmt::format("the same file: assay quantize IN OUT {} --tensor-type-file FILE, with these lines in FILE",
                     choice.type));
  options.type = choice.type;
  for (const auto& rule : choice.rules()) options.tensor_types.push_back(rule);
  return true;
}

}  // namespace assay::cli
