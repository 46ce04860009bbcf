// Changes to a file's head: applied to it in memory, checked as a whole, then written with the tensors' bytes as they
// are.
#include "assay/edit.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "assay/error.h"
#include "assay/utf8.h"
#include "base/output_file.h"
#include "base/shown.h"
#include "files/check_edited.h"
#include "files/copy.h"
#include "files/edit_value.h"
#include "files/printable.h"
#include "gguf/writer.h"

namespace assay {
namespace {

using files::parse_value;
using files::shown_value;
using gguf::Head;
using gguf::Value;
using gguf::ValueType;

// What a disk writes in one go: a change within it is there whole or not at all.
constexpr uint64_t kSectorBytes = 512;

[[noreturn]] void refuse(const std::string& problem) { throw Error(Errc::bad_request, problem); }

Value new_value(const Head& head, const Edit& edit) {
  const Value* old = head.find(edit.key);
  if (edit.kind == Edit::Kind::set_text) {
    if (old && old->type != ValueType::string)
      refuse(fmt::format("{} is {}; a text is no value of it", base::shown(edit.key), gguf::name(old->type)));
    return Value::of(edit.value);
  }
  if (edit.kind == Edit::Kind::set_typed) {
    const auto type = files::parse_type(edit.type);
    if (!type) refuse(fmt::format("{}: there is no type {}", base::shown(edit.key), base::shown(edit.type)));
    // A text may begin with '['; an array of texts is meant where the key has one, or where the text is JSON's.
    const bool is_array = *type == ValueType::string && edit.value.starts_with("[\"") && edit.value.ends_with("\"]");
    return parse_value(edit.key, *type, is_array, edit.value);
  }
  if (!old)
    refuse(fmt::format("there is no key {}: a new one needs a type, as in {}=u32:7", base::shown(edit.key), edit.key));
  const bool is_array = old->type == ValueType::array;
  const ValueType type = is_array ? old->element_type : old->type;
  if (type == ValueType::array) refuse(fmt::format("{}: arrays of arrays cannot be set", base::shown(edit.key)));
  return parse_value(edit.key, type, is_array, edit.value);
}

void apply(Head& head, const Edit& edit, const std::string& path) {
  if (edit.key.starts_with("split."))
    refuse(
        fmt::format("{}: says how a file is split; `assay split` and `assay merge` write it", base::shown(edit.key)));
  require_utf8(edit.key, "a key or tensor's name");
  require_utf8(edit.value, fmt::format("the new value of {}", base::shown(edit.key)));
  switch (edit.kind) {
    case Edit::Kind::set:
    case Edit::Kind::set_text:
    case Edit::Kind::set_typed: head.set(edit.key, new_value(head, edit)); return;
    case Edit::Kind::remove:
      if (!head.remove(edit.key)) refuse(fmt::format("{}: there is no key {} to remove", path, base::shown(edit.key)));
      return;
    case Edit::Kind::rename_tensor: head.rename(edit.key, edit.value); return;
  }
}

std::vector<EditChange> changes_between(const Head& before, const Head& after) {
  std::vector<EditChange> changes;
  for (const auto& [key, value] : before.entries()) {
    const Value* now = after.find(key);
    if (!now) changes.push_back({files::printable(key), shown_value(value), {}});
    if (now && *now != value) changes.push_back({files::printable(key), shown_value(value), shown_value(*now)});
  }
  for (const auto& [key, value] : after.entries()) {
    if (!before.find(key)) changes.push_back({files::printable(key), {}, shown_value(value)});
  }
  for (size_t i = 0; i < before.tensors().size(); ++i) {
    const std::string& now = after.tensors()[i].name;
    if (now != before.tensors()[i].name)
      changes.push_back({fmt::format("tensor {}", files::printable(before.tensors()[i].name)),
                         files::printable(before.tensors()[i].name), files::printable(now)});
  }
  return changes;
}

std::vector<std::string> new_findings(const std::string& path, const gguf::File& file, const Head& head) {
  const std::vector<std::string> before = files::findings_of(path);
  std::vector<std::string> found = files::findings_of(head, file, path);
  std::erase_if(found, [&](const std::string& finding) { return std::ranges::find(before, finding) != before.end(); });
  return found;
}

struct Difference {
  uint64_t begin = 0, end = 0;
};

// Where the new head differs from the bytes that are there; nullopt where it does not fit into their place.
std::optional<Difference> difference(const gguf::File& file, const Head& head, const gguf::Layout& layout,
                                     std::span<const std::byte> old_head) {
  if (file.alignment() != head.alignment() || layout.file_bytes != file.file_bytes() ||
      layout.head.size() != old_head.size())
    return std::nullopt;
  for (size_t i = 0; i < layout.offsets.size(); ++i) {
    if (layout.offsets[i] != file.tensors()[i].file_offset) return std::nullopt;
  }
  const auto first = std::ranges::mismatch(old_head, layout.head).in1;
  if (first == old_head.end()) return Difference{};
  size_t end = old_head.size();
  while (old_head[end - 1] == layout.head[end - 1]) --end;
  return Difference{static_cast<uint64_t>(first - old_head.begin()), end};
}

// Changes bytes of one sector of the file by one call. Only where no other name leads to the file, whose reader expects
// its bytes to stay.
bool write_in_place(const std::filesystem::path& path, std::span<const std::byte> bytes, uint64_t offset) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
  if (descriptor < 0) return false;  // a file that may not be written may still be replaced
  struct stat info {};
  if (::fstat(descriptor, &info) != 0 || info.st_nlink != 1) {
    ::close(descriptor);
    return false;
  }
  const ssize_t n = ::pwrite(descriptor, bytes.data(), bytes.size(), static_cast<off_t>(offset));
  int error = n < 0 ? errno : n == static_cast<ssize_t>(bytes.size()) ? 0 : EIO;
  if (error == 0 && ::fsync(descriptor) != 0) error = errno;
  ::close(descriptor);
  if (error != 0)
    throw Error(Errc::io,
                fmt::format("{}: cannot be changed: {}", path.string(), std::generic_category().message(error)));
  return true;
}

// The file with another head, as a new one that shares the tensors' blocks with it. False where the file system cannot
// do that.
bool write_as_clone(const std::filesystem::path& path, std::span<const std::byte> head) {
  base::OutputFile file(path, 0);
  if (!file.clone(path)) return false;
  file.overwrite(head, 0);
  file.commit();
  return true;
}

}  // namespace

Edit parse_set(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0)
    refuse(fmt::format("{} is no change: KEY=VALUE or KEY=TYPE:VALUE is needed", base::shown(text)));
  Edit edit{Edit::Kind::set, std::string(text.substr(0, equals)), {}, std::string(text.substr(equals + 1))};
  const size_t colon = edit.value.find(':');
  if (colon != std::string::npos && files::parse_type(std::string_view(edit.value).substr(0, colon))) {
    edit.kind = Edit::Kind::set_typed;
    edit.type = edit.value.substr(0, colon);
    edit.value = edit.value.substr(colon + 1);
  }
  return edit;
}

Edit parse_rename(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0 || equals + 1 == text.size())
    refuse(fmt::format("{} is no new name: A=B is needed", base::shown(text)));
  return {Edit::Kind::rename_tensor, std::string(text.substr(0, equals)), {}, std::string(text.substr(equals + 1))};
}

EditResult edit_file(const std::string& path, const EditOptions& options) {
  const gguf::File file = gguf::File::open(path);
  if (file.n_shards() > 1)
    refuse(fmt::format("{}: is one of {} files; merge them first (assay merge)", path, file.n_shards()));
  if (!options.out.empty()) base::require_other_file(path, options.out);
  const Head before(file);
  Head head = before;
  for (const Edit& edit : options.edits) apply(head, edit, path);
  EditResult result;
  result.changes = changes_between(before, head);
  result.findings = new_findings(path, file, head);
  if (!result.findings.empty() && !options.force && !options.dry_run)
    refuse(fmt::format("{}: with these changes: {}; --force writes it all the same", path, result.findings.front()));
  if (options.dry_run) return result;

  std::filesystem::path out = options.out;
  const gguf::Layout layout = gguf::lay_out(head);
  if (options.out.empty()) {
    out = std::filesystem::canonical(path);
    std::span<const std::byte> old_head;
    if (!file.tensors().empty())
      old_head = {file.tensors()[0].view.data.data() - file.tensors()[0].file_offset, file.tensors()[0].file_offset};
    const auto changed = difference(file, head, layout, old_head);
    if (changed && changed->begin == changed->end) return result;
    if (changed && changed->begin / kSectorBytes == (changed->end - 1) / kSectorBytes &&
        write_in_place(out, std::span(layout.head).subspan(changed->begin, changed->end - changed->begin),
                       changed->begin)) {
      result.bytes_written = static_cast<int64_t>(changed->end - changed->begin);
      return result;
    }
    if (changed && write_as_clone(out, layout.head)) {
      result.bytes_written = static_cast<int64_t>(layout.head.size());
      return result;
    }
  }
  gguf::Writer writer(out, head);
  result.cancelled = !files::copy_tensors(file, writer, options.watch);
  result.bytes_written = result.cancelled ? 0 : static_cast<int64_t>(writer.bytes_total());
  return result;
}

}  // namespace assay
