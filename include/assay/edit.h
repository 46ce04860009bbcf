// Mends model files: metadata and names changed, a file cut into several, several made one. Tensors' bytes are never
// changed, and are compared with the source before the new file takes its name (docs/edit.md).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace assay {

// One change. parse_set and parse_rename make them from what a user types.
struct Edit {
  enum class Kind {
    set,            // KEY to VALUE, in the key's own type
    set_typed,      // KEY to VALUE of a type, whether KEY is there or not
    set_text,       // KEY to VALUE as a text, whatever it looks like; a key that is there must have one
    remove,         // KEY
    rename_tensor,  // KEY to VALUE
  };
  Kind kind = Kind::set;
  std::string key;
  std::string type = {};   // of set_typed: "u32", "str", ..
  std::string value = {};  // as text: 7, 0.5, true, some words, [1,2], ["a","b"]
};

// "KEY=VALUE" or "KEY=TYPE:VALUE"; TYPE is u8 i8 u16 i16 u32 i32 u64 i64 f32 f64 bool str. Error(bad_request) for
// anything else.
Edit parse_set(std::string_view text);
Edit parse_rename(std::string_view text);  // "A=B"

struct FileProgress {
  // Bytes done and to be done in all, and what is being worked on.
  std::function<void(int64_t done, int64_t total, std::string_view thing)> progress = {};
  // Polled; true ends the work: nothing is left behind, and the result says so.
  std::function<bool()> cancelled = {};
};

struct EditOptions {
  std::vector<Edit> edits;  // applied in this order, checked as a whole
  std::string out;          // the file to write; empty: the file itself is changed
  bool force = false;       // write it even where the checks find what the file did not have before
  bool dry_run = false;     // find out and check all, write nothing
  FileProgress watch = {};
};

struct EditChange {
  std::string what;    // a key, or a tensor's name
  std::string before;  // "u32 2"; empty: it was not there
  std::string after;   // empty: it is not there any more
};

struct EditResult {
  std::vector<EditChange> changes;    // only what does change
  std::vector<std::string> findings;  // what the checks find in the new file and did not find in the old
  int64_t bytes_written = 0;          // 0 where nothing had to be
  bool cancelled = false;
};

// Error(bad_request): a key or tensor that is not there, a value that is none of its type, a split file, OUT that is
// the file itself, findings without force.
EditResult edit_file(const std::string& path, const EditOptions& options);

// As llama-gguf-split: PREFIX-00001-of-0000N.gguf, the first with all metadata.
struct SplitOptions {
  int64_t bytes_max = 0;      // of the tensors' data in one file; a larger tensor has a file of its own. 0: no limit
  int64_t n_tensors_max = 0;  // 0: no limit
  bool dry_run = false;
  FileProgress watch = {};
};

struct SplitFile {
  std::string path;
  int64_t n_tensors = 0;
  int64_t bytes = 0;
};

struct SplitResult {
  std::vector<SplitFile> files;
  bool cancelled = false;
};

// Error(bad_request) where not exactly one limit is given, or a file to write is one that is read.
SplitResult split_file(const std::string& path, const std::string& prefix, const SplitOptions& options);

// The files of a split, found through their first, as one; what says that they were split goes. Error(bad_request)
// where the file is no split one, or `out` is one of them.
SplitResult merge_files(const std::string& first, const std::string& out, const FileProgress& watch = {});

}  // namespace assay
