// The new file written: head, then tensor by tensor, rows read and encoded side by side; then read again and checked.
#include "assay/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "assay/error.h"
#include "base/output_file.h"
#include "base/processors.h"
#include "base/shown.h"
#include "base/thread_pool.h"
#include "convert/check.h"
#include "convert/plan.h"
#include "convert/rows.h"
#include "gguf/writer.h"
#include "quant/encode/encoder.h"
#include "text/from_gguf.h"

namespace assay {
namespace converting {
namespace {

namespace fs = std::filesystem;
using tensor::DType;

constexpr int64_t kSlabElements = 1 << 20;

struct Cancelled {};

float limit_of(DType dtype) noexcept {
  return dtype == DType::F32 || dtype == DType::BF16 ? std::numeric_limits<float>::max() : 65504.0f;
}

class Job {
 public:
  Job(const Folder& folder, const Plan& plan, const ConvertOptions& options, int n_threads, gguf::Writer& writer)
      : folder_(folder), plan_(plan), options_(options), writer_(writer), pool_(n_threads),
        rows_(static_cast<size_t>(pool_.n_threads())) {}

  void run() {
    for (size_t i = 0; i < plan_.types.size(); ++i) {
      folder_.check_sizes();
      i_ = i;
      write(plan_.draft->outputs[i], plan_.types[i]);
    }
  }

 private:
  void between(const Output& output) {
    if (options_.cancelled && options_.cancelled()) throw Cancelled{};
    if (options_.progress) {
      options_.progress(output.name, static_cast<int64_t>(i_), static_cast<int64_t>(plan_.types.size()),
                        writer_.bytes_written(), writer_.bytes_total());
    }
  }

  [[noreturn]] static void refuse(const Output& output, DType dtype, int64_t row, int64_t column, float value) {
    const Place place = place_of(output, row);
    const std::string where =
        fmt::format("{} ({}): row {}, column {} is {}", output.name,
                    place.tensor == nullptr ? "made" : base::shown(place.tensor->name), place.row, column, value);
    if (std::isfinite(value)) {
      throw Error(Errc::bad_file,
                  fmt::format("{}, which {} cannot hold: its range ends at 65504; needs --outtype bf16 or f32", where,
                              tensor::traits(dtype).name));
    }
    throw Error(
        Errc::bad_file,
        fmt::format("{}: the checkpoint is damaged or was never right; --keep-nonfinite writes it nonetheless", where));
  }

  // -1, or the first column whose value cannot be written.
  int64_t bad_column(const float* x, int64_t n, float limit) const {
    const auto bad = std::find_if(x, x + n, [&](float value) {
      return options_.keep_nonfinite ? std::isfinite(value) && std::abs(value) > limit : !(std::abs(value) <= limit);
    });
    return bad == x + n ? -1 : bad - x;
  }

  void write(const Output& output, DType dtype) {
    const quant::encode::EncodeRow encode = quant::encode::find_encoder(dtype);
    const tensor::DTypeTraits& traits = tensor::traits(dtype);
    const int64_t row_bytes = output.cols / traits.block_elements * traits.block_bytes;
    const int64_t slab = std::clamp<int64_t>(kSlabElements / output.cols, 1, output.rows);
    const float limit = limit_of(dtype);
    const auto effort = static_cast<quant::encode::Effort>(options_.effort);
    buffer_.resize(static_cast<size_t>(slab * row_bytes));
    for (std::vector<float>& row : rows_) row.resize(static_cast<size_t>(output.cols));
    for (int64_t begin = 0; begin < output.rows; begin += slab) {
      between(output);
      const int64_t n = std::min(slab, output.rows - begin);
      bad_.assign(static_cast<size_t>(n), -1);
      pool_.run(n, [&](int64_t i, int thread) {
        if (output.scales != nullptr) return read_packed_row(output, begin + i, buffer_.data() + i * row_bytes);
        float* x = rows_[static_cast<size_t>(thread)].data();
        read_row(output, begin + i, x);
        bad_[static_cast<size_t>(i)] = bad_column(x, output.cols, limit);
        if (bad_[static_cast<size_t>(i)] < 0) encode(x, nullptr, output.cols, effort, buffer_.data() + i * row_bytes);
      });
      for (int64_t i = 0; i < n; ++i) {
        if (const int64_t column = bad_[static_cast<size_t>(i)]; column >= 0) {
          read_row(output, begin + i, rows_[0].data());
          refuse(output, dtype, begin + i, column, rows_[0][static_cast<size_t>(column)]);
        }
      }
      writer_.write(std::span(buffer_).first(static_cast<size_t>(n * row_bytes)));
      drop(output, begin, n);
    }
  }

  // Gives back what was read. Where rows were re-ordered or take turns, all of their tensors: what is read again is
  // read from the kernel's cache.
  void drop(const Output& output, int64_t begin, int64_t n) const {
    if (output.rope_heads > 0 || output.scales != nullptr) {
      for (const Slice& slice : output.slices) folder_.drop(*slice.tensor, slice.tensor->data);
      if (output.scales != nullptr) folder_.drop(*output.scales, output.scales->data);
      return;
    }
    for (int64_t i = begin; i < begin + n; ++i) {
      const Place place = place_of(output, i);
      if (place.tensor == nullptr) return;
      const int64_t last = std::min(begin + n - i, rows_left(output, i));
      drop_rows(output, place, last);
      i += last - 1;
    }
  }
  // Of columns the whole block once the last one was read; n rows else.
  void drop_rows(const Output& output, const Place& place, int64_t n) const {
    const StoredTensor& t = *place.tensor;
    const int64_t size = t.dtype == DType::F32 ? 4 : 2;
    if (place.column < 0) {
      const int64_t rows = (n - 1) * place.slice->step + 1;
      return folder_.drop(t, t.data.subspan(static_cast<size_t>(place.row * output.cols * size),
                                            static_cast<size_t>(rows * output.cols * size)));
    }
    if (place.column + (n - 1) * place.slice->step + place.slice->step < t.cols()) return;
    folder_.drop(t, t.data.subspan(static_cast<size_t>(place.row * t.cols() * size),
                                   static_cast<size_t>(output.cols * t.cols() * size)));
  }
  static int64_t rows_left(const Output& output, int64_t row) {  // in the slice that a row is in
    for (const Slice& slice : output.slices) {
      if (row < slice.n_rows) return slice.n_rows - row;
      row -= slice.n_rows;
    }
    return 1;
  }

  const Folder& folder_;
  const Plan& plan_;
  const ConvertOptions& options_;
  gguf::Writer& writer_;
  base::ThreadPool pool_;
  std::vector<std::vector<float>> rows_;
  std::vector<std::byte> buffer_;
  std::vector<int64_t> bad_;
  size_t i_ = 0;
};

// Ids that end an answer by generation_config.json: each has to end one by the file as well.
std::vector<int64_t> ends_of_answers(const Folder& folder) {
  std::vector<int64_t> ids;
  const auto config = folder.json_of("generation_config.json");
  const Json* eos = config ? config->find("eos_token_id") : nullptr;
  if (eos == nullptr) return ids;
  const auto add = [&](const Json& id) {
    if (id.number() != nullptr && id.number()->integer) ids.push_back(*id.number()->integer);
  };
  if (eos->array() == nullptr) {
    add(*eos);
  } else {
    for (const Json& id : *eos->array()) add(id);
  }
  return ids;
}

void note_ends(const Folder& folder, const gguf::Metadata& metadata, std::vector<std::string>& notes) {
  const std::shared_ptr<const Tokenizer> tokenizer = text::make_tokenizer(metadata);
  for (const int64_t id : ends_of_answers(folder)) {
    if (id >= 0 && id < tokenizer->vocab_size() && tokenizer->is_end_of_generation(static_cast<TokenId>(id))) continue;
    notes.push_back(
        fmt::format("generation_config.json: token {} ends an answer there; GGUF has no place for it, and it does not "
                    "end one by the file's own keys",
                    id));
  }
}

ConvertResult run(const fs::path& path, const fs::path& out, const ConvertOptions& options) {
  const int n_threads = base::pool_threads(options.n_threads);
  const Folder folder(path);
  folder.require_other_file(out);
  Plan plan = make_plan(folder, options);
  ConvertResult result;
  result.architecture = plan.draft->architecture();
  result.type = plan.type;
  result.n_tensors = static_cast<int64_t>(plan.types.size());
  try {
    gguf::Writer writer(out, plan.draft->head);
    result.bytes = writer.bytes_total();
    Job(folder, plan, options, n_threads, writer).run();
    writer.finish([&](const std::vector<fs::path>& partials) {
      if (!options.check) return;
      const gguf::File written = gguf::File::open(partials.front());
      if (plan.tokenizer)
        result.n_texts_checked = check_tokenizer(written.metadata(), *plan.tokenizer, plan.draft->notes);
      note_ends(folder, written.metadata(), plan.draft->notes);
    });
    result.path = writer.paths().front();
  } catch (const Cancelled&) {
    result.cancelled = true;
  }
  result.notes = std::move(plan.draft->notes);
  return result;
}

}  // namespace
}  // namespace converting

std::vector<std::string> convertible_architectures() {
  std::vector<std::string> names;
  for (const converting::Family& family : converting::families())
    names.insert(names.end(), family.classes.begin(), family.classes.end());
  std::sort(names.begin(), names.end());
  return names;
}

bool is_model_folder(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error) && std::filesystem::exists(path / "config.json", error);
}

ConvertResult convert(const std::filesystem::path& folder, const std::filesystem::path& out,
                      const ConvertOptions& options) {
  return converting::run(folder, out, options);
}

}  // namespace assay
