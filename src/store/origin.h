// What is noted of a pulled file, in a hidden file of JSON beside it. A note that does not fit the file's size and time
// any more is none.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "assay/store.h"

namespace assay::store {

std::filesystem::path origin_path(const std::filesystem::path& file);
// short_name: of the table, where it was asked for by that.
struct OriginNote {
  ModelOrigin origin;
  std::string short_name;
};
std::optional<OriginNote> read_origin(const std::filesystem::path& file);
// Of `file` as it is now, whatever its name will be: for the file `named`, in whose folder the note goes.
void write_origin(const std::filesystem::path& file, const std::filesystem::path& named, const OriginNote& note);

// A regular file of at most so many bytes; nothing for any other.
std::optional<std::string> read_small_file(const std::filesystem::path& path, size_t bytes_max);
// Written under another name, synced and renamed. Error(io).
void write_small_file(const std::filesystem::path& path, const std::string& text);

}  // namespace assay::store
