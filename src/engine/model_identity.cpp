// See model_identity.h.
#include "engine/model_identity.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <new>
#include <sstream>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "engine/model_state.h"

namespace assay::engine {
namespace {

namespace fs = std::filesystem;

constexpr const char* kKept = "models.txt";  // a line each: digest, bytes, nanoseconds, path

std::string line_key(const fs::path& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) return {};
  const auto ns = static_cast<int64_t>(facts.st_mtim.tv_sec) * 1'000'000'000 + facts.st_mtim.tv_nsec;
  return fmt::format("{} {} {}", facts.st_size, ns, fs::absolute(path).string());
}

pages::Digest digest_of_files(const std::vector<fs::path>& paths) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), &XXH3_freeState);
  if (state == nullptr) throw std::bad_alloc();
  XXH3_128bits_reset(state.get());
  for (const fs::path& path : paths) {
    const base::MappedFile file(path);
    constexpr size_t kPart = size_t{64} << 20;
    for (size_t at = 0; at < file.bytes().size(); at += kPart) {
      file.check_size();
      const auto part = file.bytes().subspan(at, std::min(kPart, file.bytes().size() - at));
      XXH3_128bits_update(state.get(), part.data(), part.size());
    }
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  return {hash.high64, hash.low64};
}

}  // namespace

pages::Digest model_identity(const Model& model, const fs::path& folder) {
  const std::vector<fs::path> paths = model.state().file.paths();
  std::string key;
  for (const fs::path& path : paths) {
    if (!key.empty()) key += '|';
    key += line_key(path);
  }
  std::ifstream kept(folder / kKept);
  for (std::string line; std::getline(kept, line);) {
    std::istringstream in(line);
    pages::Digest digest;
    std::string rest;
    if (in >> std::hex >> digest[0] >> digest[1] && std::getline(in >> std::ws, rest) && rest == key) return digest;
  }
  const pages::Digest digest = digest_of_files(paths);
  std::ofstream out(folder / kKept, std::ios::app);  // where it cannot be kept, the file is read again next time
  out << fmt::format("{:016x} {:016x} {}\n", digest[0], digest[1], key);
  return digest;
}

}  // namespace assay::engine
