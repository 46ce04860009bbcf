// assay-export-llama-cpp: runs a prompt through llama.cpp and writes what every op computed as a
// dump of assay (docs/dump-format.md), for `assay verify MODEL --against DUMP`. On the CPU, without
// flash attention, whose values are rounded in other places.
#include <fmt/format.h>
#include <ggml-backend.h>
#include <gguf.h>
#include <llama.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "assay/error.h"
#include "op_names.h"
#include "options.h"
#include "trace/dump.h"

namespace exporter {
namespace {

using assay::Errc;
using assay::Error;

struct FreeModel {
  void operator()(llama_model* model) const { llama_model_free(model); }
};
struct FreeContext {
  void operator()(llama_context* context) const { llama_free(context); }
};
struct FreeGguf {
  void operator()(gguf_context* file) const { gguf_free(file); }
};

// The whole tensor as rows, whatever its strides and wherever its backend keeps it.
std::vector<double> read_values(const ggml_tensor* tensor) {
  if (tensor->type != GGML_TYPE_F32 && tensor->type != GGML_TYPE_F16) {
    throw Error(Errc::unsupported, fmt::format("{}: values of type {} are not exported", ggml_get_name(tensor),
                                               ggml_type_name(tensor->type)));
  }
  std::vector<uint8_t> bytes(ggml_nbytes(tensor));  // of a strided view: from its first element to its last
  ggml_backend_tensor_get(tensor, bytes.data(), 0, bytes.size());
  std::vector<double> values;
  values.reserve(static_cast<size_t>(ggml_nelements(tensor)));
  for (int64_t i3 = 0; i3 < tensor->ne[3]; ++i3) {
    for (int64_t i2 = 0; i2 < tensor->ne[2]; ++i2) {
      for (int64_t i1 = 0; i1 < tensor->ne[1]; ++i1) {
        const uint8_t* row = bytes.data() + static_cast<size_t>(i1) * tensor->nb[1] +
                             static_cast<size_t>(i2) * tensor->nb[2] + static_cast<size_t>(i3) * tensor->nb[3];
        for (int64_t i0 = 0; i0 < tensor->ne[0]; ++i0) {
          const uint8_t* at = row + static_cast<size_t>(i0) * tensor->nb[0];
          float value = 0;
          if (tensor->type == GGML_TYPE_F32) {
            std::memcpy(&value, at, sizeof value);
          } else {
            ggml_fp16_t half = 0;
            std::memcpy(&half, at, sizeof half);
            value = ggml_fp16_to_fp32(half);
          }
          values.push_back(static_cast<double>(value));
        }
      }
    }
  }
  return values;
}

struct Pending {  // the op computed last: the node that follows may add its bias (or scale the
                  // embeddings), and then replaces it
  std::string op;
  int64_t n_rows = 0, width = 0;
  std::vector<double> values;
};

// Receives llama.cpp's nodes. Exceptions cannot pass through llama.cpp: the first one is kept, and
// the run is stopped.
class Collector {
 public:
  Collector(const Options& options, int64_t n_layers)
      : options_(options), n_layers_(n_layers), last_attn_output_(fmt::format("blk.{}.attn_output", n_layers - 1)) {}

  void begin(assay::trace::DumpWriter& writer, const assay::ops::Batch& batch) {
    writer_ = &writer;
    batch_ = batch;
    names_.forget();
    written_.clear();
    writer.begin_batch(batch);
  }

  void end() {
    flush();
    if (failure_) std::rethrow_exception(failure_);
  }

  size_t n_written() const { return n_written_; }

  static bool on_node(ggml_tensor* node, bool ask, void* self) {
    auto& collector = *static_cast<Collector*>(self);
    if (collector.writer_ == nullptr) return !ask;
    try {
      const NamedOp& named = collector.names_.of(node);
      if (ask) return collector.wants(named.op);
      collector.take(named, node);
      return true;
    } catch (...) {
      collector.failure_ = std::current_exception();
      return false;
    }
  }

 private:
  bool wants(const std::string& op) const {
    if (op.empty()) return false;
    int64_t layer = op == "token_embd" ? 0 : n_layers_ - 1;
    if (op.starts_with("blk.")) layer = std::strtoll(op.c_str() + 4, nullptr, 10);
    return layer >= options_.layer_first && layer <= options_.layer_last;
  }

  void take(const NamedOp& named, const ggml_tensor* node) {
    if (pending_ && pending_->op != named.op) flush();
    if (written_.contains(named.op)) {
      throw Error(Errc::unsupported, fmt::format("{}: llama.cpp computed it in two places of its graph", named.op));
    }
    Pending pending{named.op, named.per_head ? node->ne[2] : node->ne[1] * node->ne[2] * node->ne[3], 0,
                    read_values(node)};
    pending.width = pending.n_rows == 0 ? 0 : static_cast<int64_t>(pending.values.size()) / pending.n_rows;
    // llama.cpp chooses the rows whose logits are wanted after this product, assay before it.
    if (named.op == last_attn_output_ && pending.n_rows == static_cast<int64_t>(batch_.tokens.size()))
      keep_outputs(pending);
    pending_ = std::move(pending);
  }

  void keep_outputs(Pending& pending) const {
    const auto width = static_cast<size_t>(pending.width);
    size_t n_kept = 0;
    for (size_t i = 0; i < batch_.outputs.size(); ++i) {
      if (batch_.outputs[i] == 0) continue;
      std::copy_n(pending.values.begin() + static_cast<std::ptrdiff_t>(i * width), width,
                  pending.values.begin() + static_cast<std::ptrdiff_t>(n_kept * width));
      ++n_kept;
    }
    pending.n_rows = static_cast<int64_t>(n_kept);
    pending.values.resize(n_kept * width);
  }

  void flush() {
    if (!pending_) return;
    if (!failure_ && pending_->n_rows > 0) {  // 0: a batch of which no logits are wanted
      writer_->add(pending_->op, pending_->n_rows, pending_->width, pending_->values, false);
      written_.insert(pending_->op);
      ++n_written_;
    }
    pending_.reset();
  }

  const Options& options_;
  int64_t n_layers_;
  std::string last_attn_output_;
  assay::trace::DumpWriter* writer_ = nullptr;
  assay::ops::Batch batch_;
  OpNames names_;
  std::optional<Pending> pending_;
  std::set<std::string> written_;  // of this batch
  size_t n_written_ = 0;
  std::exception_ptr failure_;
};

// Whether any weight is stored in a block format: its products then have 8-bit activations.
bool has_quantised_weights(const std::string& path) {
  const std::unique_ptr<gguf_context, FreeGguf> file(gguf_init_from_file(path.c_str(), {true, nullptr}));
  if (file == nullptr) throw Error(Errc::bad_file, fmt::format("{}: llama.cpp cannot read it", path));
  for (int64_t i = 0; i < gguf_get_n_tensors(file.get()); ++i) {
    if (ggml_is_quantized(gguf_get_tensor_type(file.get(), i))) return true;
  }
  return false;
}

std::string metadata(const llama_model* model, const char* key) {
  std::vector<char> text(256);
  const int32_t n = llama_model_meta_val_str(model, key, text.data(), text.size());
  return n < 0 ? std::string() : std::string(text.data(), std::min(static_cast<size_t>(n), text.size() - 1));
}

assay::trace::DumpHeader make_header(const Options& options, const llama_model* model) {
  assay::trace::DumpHeader header;
  header.engine = fmt::format("llama.cpp {}{}", llama_version(), options.repack ? "" : " no-repack");
  header.model = options.model_path.substr(options.model_path.rfind('/') + 1);
  header.architecture = metadata(model, "general.architecture");
  header.text = options.text;
  header.n_layers = llama_model_n_layer(model);
  header.d_model = llama_model_n_embd(model);
  header.vocab_size = llama_vocab_n_tokens(llama_model_get_vocab(model));
  header.declared.activation_bits = has_quantised_weights(options.model_path) ? 8 : 0;
  header.declared.activation_block = 0;  // blocks of 32 for the legacy formats and of 256 for the K
                                         // and IQ formats, as assay's own contract has it
  header.declared.activation_scale_f16 = true;
  header.declared.activations_f16 = true;
  header.declared.as_llama_cpp = true;
  header.declared.cache_k = options.cache_f32 ? assay::ops::CacheType::f32 : assay::ops::CacheType::f16;
  header.declared.cache_v = header.declared.cache_k;
  header.declared.gelu_table_f16 = true;
  header.declared.rope_angle_f32 = true;
  return header;
}

std::vector<int32_t> tokenize(const Options& options, const llama_model* model) {
  if (!options.has_text) return options.ids;
  const llama_vocab* vocab = llama_model_get_vocab(model);
  const auto length = static_cast<int32_t>(options.text.size());
  std::vector<int32_t> ids(options.text.size() + 8);
  const int32_t n = llama_tokenize(vocab, options.text.data(), length, ids.data(), static_cast<int32_t>(ids.size()),
                                   true, options.parse_special);
  if (n <= 0) throw Error(Errc::bad_request, fmt::format("the prompt gives no token, or more than {}", ids.size()));
  ids.resize(static_cast<size_t>(n));
  return ids;
}

std::unique_ptr<llama_model, FreeModel> load_model(const Options& options) {
  llama_model_params params = llama_model_default_params();
  params.n_gpu_layers = 0;
  params.use_extra_bufts = options.repack;
  std::unique_ptr<llama_model, FreeModel> model(llama_model_load_from_file(options.model_path.c_str(), params));
  if (model == nullptr)
    throw Error(Errc::bad_file, fmt::format("{}: llama.cpp cannot load it (--verbose says why)", options.model_path));
  return model;
}

std::unique_ptr<llama_context, FreeContext> make_context(const Options& options, llama_model* model, size_t n_tokens,
                                                         Collector& collector) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<uint32_t>(n_tokens);
  params.n_batch = params.n_ubatch = static_cast<uint32_t>(options.n_ubatch);
  if (options.n_threads > 0) params.n_threads = params.n_threads_batch = options.n_threads;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.offload_kqv = false;
  params.op_offload = false;
  params.type_k = params.type_v = options.cache_f32 ? GGML_TYPE_F32 : GGML_TYPE_F16;
  params.cb_eval = Collector::on_node;
  params.cb_eval_user_data = &collector;
  std::unique_ptr<llama_context, FreeContext> context(llama_init_from_model(model, params));
  if (context == nullptr) throw Error(Errc::bad_request, "llama.cpp cannot make a context (--verbose says why)");
  return context;
}

void run_batch(llama_context* context, const assay::ops::Batch& batch) {
  const size_t n = batch.tokens.size();
  llama_batch request = llama_batch_init(static_cast<int32_t>(n), 0, 1);
  for (size_t i = 0; i < n; ++i) {
    request.token[i] = batch.tokens[i];
    request.pos[i] = batch.positions[i];
    request.n_seq_id[i] = 1;
    request.seq_id[i][0] = 0;
    request.logits[i] = static_cast<int8_t>(batch.outputs[i]);
  }
  request.n_tokens = static_cast<int32_t>(n);
  const int32_t status = llama_decode(context, request);
  llama_batch_free(request);
  if (status != 0) throw Error(Errc::bad_request, fmt::format("llama_decode: status {} (--verbose says why)", status));
}

void export_run(const Options& options) {
  if (!options.verbose) llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  llama_backend_init();
  const auto model = load_model(options);
  const std::vector<int32_t> ids = tokenize(options, model.get());
  Collector collector(options, llama_model_n_layer(model.get()));
  const auto context = make_context(options, model.get(), ids.size(), collector);
  assay::trace::DumpWriter writer(options.out_path, make_header(options, model.get()));

  std::vector<int32_t> positions(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) positions[i] = static_cast<int32_t>(i);
  const std::vector<int32_t> sequences(ids.size(), 0);
  std::vector<uint8_t> outputs(ids.size(), options.all_outputs ? 1 : 0);
  outputs.back() = 1;
  size_t n_batches = 0;
  for (size_t first = 0; first < ids.size(); ++n_batches) {
    const size_t n = std::min(static_cast<size_t>(options.n_ubatch), ids.size() - first);
    const assay::ops::Batch batch{std::span(ids).subspan(first, n), std::span(positions).subspan(first, n),
                                  std::span(sequences).subspan(first, n),
                                  std::span<const uint8_t>(outputs).subspan(first, n)};
    collector.begin(writer, batch);
    run_batch(context.get(), batch);
    collector.end();
    first += n;
  }
  writer.finish();
  fmt::print(stderr, "{}: {} tokens in {} batches, {} tensors\n", options.out_path, ids.size(), n_batches,
             collector.n_written());
}

}  // namespace
}  // namespace exporter

int main(int n_arguments, char** arguments) {
  try {
    exporter::export_run(exporter::parse_options(n_arguments, arguments));
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "assay-export-llama-cpp: {}\n", error.what());
    return 1;
  }
}
