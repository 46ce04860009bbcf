// A file mapped read-only into memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace assay::base {

// Only regular files are taken: Error(io) for what cannot be opened and for folders, pipes, sockets and devices,
// Error(bad_file) for an empty file. A file replaced by renaming stays readable through the map. A file cut short while
// mapped does not: touching the lost pages raises SIGBUS, which only the program can turn into a message; check_size()
// finds it out before use.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const noexcept { return bytes_; }
  const std::filesystem::path& path() const noexcept { return path_; }
  // Error(io) if the file has become shorter than the map.
  void check_size() const;
  // A reader who is done with these bytes of the map gives their memory back; they can be read again, from the disk.
  void drop(std::span<const std::byte> part) const noexcept;

 private:
  void release() noexcept;
  std::filesystem::path path_;
  std::span<const std::byte> bytes_;
  int descriptor_ = -1;
};

}  // namespace assay::base
