// See job.h.
#include "quantize/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <system_error>

#include "assay/error.h"
#include "base/output_file.h"
#include "base/processors.h"
#include "base/shown.h"
#include "gguf/writer.h"
#include "quantize/rows.h"

namespace assay::quantizing {
namespace {

namespace fs = std::filesystem;
using quant::encode::Effort;

constexpr int64_t kSlabElements = 1 << 20;  // of a tensor between two looks at `cancelled`
constexpr uint64_t kCopyBytes = 8 << 20;
constexpr uint64_t kMemoryDefault = 256 << 20;

struct Cancelled {};

std::string place_of(int64_t index, const tensor::Shape& shape) {
  return fmt::format("row {}, column {}", index / shape.cols(), index % shape.cols());
}

[[noreturn]] void refuse(const PlannedTensor& t, const BadValue& bad) {
  const std::string where = fmt::format("{}: value {} ({}) is {}", base::shown(t.source->name), bad.index,
                                        place_of(bad.index, t.source->view.shape), bad.value);
  if (std::isfinite(bad.value)) {
    throw Error(Errc::bad_file,
                fmt::format("{}, which {} cannot hold: its range ends at 65504; BF16 and F32 have a wider one", where,
                            tensor::traits(t.choice.dtype).name));
  }
  throw Error(Errc::bad_file,
              fmt::format("{}: such weights are not quantised; the file is damaged or was never right", where));
}

class Job {
 public:
  Job(const gguf::File& file, const Plan& plan, const Weighing& weighing, const QuantizeOptions& options,
      gguf::Writer& writer)
      : file_(file), plan_(plan), weighing_(weighing), options_(options), writer_(writer),
        pool_(base::pool_threads(options.n_threads)) {}

  void run() {
    for (size_t i = writer_.next(); i < plan_.tensors.size(); ++i) {
      const PlannedTensor& t = plan_.tensors[i];
      file_.check_sizes();
      i_ = i;
      t.choice.dtype == t.source->view.dtype ? copy(t) : encode(t);
    }
  }
  const Lost& lost() const noexcept { return lost_; }

 private:
  void between(const PlannedTensor& t) {
    if (options_.cancelled && options_.cancelled()) throw Cancelled{};
    if (options_.progress) {
      options_.progress(t.name, static_cast<int64_t>(i_), static_cast<int64_t>(plan_.tensors.size()),
                        writer_.bytes_written(), writer_.bytes_total());
    }
  }

  void copy(const PlannedTensor& t) {
    const std::span<const std::byte> all = t.source->view.data;
    const auto element = static_cast<uint64_t>(tensor::traits(t.source->view.dtype).block_bytes);
    for (uint64_t at = 0; at < all.size();) {
      between(t);
      const std::span<const std::byte> part =
          all.subspan(at, std::min<uint64_t>(kCopyBytes / element * element, all.size() - at));
      if (const auto bad = first_not_finite(t.source->view.dtype, part, static_cast<int64_t>(at / element)))
        refuse(t, *bad);
      writer_.write(part);
      file_.drop(part);
      at += part.size();
    }
  }

  void encode(const PlannedTensor& t) {
    const tensor::TensorView& view = t.source->view;
    const std::vector<float> importance =
        is_quantized(t.choice.dtype) ? weighing_.of(t.source->name) : std::vector<float>{};
    RowEncoder encoder(view, t.choice.dtype, importance, effort(), pool_);
    const uint64_t memory = options_.memory_bytes_max == 0 ? kMemoryDefault : options_.memory_bytes_max;
    const int64_t fit = static_cast<int64_t>(memory / 2) / std::max<int64_t>(encoder.row_bytes(), 1);
    const int64_t slab = std::clamp<int64_t>(std::min(kSlabElements / std::max<int64_t>(view.shape.cols(), 1), fit), 1,
                                             std::max<int64_t>(view.shape.rows(), 1));
    buffer_.resize(static_cast<size_t>(slab * encoder.row_bytes()));
    for (int64_t row = 0; row < view.shape.rows(); row += slab) {
      between(t);
      const int64_t n = std::min(slab, view.shape.rows() - row);
      if (const auto bad = encoder.encode(row, n, buffer_.data())) refuse(t, *bad);
      writer_.write(std::span(buffer_).first(static_cast<size_t>(n * encoder.row_bytes())));
      file_.drop(
          view.data.subspan(static_cast<size_t>(row * view.row_bytes()), static_cast<size_t>(n * view.row_bytes())));
    }
    lost_.error += encoder.lost().error;
    lost_.error_normal += encoder.lost().error_normal;
  }

  Effort effort() const noexcept {
    return options_.effort == QuantizeEffort::fast     ? Effort::fast
           : options_.effort == QuantizeEffort::normal ? Effort::normal
                                                       : Effort::best;
  }

  const gguf::File& file_;
  const Plan& plan_;
  const Weighing& weighing_;
  const QuantizeOptions& options_;
  gguf::Writer& writer_;
  base::ThreadPool pool_;
  std::vector<std::byte> buffer_;
  size_t i_ = 0;
  Lost lost_;
};

// What tells this work from any other: the source by path, size and time of change, and everything that decides a byte.
std::string work_of(const fs::path& in, const gguf::File& file, const Plan& plan, const Weighing& weighing,
                    const QuantizeOptions& options) {
  std::string work = fmt::format(
      "source {} of {} bytes, changed {}; type {}; effort {}\n", fs::weakly_canonical(in).string(), file.file_bytes(),
      fs::last_write_time(in).time_since_epoch().count(), plan.mix->name, static_cast<int>(options.effort));
  for (const PlannedTensor& t : plan.tensors)
    work += fmt::format("{} from {} as {}\n", t.name, t.source->name, tensor::traits(t.choice.dtype).name);
  for (const std::string& text : options.override_kv) work += text + "\n";
  return work + weighing.described();
}

void require_matrices(const Plan& plan, const Weighing& weighing) {
  for (const PlannedTensor& t : plan.tensors) {
    if (t.choice.dtype == t.source->view.dtype) continue;
    if (quant::encode::find_encoder(t.choice.dtype) == nullptr) {
      throw Error(Errc::bad_request,
                  fmt::format("{} would be {}, a format that assay reads but does not write; needs another type",
                              base::shown(t.name), tensor::traits(t.choice.dtype).name));
    }
    if (t.choice.needs_matrix && !weighing.has(t.source->name)) {
      throw Error(
          Errc::bad_request,
          fmt::format("{} would be {}, which is of no use without an importance matrix{}: needs {}, or another type",
                      base::shown(t.name), tensor::traits(t.choice.dtype).name,
                      weighing.given() ? ", and the one given has no data of it" : "",
                      weighing.given() ? "one that has (assay imatrix)" : "--imatrix FILE (assay imatrix makes one)"));
    }
  }
}

}  // namespace

QuantizeResult run_job(const fs::path& in, const fs::path& out, const QuantizeOptions& options) {
  require_mix(options.type);
  const gguf::File file = gguf::File::open(in);
  const Weighing weighing(file, options);
  const Plan plan = make_plan(file, options, weighing.given());
  require_matrices(plan, weighing);
  QuantizeResult result;
  result.plan = public_plan(plan, weighing);
  std::vector<gguf::Head> heads = heads_of(file, plan, weighing, options);
  const gguf::WriterOptions writer_options{work_of(in, file, plan, weighing, options), options.resume};
  const bool is_split = heads.size() > 1;
  const std::vector<fs::path> paths = is_split ? gguf::split_paths(out, heads.size()) : std::vector<fs::path>{out};
  gguf::require_other_files(file, paths);
  for (const fs::path& path : paths) {
    if (options.imatrix) base::require_other_file(*options.imatrix, path);
  }
  try {
    gguf::Writer writer = is_split ? gguf::Writer(out, std::move(heads), writer_options)
                                   : gguf::Writer(out, std::move(heads[0]), writer_options);
    result.n_resumed = static_cast<int64_t>(writer.next());
    Job job(file, plan, weighing, options, writer);
    job.run();
    writer.finish();
    result.paths = writer.paths();
    if (job.lost().error_normal > 0) result.error_beside_normal = std::sqrt(job.lost().error / job.lost().error_normal);
  } catch (const Cancelled&) {
    result.cancelled = true;
  }
  return result;
}

}  // namespace assay::quantizing

namespace assay {

QuantizeResult quantize(const std::filesystem::path& in, const std::filesystem::path& out,
                        const QuantizeOptions& options) {
  return quantizing::run_job(in, out, options);
}

}  // namespace assay
