// Runs a fuzz target's function over every file of the folders named on the command line: the corpus as an ordinary
// test.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  std::vector<std::filesystem::path> files;
  for (int i = 1; i < argc; ++i) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[i])) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  for (const auto& path : files) {
    std::ifstream in(path, std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(in), {}};
    const std::vector<uint8_t> input(bytes.begin(), bytes.end());
    if (LLVMFuzzerTestOneInput(input.data(), input.size()) != 0) {
      std::fprintf(stderr, "%s: failed\n", path.c_str());
      return 1;
    }
  }
  std::printf("%zu inputs\n", files.size());
  return files.empty() ? 1 : 0;  // a folder that was moved must not pass
}
