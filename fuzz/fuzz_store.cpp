// Any bytes as what a server or another program's store has: a manifest, a list of files, a reply's head, a name.
// Either an Error, or names that stay in their folder.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "assay/error.h"
#include "store/http.h"
#include "store/names.h"
#include "store/ollama.h"
#include "store/repository.h"
#include "target.h"

namespace {

using assay::fuzz::require;

using namespace assay::store;

void read_manifest(std::string_view text) {
  const std::string blob = parse_manifest(text).model_blob;
  require(blob.empty() || (blob.starts_with("sha256-") && is_sha256(std::string_view(blob).substr(7))));
}

void read_tree(std::string_view text) {
  const auto files = parse_tree(text);
  for (const RepositoryFile& file : files)
    require(is_safe_relative_path(file.path) && (file.sha256.empty() || is_sha256(file.sha256)));
  const Choice choice = choose(files, "", "u/r");
  require(!choice.parts.empty());
}

void read_head(std::string_view text) {
  HttpHead head;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    head.add_line(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  require(head.length >= -1 && head.range_begin >= -1 && head.range_total >= -1);
  require(retry_after_seconds(head.retry_after, 1'000'000) >= -1);
  next_link(head.link);
}

void read_name(std::string_view text) {
  if (const auto part = part_name(text))
    require(part->number >= 1 && part->number <= part->count && !part->stem.empty());
  require(quant_of(text).size() <= text.size());
  const std::string name = file_name_of(text);
  require(!is_safe_file_name(name) || (name.find('/') == std::string::npos && name != ".."));
  const Wanted wanted = parse_what(std::string(text));
  require(wanted.url.empty() != wanted.repository.empty());
}

}  // namespace

ASSAY_FUZZ_TARGET(store) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    switch (data[0]) {
      case 'm': read_manifest(text); break;
      case 't': read_tree(text); break;
      case 'h': read_head(text); break;
      default: read_name(text); break;
    }
  } catch (const assay::Error&) {
    return 0;  // the answer to most inputs
  }
  return 0;
}
