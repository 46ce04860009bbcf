// A whole file against a whole folder: which tensors and keys, then tensor by tensor.
#include <fmt/format.h>

#include <algorithm>

#include "assay/convert.h"
#include "assay/error.h"
#include "base/processors.h"
#include "base/shown.h"
#include "convert/against.h"
#include "convert/plan.h"

namespace assay {
namespace converting {
namespace {

std::string shape_of(const tensor::Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape.dims.begin(), shape.dims.begin() + shape.rank, ", "));
}

std::string where_from(const Output& output) {
  if (output.slices.empty()) return "made of config.json";
  return base::shown(output.slices.front().tensor->name);
}

class FolderJudge {
 public:
  FolderJudge(const gguf::File& file, const Draft& draft, const FolderReportOptions& options, int n_threads,
              FolderReport& report)
      : file_(file), draft_(draft), options_(options), report_(report), pool_(n_threads) {}

  void run() {
    check_keys();
    int64_t i = 0, n_unrelated = 0, n_matrices = 0;
    const auto n = static_cast<int64_t>(draft_.outputs.size());
    for (const Output& output : draft_.outputs) {
      if (options_.cancelled && options_.cancelled()) {
        report_.cancelled = true;
        return;
      }
      if (options_.progress) options_.progress(output.name, i++, n);
      const gguf::Tensor* found = file_.find(output.name);
      if (found == nullptr) {
        report_.differences.push_back(
            {output.name, "", fmt::format("the file has none; it is made of {}", where_from(output)), ""});
        continue;
      }
      file_.check_sizes();
      draft_.folder.check_sizes();
      const bool is_matrix = output.shape.rank > 1;
      n_matrices += is_matrix;
      n_unrelated += judge(*found, output) && is_matrix;
    }
    for (const gguf::Tensor& t : file_.tensors()) {
      const bool is_known =
          std::any_of(draft_.outputs.begin(), draft_.outputs.end(), [&](const Output& o) { return o.name == t.name; });
      if (!is_known)
        report_.differences.push_back({std::string(t.name), std::string(tensor::traits(t.view.dtype).name),
                                       "nothing of the folder becomes it", ""});
    }
    if (n_matrices > 1 && n_unrelated == n_matrices)
      report_.overall = "no matrix has to do with the folder's: the file is of another model";
  }

 private:
  // Numbers and flags of the architecture; texts and vocabularies are `verify`'s own stages.
  void check_keys() {
    const std::string prefix = draft_.architecture() + ".";
    for (const auto& [key, value] : draft_.head.entries()) {
      if (!key.starts_with(prefix)) continue;
      const gguf::Entry* found = file_.metadata().find(key);
      if (found == nullptr) {
        report_.notes.push_back(fmt::format("{}: the file has no such key", key));
      } else if (found->type != value.type ||
                 !std::equal(found->bytes.begin(), found->bytes.end(), value.bytes.begin(), value.bytes.end())) {
        report_.notes.push_back(fmt::format("{}: the file says otherwise than config.json", key));
      }
    }
  }

  // Whether nothing of the tensor has to do with the folder's.
  bool judge(const gguf::Tensor& found, const Output& output) {
    const std::string type(tensor::traits(found.view.dtype).name);
    if (found.view.shape.rank != output.shape.rank || found.view.shape.dims != output.shape.dims) {
      report_.differences.push_back({output.name, type,
                                     fmt::format("has the shape {}; {} becomes {}", shape_of(found.view.shape),
                                                 where_from(output), shape_of(output.shape)),
                                     ""});
      return false;
    }
    TensorJudge one(found, output, pool_);
    const Finding f = one.judge();
    file_.drop(found.view.data);
    if (f.passed) {
      if (f.is_exact || output.scales != nullptr) {
        ++report_.n_equal;
      } else {
        ++report_.n_near;
        if (f.ratio > report_.worst_ratio) {
          report_.worst_ratio = f.ratio;
          report_.worst_tensor = output.name;
        }
      }
      return false;
    }
    const int64_t rows = found.view.shape.rows();
    std::string problem;
    if (f.n_rows_wrong > 0) {
      problem = fmt::format("{} of {} rows differ from {}; first row {}, column {}: found {}, expected {}",
                            f.n_rows_wrong, rows, where_from(output), f.first_row, f.column, f.found, f.expected);
    } else {
      problem = fmt::format("its error against {} is {:.3f} of the tensor, {:.1f} times what the encoder of {} reaches",
                            where_from(output), f.error, f.ratio, type);
    }
    std::string cause = cause_of(one, found, output, f, draft_);
    const bool is_unrelated = cause.find("nothing to do with") != std::string::npos;
    report_.differences.push_back({output.name, type, std::move(problem), std::move(cause)});
    return is_unrelated;
  }

  const gguf::File& file_;
  const Draft& draft_;
  const FolderReportOptions& options_;
  FolderReport& report_;
  base::ThreadPool pool_;
};

}  // namespace
}  // namespace converting

FolderReport hold_against_folder(const std::filesystem::path& path, const std::filesystem::path& folder_path,
                                 const FolderReportOptions& options) {
  const int n_threads = base::pool_threads(options.n_threads);
  const converting::Folder folder(folder_path);
  const converting::DrawnDraft drawn = converting::draw_draft(folder, true);
  const gguf::File file = gguf::File::open(path);
  FolderReport report;
  report.architecture = drawn.draft->architecture();
  report.n_tensors = static_cast<int64_t>(file.tensors().size());
  report.notes = drawn.draft->notes;
  report.notes.insert(report.notes.end(), folder.notes().begin(), folder.notes().end());
  const std::string_view found = file.metadata().find_string("general.architecture").value_or("");
  if (found != report.architecture) {
    throw Error(Errc::bad_request, fmt::format("{}: general.architecture is {}; the folder's class {} becomes {}",
                                               path.filename().string(), base::shown(found),
                                               base::shown(drawn.class_name), report.architecture));
  }
  if (const gguf::Tensor* embedding = file.find("token_embd.weight");
      embedding != nullptr && drawn.family->options.cuts_vocabulary) {
    drawn.draft->limit_vocabulary(embedding->view.shape.rows());
  }
  converting::FolderJudge(file, *drawn.draft, options, n_threads, report).run();
  return report;
}

}  // namespace assay
