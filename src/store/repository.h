// What a user asks `pull` for, and what a repository of Hugging Face has of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace assay::store {

// Either an address or a repository.
struct Wanted {
  std::string url;
  std::string repository, quant;  // quant: also a file's name or path; empty: the default
  std::string short_name;         // of the table, where it was asked for by that
};
// Error(bad_request) for what is neither, with the names that are known.
Wanted parse_what(const std::string& what);

struct RepositoryFile {
  std::string path;
  int64_t bytes = -1;  // -1: not said
  std::string sha256;  // empty: not said
};
// The GGUF files of a reply of the tree API. NetworkError for what is none, and for paths that would leave a folder.
std::vector<RepositoryFile> parse_tree(std::string_view json);

struct Choice {
  std::string quant;                  // as the file has it; its stem where it names none
  std::vector<RepositoryFile> parts;  // in order
  std::string remark;                 // why it is not the one that was asked for; empty where it is
};
// The files for a quantisation, a stem, a file's name or its path. Error(bad_request) with those that are there where
// it is not, where several are, or where parts are missing.
Choice choose(const std::vector<RepositoryFile>& files, const std::string& quant, const std::string& repository);

// A path as part of an address, each byte beyond letters, digits and -._~/ as %XX; and back, for a file's name.
std::string encode_path(std::string_view path);
std::string decode_percent(std::string_view text);
// The name of the file in an address, decoded; empty where it has none.
std::string file_name_of(std::string_view url);
// The same address with another name in that place.
std::string with_file_name(std::string_view url, std::string_view file_name);

}  // namespace assay::store
