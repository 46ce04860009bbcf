// See other_file.h.
#include "gguf/other_file.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace assay::gguf {
namespace {

// The length of a header, then the header, which is a JSON object.
bool is_safetensors(std::string_view text) noexcept {
  uint64_t n = 0;
  if (text.size() < sizeof n + 2) return false;
  std::memcpy(&n, text.data(), sizeof n);
  return n >= 2 && n <= text.size() - sizeof n && text[sizeof n] == '{';
}

}  // namespace

std::string_view advice_for_other_file(std::span<const std::byte> bytes) noexcept {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (is_safetensors(text)) return ": it is safetensors, of whose folder `assay convert FOLDER OUT.gguf` makes one";
  if (text.starts_with("PK\x03\x04"))
    return ": it is an archive, as PyTorch's pickles are, which assay does not open; `assay convert` reads safetensors";
  if (text.starts_with("version https://git-lfs"))
    return ": it is a pointer of Git LFS in the file's place; `git lfs pull` fetches the file";
  for (const std::string_view before : {"lmgg", "fmgg", "tjgg"}) {
    if (text.starts_with(before)) return ": it is of a format that GGUF replaced, which is not served";
  }
  const std::string_view page = text.substr(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  for (const std::string_view tag : {"<!DOCTYPE", "<!doctype", "<html", "<HTML"}) {
    if (page.starts_with(tag)) return ": it is a web page, so the download went wrong; `assay pull` says why";
  }
  return {};
}

}  // namespace assay::gguf
