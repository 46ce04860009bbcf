// `inspect --lint` for a file in memory.
#include "files/check_edited.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "assay/error.h"
#include "assay/inspect.h"

namespace assay::files {
namespace {

constexpr size_t kSmallBytes = 1 << 20;  // factors of the rotation, norms: what loading looks at

class MemoryFile {
 public:
  explicit MemoryFile(uint64_t n_bytes) : descriptor_(::memfd_create("assay", MFD_CLOEXEC)) {
    if (descriptor_ < 0 || ::ftruncate(descriptor_, static_cast<off_t>(n_bytes)) != 0) {
      const int error = errno;
      if (descriptor_ >= 0) ::close(descriptor_);
      throw Error(Errc::io, fmt::format("a file in memory cannot be made: {}", std::generic_category().message(error)));
    }
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  void write(std::span<const std::byte> bytes, uint64_t offset) const {
    while (!bytes.empty()) {
      const ssize_t n = ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0)
        throw Error(Errc::out_of_memory, fmt::format("a file in memory has no room for {} bytes", bytes.size()));
      bytes = bytes.subspan(static_cast<size_t>(n));
      offset += static_cast<uint64_t>(n);
    }
  }
  std::string path() const { return fmt::format("/proc/self/fd/{}", descriptor_); }

 private:
  int descriptor_;
};

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

}  // namespace

std::vector<std::string> findings_of(const std::string& path) {
  std::vector<std::string> findings;
  InspectOptions options;
  options.lint = true;
  options.context.n_threads = 1;
  options.context.n_ctx = 64;  // the memory of a context is no question here
  try {
    const Inspection found = inspect(path, options);
    for (const InspectProblem& problem : found.problems) {
      if (problem.part != "memory") findings.push_back(fmt::format("{}: {}", problem.part, problem.message));
    }
    for (const LintFinding& finding : found.lint) {
      if (finding.level == LintLevel::error) findings.push_back(fmt::format("{}: {}", finding.rule, finding.message));
    }
  } catch (const Error& error) {
    findings.push_back(fmt::format("file: {}", error.what()));
  }
  return findings;
}

std::vector<std::string> findings_of(const gguf::Head& head, const gguf::File& tensors, const std::string& name) {
  const gguf::Layout layout = gguf::lay_out(head);
  const MemoryFile file(layout.file_bytes);
  file.write(layout.head, 0);
  for (size_t i = 0; i < layout.offsets.size(); ++i) {
    const auto data = tensors.tensors()[i].view.data;
    if (data.size() <= kSmallBytes) file.write(data, layout.offsets[i]);
  }
  std::vector<std::string> findings = findings_of(file.path());
  for (std::string& finding : findings) finding = replaced(std::move(finding), file.path(), name);
  return findings;
}

}  // namespace assay::files
