// See completion.h.
#include "commands/completion.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

namespace assay::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kFilesMax = 1000;  // of a folder; more are no help to anybody

// From what they may be to what they may become: those that begin with `typed`.
Completion among(std::vector<std::string> all, std::string_view typed) {
  std::erase_if(all, [&](const std::string& word) { return !word.starts_with(typed); });
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  if (all.empty()) return {};
  std::string_view common = all.front();
  for (const std::string& word : all) {
    const auto end = std::mismatch(common.begin(), common.end(), word.begin(), word.end()).first;
    common = common.substr(0, static_cast<size_t>(end - common.begin()));
  }
  Completion result;
  while (!common.empty() && (static_cast<unsigned char>(common.back()) & 0x80) != 0 && all.size() > 1)
    common.remove_suffix(1);
  if (common.size() > typed.size()) result.insert = common.substr(typed.size());
  if (all.size() == 1 && !all.front().ends_with('/')) result.insert += ' ';
  if (all.size() > 1) result.choices = std::move(all);
  return result;
}

std::vector<std::string> files(std::string_view typed) {
  const size_t slash = typed.rfind('/');
  const std::string folder(typed.substr(0, slash == std::string_view::npos ? 0 : slash + 1));
  const bool hidden = typed.substr(folder.size()).starts_with('.');
  std::vector<std::string> found;
  std::error_code failure;
  fs::directory_iterator at(folder.empty() ? "." : expand_home(folder), failure);
  for (; !failure && at != fs::directory_iterator() && found.size() < kFilesMax; at.increment(failure)) {
    const std::string name = at->path().filename().string();
    std::error_code unknown;
    if (hidden == name.starts_with('.')) found.push_back(folder + name + (at->is_directory(unknown) ? "/" : ""));
  }
  return found;
}

}  // namespace

Completion complete(std::string_view line, const CompletionWords& words) {
  if (!line.starts_with('/')) return {};
  const size_t blank = line.find(' ');
  if (blank == std::string_view::npos) return among(words.commands, line);
  const std::string_view command = line.substr(0, blank);
  const size_t begin = line.find_first_not_of(' ', blank);
  const std::string_view rest = begin == std::string_view::npos ? "" : line.substr(begin);
  if (command == "/set" && rest.find(' ') == std::string_view::npos) return among(words.settings, rest);
  if (std::find(words.file_commands.begin(), words.file_commands.end(), command) != words.file_commands.end()) {
    return among(files(rest), rest);
  }
  return {};
}

std::string expand_home(const std::string& path) {
  if (path != "~" && !path.starts_with("~/")) return path;
  const char* home = std::getenv("HOME");
  return home == nullptr ? path : std::string(home).append(path, 1);
}

}  // namespace assay::cli
