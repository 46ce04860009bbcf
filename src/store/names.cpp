// See names.h.
#include "store/names.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>
#include <vector>

namespace assay::store {
namespace {

constexpr std::string_view kExtension = ".gguf";
constexpr size_t kNameBytesMax = 200;  // of the 255 of a file system: endings come behind it

char lower_of(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

std::optional<int64_t> number_of(std::string_view digits) {
  int64_t value = 0;
  const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (problem != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

// Bits a weight, scales among them, of the mixtures that files are named after.
constexpr std::array<std::pair<std::string_view, double>, 45> kQuants = {{
    {"IQ1_S", 1.6},   {"IQ1_M", 1.8},  {"TQ1_0", 1.7},   {"TQ2_0", 2.1},   {"IQ2_XXS", 2.1}, {"IQ2_XS", 2.3},
    {"IQ2_S", 2.5},   {"IQ2_M", 2.7},  {"Q2_K", 2.6},    {"Q2_K_S", 2.5},  {"Q2_K_L", 2.8},  {"Q2_K_XL", 2.8},
    {"IQ3_XXS", 3.1}, {"IQ3_XS", 3.3}, {"IQ3_S", 3.4},   {"IQ3_M", 3.6},   {"Q3_K_S", 3.4},  {"Q3_K", 3.9},
    {"Q3_K_M", 3.9},  {"Q3_K_L", 4.2}, {"Q3_K_XL", 4.3}, {"IQ4_XS", 4.3},  {"MXFP4", 4.3},   {"IQ4_NL", 4.5},
    {"Q4_0", 4.5},    {"Q4_K_S", 4.6}, {"Q4_K", 4.83},   {"Q4_K_M", 4.83}, {"Q4_K_L", 4.9},  {"Q4_K_XL", 4.9},
    {"Q4_1", 5.0},    {"Q5_0", 5.5},   {"Q5_K_S", 5.5},  {"Q5_K", 5.7},    {"Q5_K_M", 5.7},  {"Q5_K_L", 5.8},
    {"Q5_K_XL", 5.8}, {"Q5_1", 6.0},   {"Q6_K", 6.6},    {"Q6_K_L", 6.7},  {"Q6_K_XL", 6.8}, {"Q8_0", 8.5},
    {"Q8_K_XL", 9.0}, {"F16", 16.0},   {"F32", 32.0},
}};

bool is_quant(std::string_view token) { return bits_of_quant(token) > 0; }

}  // namespace

bool equal_without_case(std::string_view a, std::string_view b) {
  return a.size() == b.size() && begins_without_case(a, b);
}

bool begins_without_case(std::string_view text, std::string_view beginning) {
  return text.size() >= beginning.size() && std::equal(beginning.begin(), beginning.end(), text.begin(),
                                                       [](char a, char b) { return lower_of(a) == lower_of(b); });
}

bool is_gguf_name(std::string_view file_name) {
  return file_name.size() > kExtension.size() &&
         equal_without_case(file_name.substr(file_name.size() - kExtension.size()), kExtension);
}

std::string stem_of(std::string_view file_name) {
  return std::string(is_gguf_name(file_name) ? file_name.substr(0, file_name.size() - kExtension.size()) : file_name);
}

std::optional<PartName> part_name(std::string_view file_name) {
  constexpr size_t kSuffix = std::string_view("-00001-of-00003").size();
  if (!is_gguf_name(file_name)) return std::nullopt;
  const std::string stem = stem_of(file_name);
  if (stem.size() <= kSuffix) return std::nullopt;
  const std::string_view suffix = std::string_view(stem).substr(stem.size() - kSuffix);
  if (suffix[0] != '-' || suffix.substr(6, 4) != "-of-") return std::nullopt;
  const auto number = number_of(suffix.substr(1, 5)), count = number_of(suffix.substr(10, 5));
  if (!number || !count || *number < 1 || *number > *count) return std::nullopt;
  return PartName{stem.substr(0, stem.size() - kSuffix), *number, *count};
}

std::string part_file(std::string_view stem, int64_t number, int64_t count) {
  if (count <= 1) return fmt::format("{}.gguf", stem);
  return fmt::format("{}-{:05}-of-{:05}.gguf", stem, number, count);
}

double bits_of_quant(std::string_view quant) {
  std::string upper(quant);
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; });
  if (upper.starts_with("UD-")) upper.erase(0, 3);
  if (upper == "BF16" || upper == "FP16") upper = "F16";
  if (upper == "FP32") upper = "F32";
  for (const auto& [known, bits] : kQuants) {
    if (upper == known) return bits;
  }
  return 0;
}

std::string quant_of(std::string_view stem) {
  for (size_t end = stem.size(); end > 0;) {
    const size_t separator = stem.find_last_of("-.", end - 1);
    const size_t begin = separator == std::string_view::npos ? 0 : separator + 1;
    if (is_quant(stem.substr(begin, end - begin))) {
      const bool is_dynamic =
          begin >= 3 && equal_without_case(stem.substr(begin - 3, 2), "UD") && (begin == 3 || stem[begin - 4] == '-');
      return std::string(is_dynamic ? stem.substr(begin - 3, end - begin + 3) : stem.substr(begin, end - begin));
    }
    if (separator == std::string_view::npos) break;
    end = separator;
  }
  return {};
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = diagonal + (lower_of(a[i - 1]) == lower_of(b[j - 1]) ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({changed, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

bool is_safe_file_name(std::string_view name) {
  return !name.empty() && name.size() <= kNameBytesMax && name.front() != '.' && name.front() != '-' &&
         std::none_of(name.begin(), name.end(), [](char c) { return is_control(c) || c == '/' || c == '\\'; });
}

bool is_safe_relative_path(std::string_view path) {
  for (size_t begin = 0;;) {
    const size_t end = std::min(path.find('/', begin), path.size());
    if (!is_safe_file_name(path.substr(begin, end - begin))) return false;
    if (end == path.size()) return true;
    begin = end + 1;
  }
}

bool is_repository(std::string_view text) {
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos || text.find('/', slash + 1) != std::string_view::npos) return false;
  const auto is_good = [](std::string_view part) {
    return is_safe_file_name(part) && part.size() <= 96 && part.find("..") == std::string_view::npos &&
           std::all_of(part.begin(), part.end(), [](char c) {
             const char l = lower_of(c);
             return (l >= 'a' && l <= 'z') || is_digit(c) || c == '-' || c == '_' || c == '.';
           });
  };
  return is_good(text.substr(0, slash)) && is_good(text.substr(slash + 1));
}

bool is_sha256(std::string_view text) {
  return text.size() == 64 &&
         std::all_of(text.begin(), text.end(), [](char c) { return is_digit(c) || (c >= 'a' && c <= 'f'); });
}

}  // namespace assay::store
