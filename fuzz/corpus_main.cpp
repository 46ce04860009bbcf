// Runs a fuzz target over every file of folders, the corpus as an ordinary test.   usage: corpus_fuzz TARGET FOLDER...
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "target.h"

int main(int argc, char** argv) {
  const auto target = assay::fuzz::targets().find(argc > 1 ? argv[1] : "");
  if (target == assay::fuzz::targets().end()) {
    std::fprintf(stderr, "usage: corpus_fuzz TARGET FOLDER...; the targets:");
    for (const auto& [name, function] : assay::fuzz::targets()) std::fprintf(stderr, " %s", name.data());
    std::fprintf(stderr, "\n");
    return 2;
  }
  std::vector<std::filesystem::path> files;
  for (int i = 2; i < argc; ++i) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[i])) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  for (const auto& path : files) {
    std::ifstream in(path, std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(in), {}};
    const std::vector<uint8_t> input(bytes.begin(), bytes.end());
    if (target->second(input.data(), input.size()) != 0) {
      std::fprintf(stderr, "%s: failed\n", path.c_str());
      return 1;
    }
  }
  std::printf("%zu inputs\n", files.size());
  return files.empty() ? 1 : 0;  // a folder that was moved must not pass
}
