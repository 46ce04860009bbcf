// A file written whole or not at all: its bytes go to PATH.partial in the same folder, which takes PATH's place by a
// rename once all of them are on the disk. Until then what was at PATH stays as it is; unless commit() ends well
// nothing is left behind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace assay::base {

class OutputFile {
 public:
  // n_bytes: how many will be written; room for all of them is asked for at once. keep: bytes of a .partial left behind
  // by a process that was killed, which stay as they are (0: a new file). A link at `path` is followed. Error(io) where
  // the file cannot be made, there is too little room, or another process is writing the same; Error(bad_request) where
  // `path` is a folder, pipe or device.
  OutputFile(const std::filesystem::path& path, uint64_t n_bytes, uint64_t keep = 0);
  ~OutputFile();
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;

  const std::filesystem::path& path() const noexcept { return path_; }
  const std::filesystem::path& partial() const noexcept { return partial_; }
  uint64_t position() const noexcept { return written_ + buffer_.size(); }

  void write(std::span<const std::byte> bytes);  // at the end; Error(io)
  void write_zeros(uint64_t n);
  // Before anything is written: the content becomes that of another file, whose blocks on the disk both have from then
  // on, so that nothing is copied. False where the file system cannot do that; nothing has changed then.
  bool clone(const std::filesystem::path& source);
  // In the place of bytes that were cloned. Error(io).
  void overwrite(std::span<const std::byte> bytes, uint64_t offset);
  // All written bytes are on the disk, the file is closed, its name is still partial(). Error(io).
  void close();
  // The rename, after close(). Error(io).
  void commit();
  // For one of several files of which a later one could not be committed: away with it again, where its name was free.
  void revoke() noexcept;

  static std::filesystem::path partial_of(const std::filesystem::path& path);

 private:
  void flush();
  void discard() noexcept;

  std::filesystem::path path_, partial_;
  int descriptor_ = -1;
  uint64_t written_ = 0;
  bool exists_ = false;    // the .partial is there and is ours
  bool replaces_ = false;  // something else had the name
  std::vector<std::byte> buffer_;
};

// Error(io) where the disk of the file's folder has no room for so many bytes more.
void require_room(const std::filesystem::path& path, uint64_t n_bytes);

// Error(bad_request) where `out`, or what would be written beside it on the way, is `in` itself: the same path, a link
// to it, or another name of it.
void require_other_file(const std::filesystem::path& in, const std::filesystem::path& out);

}  // namespace assay::base
