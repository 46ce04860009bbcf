// Every class of include/assay says which threads may use it, and docs/library.md says the same of it.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

namespace {

std::string page(const std::filesystem::path& name) {
  std::ifstream in(std::filesystem::path(ASSAY_SOURCE_DIR) / name);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(House, EveryPublicClassSaysWhichThreadsMayUseIt) {
  const std::string library = page("docs/library.md");
  size_t n_classes = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(ASSAY_SOURCE_DIR) / "include/assay")) {
    std::istringstream lines(page(entry.path()));
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with("class ") || line.ends_with(';')) continue;
      const std::string name = line.substr(6, line.find_first_of(" :{", 6) - 6);
      const size_t comment = line.find("// ");
      ASSERT_NE(comment, std::string::npos)
          << entry.path() << ": class " << name << " does not say which threads may use it";
      EXPECT_NE(line.find("thread", comment), std::string::npos) << line;
      // In the page a row has the statement first, then the names it holds of.
      const std::string row = "| " + line.substr(comment + 3) + " |";
      const size_t at = library.find(row);
      ASSERT_NE(at, std::string::npos) << "docs/library.md has no row " << row;
      const std::string names = library.substr(at, library.find('\n', at) - at);
      EXPECT_NE(names.find("`" + name + "`"), std::string::npos)
          << "docs/library.md: " << name << " is not in the row " << row;
      ++n_classes;
    }
  }
  EXPECT_GE(n_classes, 16u);
}

}  // namespace
