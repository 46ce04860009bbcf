// A file on its way: NAME.partial beside its later place, with a note of what it is a part of. One process at a time
// has it. What was appended is hashed by a thread of its own while the next bytes come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "store/hash_behind.h"

namespace assay::store {

class PartialFile {
 public:
  // Opens or makes it and waits until nobody else has it; on_wait is called while another has: once, then about ten
  // times a second, and says whether to go on. Error(io).
  PartialFile(std::filesystem::path target, const std::function<bool()>& on_wait);
  ~PartialFile();
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  bool is_ours() const noexcept { return descriptor_ >= 0; }  // false where on_wait gave up
  int64_t bytes() const noexcept { return bytes_; }           // that it has

  // What the bytes on the disk are of. Without a note they are dropped when it is opened.
  struct Source {
    std::string url, version;  // as HttpHead::version() has it
    int64_t total_bytes = -1;
    std::string sha256;  // that the whole should have; empty: not known
    std::string boot;    // of the system that wrote them: what was not synced may be lost with it
  };
  const Source& source() const noexcept { return source_; }
  void note(const Source& source);

  void append(std::vector<std::byte>& bytes);  // takes them; the file has them then: Error(io)
  void restart();                              // from its first byte
  std::string digest();                        // of all bytes; once
  void sync();                                 // on the disk; Error(io)
  void publish();                              // under its name; the object is done then
  void drop() noexcept;                        // removed, with its note; the object is done then

  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  void open(const std::function<bool()>& on_wait);
  void read_back();
  std::filesystem::path note_path() const;

  std::filesystem::path target_, path_;
  int descriptor_ = -1;
  int64_t bytes_ = 0;
  Source source_;
  HashBehind hash_;
};

// Differs after each start of the system; empty where it does not say.
std::string boot_id();

// Bytes that the file system of a folder has left for us.
int64_t free_bytes(const std::filesystem::path& folder);

}  // namespace assay::store
