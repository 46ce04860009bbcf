// THIRD-PARTY.md names every library that the build looks for.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

namespace {

std::string text_of(const std::string& name) {
  std::ifstream in(std::filesystem::path(ASSAY_SOURCE_DIR) / name);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(House, ThirdPartyNamesEveryLibrary) {
  const std::set<std::string> no_library = {"Threads", "PkgConfig"};
  const std::string build = text_of("cmake/AssayDependencies.cmake"), page = text_of("THIRD-PARTY.md");
  size_t n_libraries = 0;
  for (const std::string call : {"find_package(", "pkg_check_modules("}) {
    for (size_t at = build.find(call); at != std::string::npos; at = build.find(call, at + 1)) {
      const size_t begin = at + call.size();
      const std::string name = build.substr(begin, build.find_first_of(" )", begin) - begin);
      if (no_library.contains(name)) continue;
      EXPECT_NE(page.find("| `" + name + "` |"), std::string::npos) << name << " is not in THIRD-PARTY.md";
      ++n_libraries;
    }
  }
  EXPECT_GE(n_libraries, 5u);
}

}  // namespace
