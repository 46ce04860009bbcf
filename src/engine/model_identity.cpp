// See model_identity.h.
#include "engine/model_identity.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <new>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "base/descriptor.h"
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

// Of the files as they are.
pages::Digest identity_of_files(const std::vector<fs::path>& paths, const fs::path& folder) {
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
  const std::string line = fmt::format("{:016x} {:016x} {}\n", digest[0], digest[1], key);
  const base::Descriptor out(::open((folder / kKept).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (out.is_open()) base::write_whole(out, std::as_bytes(std::span(line)));  // else the file is read again next time
  return digest;
}

}  // namespace

pages::Digest model_identity(const Model& model, const fs::path& folder) {
  const pages::Digest of_files = identity_of_files(model.state().file.paths(), folder);
  const std::string& overrides = model.state().overrides;
  if (overrides.empty()) return of_files;
  const std::string all = fmt::format("{:016x} {:016x}\n{}", of_files[0], of_files[1], overrides);
  return pages::digest_of(std::as_bytes(std::span(all)));
}

}  // namespace assay::engine
