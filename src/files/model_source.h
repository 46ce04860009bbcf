// A model by the path that a user gives: a file, the first of a split, or a folder of Hugging Face, which becomes a
// file for as long as this lives.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "assay/edit.h"

namespace assay::files {

class ModelSource {
 public:
  // temporary: the folder for what is made. watch: of the conversion. Errors as convert().
  ModelSource(const std::string& path, const std::string& temporary, const FileProgress& watch);
  ~ModelSource();
  ModelSource(const ModelSource&) = delete;
  ModelSource& operator=(const ModelSource&) = delete;

  const std::string& file() const noexcept { return file_; }
  const std::vector<std::string>& notes() const noexcept { return notes_; }
  bool cancelled() const noexcept { return cancelled_; }  // there is no file then

 private:
  std::filesystem::path folder_;  // of the file that was made; empty: none was
  std::string file_;
  std::vector<std::string> notes_;
  bool cancelled_ = false;
};

}  // namespace assay::files
