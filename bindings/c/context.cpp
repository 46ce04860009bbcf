// Contexts of the C interface.
#include "handles.h"

using assay::c::array;
using assay::c::guarded;
using assay::c::required;

namespace assay::c {
namespace {

constexpr assay_context_options kContextDefaults = {sizeof(assay_context_options),
                                                    0,
                                                    512,
                                                    0,
                                                    -1,
                                                    0,
                                                    1,
                                                    15,
                                                    0,
                                                    nullptr,
                                                    nullptr,
                                                    nullptr,
                                                    nullptr,
                                                    nullptr,
                                                    nullptr,
                                                    nullptr,
                                                    nullptr,
                                                    0};

void set_split_mode(ContextOptions& options, std::string_view name) {
  if (name == "layer") {
    options.split_mode = SplitMode::layer;
  } else if (name == "tensor") {
    options.split_mode = SplitMode::tensor;
  } else {
    refuse("split_mode \"" + std::string(name) + "\": needs layer or tensor");
  }
}

}  // namespace

ContextOptions context_options(const assay_context_options* given) {
  const assay_context_options o = read_sized(given, kContextDefaults, "assay_context_options");
  ContextOptions options;
  options.n_ctx = o.n_ctx;
  options.n_ubatch = o.n_ubatch;
  options.n_outputs_max = o.n_outputs_max;
  options.n_gpu_layers = o.n_gpu_layers;
  options.n_threads = o.n_threads;
  options.n_sequences = o.n_sequences;
  options.activation_bits = o.activation_bits;
  options.pin_threads = o.pin_threads != 0;
  if (o.numerics != nullptr) options.numerics = parse_numerics(o.numerics);
  if (o.cache_k != nullptr) options.cache_k = parse_kv_type(o.cache_k);
  if (o.cache_v != nullptr) options.cache_v = parse_kv_type(o.cache_v);
  if (o.kernels != nullptr) set_kernels(options, o.kernels);
  if (o.backend != nullptr) options.backend = parse_backend(o.backend);
  if (o.split_mode != nullptr) set_split_mode(options, o.split_mode);
  if (o.devices != nullptr) options.devices.assign(o.devices, o.devices + o.n_devices);
  if (o.device_shares != nullptr) options.device_shares.assign(o.device_shares, o.device_shares + o.n_devices);
  return options;
}

}  // namespace assay::c

void assay_context_options_init(assay_context_options* options, size_t size) {
  assay::c::write_sized(options, size, assay::c::kContextDefaults);
}

assay_status assay_context_new(const assay_model* model, const assay_context_options* options, assay_context** context,
                               assay_error** error) {
  return guarded(error, [&] {
    required(context, "context") =
        new assay_context{assay::Context(required(model, "model").model, assay::c::context_options(options)), {}, {}};
  });
}

void assay_context_free(assay_context* context) { delete context; }

void assay_context_set_cancel(assay_context* context, assay_cancel_callback cancelled, void* user) {
  context->request.cancelled = {};
  if (cancelled != nullptr) context->request.cancelled = [cancelled, user] { return cancelled(user) != 0; };
}

void assay_context_set_progress(assay_context* context, assay_progress_callback progress, void* user) {
  context->request.progress = {};
  if (progress != nullptr) {
    context->request.progress = [progress, user](int64_t done, int64_t total) { progress(user, done, total); };
  }
}

assay_status assay_context_decode(assay_context* context, const int32_t* ids, size_t n_ids, int32_t sequence,
                                  size_t* n_run, assay_error** error) {
  return guarded(error, [&] {
    required(context, "context").generators.erase(sequence);
    const int64_t n = context->context.decode(array(ids, n_ids, "ids"), sequence, context->request);
    if (n_run != nullptr) *n_run = static_cast<size_t>(n);
  });
}

assay_status assay_context_decode_all(assay_context* context, const int32_t* ids, size_t n_ids, int32_t sequence,
                                      assay_logits_callback sink, void* user, size_t* n_run, assay_error** error) {
  return guarded(error, [&] {
    required(context, "context").generators.erase(sequence);
    const auto hand_on = [&](int64_t position, std::span<const double> logits) {
      if (sink != nullptr) sink(user, position, logits.data(), logits.size());
    };
    const int64_t n = context->context.decode_all(array(ids, n_ids, "ids"), hand_on, sequence, context->request);
    if (n_run != nullptr) *n_run = static_cast<size_t>(n);
  });
}

assay_status assay_context_decode_batch(assay_context* context, const assay_batch_token* tokens, size_t n_tokens,
                                        assay_error** error) {
  return guarded(error, [&] {
    std::vector<assay::BatchToken> batch;
    for (const assay_batch_token& t : array(tokens, n_tokens, "tokens")) {
      required(context, "context").generators.erase(t.sequence);
      batch.push_back({.token = t.token, .sequence = t.sequence, .wants_logits = t.wants_logits != 0});
    }
    required(context, "context").context.decode_batch(batch);
  });
}

assay_status assay_context_logits(const assay_context* context, const float** logits, size_t* n_logits,
                                  assay_error** error) {
  return guarded(error, [&] {
    const std::span<const float> found = required(context, "context").context.logits();
    required(logits, "logits") = found.data();
    if (n_logits != nullptr) *n_logits = found.size();
  });
}

assay_status assay_context_batch_logits(const assay_context* context, int64_t i_output, const float** logits,
                                        size_t* n_logits, assay_error** error) {
  return guarded(error, [&] {
    const std::span<const float> found = required(context, "context").context.batch_logits(i_output);
    required(logits, "logits") = found.data();
    if (n_logits != nullptr) *n_logits = found.size();
  });
}

int64_t assay_context_n_ctx(const assay_context* context) { return context->context.n_ctx(); }

assay_status assay_context_n_past(const assay_context* context, int32_t sequence, int64_t* n_past,
                                  assay_error** error) {
  return guarded(error, [&] { required(n_past, "n_past") = required(context, "context").context.n_past(sequence); });
}

assay_status assay_context_truncate(assay_context* context, int64_t n_positions, int32_t sequence,
                                    assay_error** error) {
  return guarded(error, [&] {
    required(context, "context").generators.erase(sequence);
    context->context.truncate(n_positions, sequence);
  });
}

void assay_context_clear(assay_context* context) {
  context->generators.clear();
  context->context.clear();
}

assay_status assay_context_logits_digest(const assay_context* context, char digest[33], assay_error** error) {
  return guarded(error, [&] {
    const std::string found = required(context, "context").context.logits_digest();
    std::memcpy(&required(digest, "digest"), found.c_str(), ASSAY_DIGEST_BYTES);
  });
}

assay_status assay_context_kv_digest(const assay_context* context, int32_t sequence, char digest[33],
                                     assay_error** error) {
  return guarded(error, [&] {
    const std::string found = required(context, "context").context.kv_digest(sequence);
    std::memcpy(&required(digest, "digest"), found.c_str(), ASSAY_DIGEST_BYTES);
  });
}
