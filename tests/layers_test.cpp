// The arrows between rooms (docs/design/architecture.md) point one way: every #include of src/ and apps/ against the
// list of what each room may use.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace fs = std::filesystem;

namespace {

// What a room names; it may also include whatever those may include.
const std::map<std::string, std::set<std::string>> kNamed = {
    {"assay", {}},
    {"base", {"assay"}},
    {"json", {"base"}},
    {"num", {"base"}},
    {"tensor", {"num"}},
    {"gguf", {"tensor"}},
    {"store", {"gguf"}},
    {"measure", {"engine"}},
    {"doctor", {"store", "measure"}},
    {"imatrix", {"gguf"}},
    {"quant", {"tensor"}},
    {"quant/encode", {"quant"}},
    {"quantize", {"gguf", "imatrix", "quant/encode"}},
    {"target", {"kld", "quantize"}},
    {"convert", {"text", "quantize"}},
    {"ops", {"quant"}},
    {"text", {"gguf", "base", "num"}},
    {"chat", {"gguf", "base"}},
    {"model", {"ops", "gguf"}},
    {"model/arch", {"model"}},
    {"pages", {"base"}},
    {"lower", {"ops"}},
    {"backend/cpu", {"lower", "pages"}},
    {"backend/cuda", {"lower", "pages"}},
    {"backend/vulkan", {"lower"}},
    {"backend/oracle", {"lower"}},
    {"engine", {"model", "text", "chat", "pages", "backend/cpu", "backend/cuda", "backend/vulkan", "backend/oracle"}},
    {"constraint", {"engine", "json"}},
    {"batch", {"constraint"}},
    {"tools", {"constraint"}},
    {"api", {"tools"}},
    {"serve", {"api"}},
    {"trace", {"engine"}},
    {"bounds", {"trace"}},
    {"faults", {"bounds"}},
    {"verify", {"faults", "measure", "convert"}},
    {"report", {"trace"}},
    {"kld", {"measure"}},
    {"files", {"measure", "imatrix", "kld", "convert"}},
};

std::set<std::string> reachable(const std::string& room) {
  std::set<std::string> all = {room};
  std::vector<std::string> open = {room};
  while (!open.empty()) {
    const std::string current = open.back();
    open.pop_back();
    for (const std::string& next : kNamed.at(current)) {
      if (all.insert(next).second) open.push_back(next);
    }
  }
  return all;
}

// The room that a path below src/ or in an #include lies in: its folder, or the next one above that the table names.
std::string room_of(std::string_view path) {
  const fs::path folder = fs::path(path).parent_path();
  for (fs::path room = folder; !room.empty(); room = room.parent_path()) {
    if (kNamed.contains(room.string())) return room.string();
  }
  return folder.string();
}

struct Include {
  std::string file, name;
};

std::vector<Include> includes_below(const fs::path& folder) {
  std::vector<Include> found;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string extension = entry.path().extension().string();
    if (extension != ".h" && extension != ".cpp" && extension != ".cu" && extension != ".cuh") continue;
    std::ifstream in(entry.path());
    for (std::string line; std::getline(in, line);) {
      if (!line.starts_with("#include \"")) continue;
      const size_t begin = line.find('"') + 1;
      found.push_back({entry.path().string(), line.substr(begin, line.find('"', begin) - begin)});
    }
  }
  return found;
}

TEST(Layers, ArrowsPointUpTheTableOnly) {
  const fs::path src = fs::path(ASSAY_SOURCE_DIR) / "src";
  int checked = 0;
  for (const Include& include : includes_below(src)) {
    const std::string relative = fs::relative(include.file, src).string();
    const std::string room = room_of(relative);
    ASSERT_TRUE(kNamed.contains(room)) << include.file << " is in no room of the table";
    if (include.name.starts_with("support/") || include.name.starts_with("programs/")) {
      EXPECT_TRUE(relative.ends_with("_test.cpp")) << include.file << " includes test support " << include.name;
      continue;
    }
    const std::string target = room_of(include.name);
    ASSERT_TRUE(kNamed.contains(target)) << include.file << " includes " << include.name << ", which is in no room";
    // A room may name the public API it implements; arch files and their room know one another through the list.
    const bool allowed =
        target == "assay" || reachable(room).contains(target) || (room == "model" && target == "model/arch");
    EXPECT_TRUE(allowed) << include.file << " may not include " << include.name;
    ++checked;
  }
  EXPECT_GT(checked, 5);
}

TEST(Layers, PublicHeadersNameOnlyThemselves) {
  const fs::path include_folder = fs::path(ASSAY_SOURCE_DIR) / "include";
  for (const Include& include : includes_below(include_folder))
    EXPECT_EQ(room_of(include.name), "assay") << include.file;
}

TEST(Layers, PublicHeadersUseNoThirdPartyTypes) {
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(ASSAY_SOURCE_DIR) / "include")) {
    std::ifstream in(entry.path());
    for (std::string line; std::getline(in, line);) {
      for (const char* word : {"boost", "fmt/", "CLI/", "pcre2", "utf8proc", "xxhash", "gtest"}) {
        EXPECT_FALSE(line.starts_with("#include") && line.find(word) != std::string::npos)
            << entry.path() << ": " << line;
      }
    }
  }
}

TEST(Layers, AppsUseThePublicApi) {
  const fs::path apps = fs::path(ASSAY_SOURCE_DIR) / "apps";
  for (const Include& include : includes_below(apps)) {
    const std::string room = room_of(include.name);
    const std::set<std::string> of_the_program = {"commands", "flags", "io", ""};
    EXPECT_TRUE(room == "assay" || of_the_program.contains(room)) << include.file << " includes " << include.name;
  }
}

TEST(Layers, BindingsAndExamplesUseThePublicApi) {
  for (const char* folder : {"bindings", "examples"}) {
    const fs::path root = fs::path(ASSAY_SOURCE_DIR) / folder;
    for (const Include& include : includes_below(root)) {
      const std::string room = room_of(include.name);
      EXPECT_TRUE(room == "assay" || room.empty()) << include.file << " includes " << include.name;
    }
  }
}

TEST(Layers, OneDecoderOfUtf8) {  // base/utf8.h
  int n_files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(ASSAY_SOURCE_DIR) / "src")) {
    if (entry.path().extension() != ".cpp" && entry.path().extension() != ".h") continue;
    std::ifstream in(entry.path());
    for (std::string line; std::getline(in, line);) {
      for (const char* other : {"utf8proc_iterate", "utf8proc_encode_char", "codecvt"})
        EXPECT_EQ(line.find(other), std::string::npos) << entry.path() << ": " << line;
    }
    ++n_files;
  }
  EXPECT_GT(n_files, 100);
}

TEST(Layers, EnvironmentIsReadInAppsOnly) {
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(ASSAY_SOURCE_DIR) / "src")) {
    if (entry.path().string().ends_with("_test.cpp") || !entry.is_regular_file()) continue;
    std::ifstream in(entry.path());
    for (std::string line; std::getline(in, line);) {
      EXPECT_EQ(line.find("getenv"), std::string::npos) << entry.path() << ": " << line;
    }
  }
}

}  // namespace
