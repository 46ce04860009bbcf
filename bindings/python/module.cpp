// assay._native: the C++ library as Python sees it. What is said in Python more shortly (streams, names of models,
// defaults) is in assay/*.py. Long calls release the interpreter's lock; those of the main thread look at its signals
// between tokens and chunks.
#include <pybind11/functional.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "assay/context.h"
#include "assay/error.h"
#include "assay/generate.h"
#include "assay/model.h"
#include "assay/perplexity.h"
#include "assay/reasoning.h"
#include "assay/session.h"
#include "assay/store.h"
#include "assay/verify.h"
#include "assay/version.h"

namespace py = pybind11;

namespace {

using assay::Context;
using assay::Errc;
using assay::Error;
using assay::TokenId;
using Ids = py::array_t<int32_t, py::array::c_style | py::array::forcecast>;

const char* name_of(Errc code) {
  switch (code) {
    case Errc::bad_file: return "bad_file";
    case Errc::unsupported: return "unsupported";
    case Errc::out_of_memory: return "out_of_memory";
    case Errc::bad_request: return "bad_request";
    case Errc::io: return "io";
    case Errc::device: return "device";
  }
  return "internal";
}

// An Error becomes assay.Error with its code.
void translate(std::exception_ptr thrown) {
  try {
    std::rethrow_exception(std::move(thrown));
  } catch (const Error& error) {
    const py::object type = py::module_::import("assay._error").attr("Error");
    const py::object value = type(error.what(), name_of(error.code));
    PyErr_SetObject(type.ptr(), value.ptr());
  }
}

// A long call's look at the world: true once a signal's handler raised, e.g. KeyboardInterrupt, which finish() throws
// on. To be asked without the interpreter's lock.
class Interrupt {
 public:
  std::function<bool()> hook() {
    return [this] { return asked(); };
  }
  void finish() {
    if (raised_) throw py::error_already_set(*std::exchange(raised_, std::nullopt));
  }

 private:
  bool asked() {
    if (raised_) return true;
    const py::gil_scoped_acquire lock;
    if (PyErr_CheckSignals() != 0) raised_.emplace();
    return raised_.has_value();
  }

  std::optional<py::error_already_set> raised_;
};

// A context or chat that one thread uses at a time: who comes second is refused, where C++ would have a race.
class InUse {
 public:
  InUse(std::atomic<bool>& is_used, const char* what) : is_used_(is_used) {
    if (is_used_.exchange(true))
      throw Error(Errc::bad_request,
                  std::string("the ") + what + " is in use: by another thread, or by a stream that is not closed");
  }
  ~InUse() { is_used_ = false; }
  InUse(const InUse&) = delete;
  InUse& operator=(const InUse&) = delete;

 private:
  std::atomic<bool>& is_used_;
};

// An answer that is made by a thread of its own, which knows nothing of Python, while Python takes the text piece by
// piece.
class Stream {
 public:
  using Work =
      std::function<assay::Generation(const assay::Generator::TextSink& sink, const std::function<bool()>& cancelled)>;
  Stream(std::atomic<bool>& is_used, const char* what, Work work)
      : in_use_(std::make_unique<InUse>(is_used, what)), thread_([this, made = std::move(work)] { run(made); }) {}
  ~Stream() {
    const py::gil_scoped_release unlocked;
    end();
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  std::string next() {
    std::unique_lock lock(mutex_, std::defer_lock);
    wait(lock, [&] { return !pieces_.empty() || is_over_; });
    if (!pieces_.empty()) {
      std::string piece = std::move(pieces_.front());
      pieces_.pop_front();
      return piece;
    }
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    throw py::stop_iteration();
  }
  // What was made, once it is over; an error that next() has not shown is thrown.
  const assay::Generation& result() {
    std::unique_lock lock(mutex_, std::defer_lock);
    wait(lock, [&] { return is_over_; });
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    return result_;
  }
  void close() {
    const py::gil_scoped_release unlocked;
    end();
  }

 private:
  void run(const Work& work) {
    const auto sink = [&](std::string_view text) {
      const std::lock_guard lock(mutex_);
      pieces_.emplace_back(text);
      changed_.notify_all();
    };
    assay::Generation made;
    std::exception_ptr error;
    try {
      made = work(sink, [&] { return is_cancelled_.load(); });
    } catch (...) {
      error = std::current_exception();
    }
    in_use_.reset();
    const std::lock_guard lock(mutex_);
    result_ = std::move(made);
    error_ = error;
    is_over_ = true;
    changed_.notify_all();
  }

  // Leaves with the lock held. Signals are looked at twenty times a second; where a handler raises, the answer ends.
  template <typename Condition>
  void wait(std::unique_lock<std::mutex>& lock, const Condition& is_true) {
    for (;;) {
      {
        const py::gil_scoped_release unlocked;
        lock.lock();
        if (changed_.wait_for(lock, std::chrono::milliseconds(50), is_true)) break;
        lock.unlock();
      }
      if (PyErr_CheckSignals() != 0) {
        const py::error_already_set raised;
        close();
        throw py::error_already_set(raised);
      }
    }
  }

  void end() {
    is_cancelled_ = true;
    if (thread_.joinable()) thread_.join();
  }

  std::unique_ptr<InUse> in_use_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> pieces_;
  bool is_over_ = false;
  assay::Generation result_;
  std::exception_ptr error_;
  std::atomic<bool> is_cancelled_ = false;
  std::thread thread_;  // last: it uses the others
};

std::span<const TokenId> view(const Ids& ids) {
  if (ids.ndim() != 1) throw Error(Errc::bad_request, "ids: needs one dimension, found " + std::to_string(ids.ndim()));
  return {ids.data(), static_cast<size_t>(ids.size())};
}

struct PyModel {
  std::shared_ptr<const assay::Model> model;
};

std::string resolve(const std::string& path_or_name) {
  const auto environment = assay::store_environment([](const char* name) -> const char* { return std::getenv(name); });
  return assay::ModelStores(assay::store_folders(environment)).resolve(path_or_name);
}

std::unique_ptr<PyModel> load(const std::string& path_or_name) {
  const py::gil_scoped_release unlocked;
  return std::make_unique<PyModel>(PyModel{assay::Model::load(resolve(path_or_name))});
}

std::vector<TokenId> tokenize(const PyModel& m, const std::string& text, bool parse_special,
                              std::optional<bool> add_bos, std::optional<bool> add_eos) {
  const py::gil_scoped_release unlocked;
  return m.model->tokenizer()->encode(text, {.parse_special = parse_special, .add_bos = add_bos, .add_eos = add_eos});
}

py::bytes detokenize(const PyModel& m, const Ids& ids, bool special) {
  return py::bytes(m.model->tokenizer()->decode(view(ids), special));
}

// Takes a value out of a dict of keyword arguments; nothing where it is not there or None.
template <typename T>
std::optional<T> taken(py::dict& values, const char* name) {
  if (!values.contains(name)) return std::nullopt;
  const py::object value = values.attr("pop")(name);
  if (value.is_none()) return std::nullopt;
  try {
    return value.cast<T>();
  } catch (const py::cast_error&) {
    throw py::type_error(std::string(name) + ": " + py::repr(value).cast<std::string>() +
                         " is of the wrong type or out of range");
  }
}

template <typename T>
void take(py::dict& values, const char* name, T& to) {
  if (const auto value = taken<T>(values, name)) to = *value;
}

void refuse_others(const py::dict& values) {
  for (const auto& [name, value] : values)
    throw py::type_error("there is no option " + py::repr(name).cast<std::string>());
}

assay::ContextOptions context_options(py::dict values) {
  assay::ContextOptions o;
  take(values, "n_ctx", o.n_ctx);
  take(values, "n_ubatch", o.n_ubatch);
  take(values, "n_threads", o.n_threads);
  take(values, "n_sequences", o.n_sequences);
  take(values, "activation_bits", o.activation_bits);
  take(values, "n_gpu_layers", o.n_gpu_layers);
  if (const auto name = taken<std::string>(values, "numerics")) o.numerics = assay::parse_numerics(*name);
  if (const auto name = taken<std::string>(values, "cache_k")) o.cache_k = assay::parse_kv_type(*name);
  if (const auto name = taken<std::string>(values, "cache_v")) o.cache_v = assay::parse_kv_type(*name);
  if (const auto name = taken<std::string>(values, "kernels")) assay::set_kernels(o, *name);
  if (const auto name = taken<std::string>(values, "backend")) o.backend = assay::parse_backend(*name);
  refuse_others(values);
  return o;
}

// max_tokens, stop, seed and the sampler's steps; what is not there is as the model's file asks for it.
assay::GenerateOptions generate_options(const assay::Model& model, py::dict values) {
  assay::GenerateOptions o;
  o.sampling = assay::default_sampling(model);
  assay::SamplerOptions& s = o.sampling;
  take(values, "max_tokens", o.n_predict);
  take(values, "stop", o.stop);
  take(values, "ignore_eos", o.ignore_eos);
  take(values, "special", o.special);
  take(values, "seed", s.seed);
  take(values, "temperature", s.temperature);
  take(values, "top_k", s.top_k);
  take(values, "top_p", s.top_p);
  take(values, "min_p", s.min_p);
  take(values, "typical_p", s.typical_p);
  take(values, "top_n_sigma", s.top_n_sigma);
  take(values, "xtc_probability", s.xtc_probability);
  take(values, "xtc_threshold", s.xtc_threshold);
  take(values, "penalty_last_n", s.penalty_last_n);
  take(values, "repeat_penalty", s.repeat_penalty);
  take(values, "frequency_penalty", s.frequency_penalty);
  take(values, "presence_penalty", s.presence_penalty);
  take(values, "dry_multiplier", s.dry_multiplier);
  take(values, "dry_base", s.dry_base);
  take(values, "dry_allowed_length", s.dry_allowed_length);
  take(values, "dry_penalty_last_n", s.dry_penalty_last_n);
  take(values, "dry_sequence_breakers", s.dry_sequence_breakers);
  if (const auto bias = taken<std::vector<std::pair<TokenId, float>>>(values, "logit_bias")) {
    for (const auto& [token, amount] : *bias) s.logit_bias.push_back({token, amount});
  }
  refuse_others(values);
  check(s);
  return o;
}

struct PyContext {
  PyContext(const PyModel& m, const assay::ContextOptions& options)
      : model(m.model), context(m.model, options), generator(context) {}
  std::shared_ptr<const assay::Model> model;
  Context context;
  assay::Generator generator;
  std::atomic<bool> is_used = false;

  void forget() { generator = assay::Generator(context); }  // the context is used by hand
};

std::unique_ptr<PyContext> make_context(const PyModel& model, const py::dict& options) {
  const assay::ContextOptions o = context_options(py::dict(**options));
  const py::gil_scoped_release unlocked;
  return std::make_unique<PyContext>(model, o);
}

// The logits after every token, from an empty context, written where numpy keeps them.
template <typename T>
py::array all_logits(PyContext& c, const Ids& ids) {
  const std::span<const TokenId> tokens = view(ids);
  const auto width = static_cast<size_t>(c.context.model().vocab_size());
  py::array_t<T> result({tokens.size(), width});
  T* to = result.mutable_data();
  const InUse in_use(c.is_used, "context");
  Interrupt interrupt;
  {
    const py::gil_scoped_release unlocked;
    c.forget();
    c.context.clear();
    const auto keep = [&](int64_t position, std::span<const double> logits) {
      std::transform(logits.begin(), logits.end(), to + static_cast<size_t>(position) * width,
                     [](double x) { return static_cast<T>(x); });
    };
    c.context.decode_all(tokens, keep, 0, {.cancelled = interrupt.hook()});
  }
  interrupt.finish();
  return result;
}

py::array logits(PyContext& c, const Ids& ids) {
  return c.context.options().numerics == assay::Numerics::oracle ? all_logits<double>(c, ids)
                                                                 : all_logits<float>(c, ids);
}

py::array_t<float> copy_of(std::span<const float> values) {
  return py::array_t<float>(static_cast<py::ssize_t>(values.size()), values.data());
}

py::array_t<float> decode(PyContext& c, const Ids& ids, int sequence) {
  const std::span<const TokenId> tokens = view(ids);
  const InUse in_use(c.is_used, "context");
  Interrupt interrupt;
  {
    const py::gil_scoped_release unlocked;
    c.forget();
    c.context.decode(tokens, sequence, {.cancelled = interrupt.hook()});
  }
  interrupt.finish();
  return copy_of(c.context.logits());
}

py::array_t<float> decode_batch(PyContext& c, const std::vector<std::pair<TokenId, int>>& tokens) {
  std::vector<assay::BatchToken> batch;
  for (const auto& [token, sequence] : tokens)
    batch.push_back({.token = token, .sequence = sequence, .wants_logits = true});
  const InUse in_use(c.is_used, "context");
  {
    const py::gil_scoped_release unlocked;
    c.forget();
    c.context.decode_batch(batch);
  }
  const auto width = static_cast<size_t>(c.context.model().vocab_size());
  py::array_t<float> result({batch.size(), width});
  for (size_t i = 0; i < batch.size(); ++i) {
    const std::span<const float> row = c.context.batch_logits(static_cast<int64_t>(i));
    std::copy(row.begin(), row.end(), result.mutable_data() + i * width);
  }
  return result;
}

std::unique_ptr<Stream> generate(PyContext& c, const Ids& prompt, const py::dict& options) {
  const assay::GenerateOptions o = generate_options(*c.model, py::dict(**options));
  const std::span<const TokenId> tokens = view(prompt);
  return std::make_unique<Stream>(
      c.is_used, "context",
      [&c, o, ids = std::vector(tokens.begin(), tokens.end())](const auto& sink, const auto& cancelled) {
        return c.generator.run(ids, o, sink, cancelled);
      });
}

struct PyChat {
  assay::ChatSession session;
  std::atomic<bool> is_used = false;
};

std::unique_ptr<Stream> say(PyChat& c, const std::string& text) {
  return std::make_unique<Stream>(c.is_used, "chat", [&c, text](const auto& sink, const auto& cancelled) {
    return c.session.say(text, sink, cancelled);
  });
}

std::unique_ptr<Stream> regenerate(PyChat& c) {
  return std::make_unique<Stream>(c.is_used, "chat", [&c](const auto& sink, const auto& cancelled) {
    return c.session.regenerate(sink, cancelled);
  });
}

std::unique_ptr<PyChat> make_chat(const PyModel& m, const std::string& system, const std::string& chat_template,
                                  bool drops_oldest, bool parts_reasoning, const py::dict& options,
                                  const py::dict& sampling) {
  assay::SchedulerOptions scheduling;
  scheduling.context = context_options(py::dict(**options));
  assay::GenerateOptions generate_settings = generate_options(*m.model, py::dict(**sampling));
  const py::gil_scoped_release unlocked;
  const auto parsed = assay::require_chat_template(*m.model, chat_template);
  const auto marks =
      parts_reasoning ? assay::find_reasoning_marks(*m.model, chat_template.empty() ? m.model->chat_template_source()
                                                                                    : std::string_view(chat_template))
                      : std::nullopt;
  if (marks) assay::show_marks(*m.model->tokenizer(), *marks, generate_settings);
  std::unique_ptr<PyChat> chat(new PyChat{
      assay::ChatSession(std::make_unique<assay::Scheduler>(m.model, scheduling), parsed, generate_settings, system)});
  if (drops_oldest) chat->session.set_when_full(assay::WhenFull::drop_oldest);
  if (parts_reasoning) chat->session.set_reasoning({.marks = marks});
  return chat;
}

assay::VerifyReport verify(const std::string& path, bool quick, const std::string& prompt,
                           const std::vector<std::string>& against, const py::dict& options) {
  assay::VerifyOptions o;
  o.context = context_options(py::dict(**options));
  o.quick = quick;
  o.prompt = prompt;
  o.against = against;
  Interrupt interrupt;
  o.cancelled = interrupt.hook();
  assay::VerifyReport report;
  {
    const py::gil_scoped_release unlocked;
    report = assay::verify_model(resolve(path), o);
  }
  interrupt.finish();
  return report;
}

assay::PerplexityResult perplexity(PyContext& c, PyContext* base, const Ids& ids, int64_t n_chunk,
                                   int64_t n_chunks_max) {
  const std::span<const TokenId> tokens = view(ids);
  const InUse in_use(c.is_used, "context");
  const auto base_in_use = base == nullptr ? nullptr : std::make_unique<InUse>(base->is_used, "other context");
  Interrupt interrupt;
  assay::PerplexityOptions o;
  o.n_chunk = n_chunk;
  o.n_chunks_max = n_chunks_max;
  o.cancelled = interrupt.hook();
  assay::PerplexityResult result;
  {
    const py::gil_scoped_release unlocked;
    c.forget();
    if (base != nullptr) base->forget();
    result = assay::perplexity(c.context, base == nullptr ? nullptr : &base->context, tokens, o);
  }
  interrupt.finish();
  return result;
}

const char* name_of(assay::Verdict verdict) {
  switch (verdict) {
    case assay::Verdict::pass: return "pass";
    case assay::Verdict::warn: return "warn";
    case assay::Verdict::fail: return "fail";
    case assay::Verdict::skip: return "skip";
  }
  return "";
}

void add_model(py::module_& module) {
  py::class_<PyModel>(module, "Model")
      .def(py::init(&load), py::arg("path_or_name"))
      .def_property_readonly("path", [](const PyModel& m) { return m.model->path(); })
      .def_property_readonly(
          "name",
          [](const PyModel& m) { return py::bytes(std::string(m.model->name())).attr("decode")("utf-8", "replace"); })
      .def_property_readonly("architecture", [](const PyModel& m) { return std::string(m.model->architecture()); })
      .def_property_readonly("weights_type", [](const PyModel& m) { return std::string(m.model->weights_type()); })
      .def_property_readonly(
          "chat_template",
          [](const PyModel& m) {
            return py::bytes(std::string(m.model->chat_template_source())).attr("decode")("utf-8", "replace");
          })
      .def_property_readonly("vocab_size", [](const PyModel& m) { return m.model->vocab_size(); })
      .def_property_readonly("n_ctx_train", [](const PyModel& m) { return m.model->n_ctx_train(); })
      .def_property_readonly("d_model", [](const PyModel& m) { return m.model->d_model(); })
      .def_property_readonly("n_layers", [](const PyModel& m) { return m.model->n_layers(); })
      .def_property_readonly("n_parameters", [](const PyModel& m) { return m.model->n_parameters(); })
      .def_property_readonly("file_bytes", [](const PyModel& m) { return m.model->file_bytes(); })
      .def_property_readonly("bos", [](const PyModel& m) { return m.model->tokenizer()->bos(); })
      .def_property_readonly("eos", [](const PyModel& m) { return m.model->tokenizer()->eos(); })
      .def("tokenize", &tokenize, py::arg("text"), py::kw_only(), py::arg("parse_special") = false,
           py::arg("add_bos") = py::none(), py::arg("add_eos") = py::none())
      .def("detokenize_bytes", &detokenize, py::arg("ids"), py::kw_only(), py::arg("special") = false);
}

void add_context(py::module_& module) {
  py::class_<PyContext>(module, "Context")
      .def(py::init(&make_context), py::arg("model"), py::arg("options"))
      .def_property_readonly("n_ctx", [](const PyContext& c) { return c.context.n_ctx(); })
      .def_property_readonly("kernels", [](const PyContext& c) { return std::string(c.context.kernels()); })
      .def("logits", &logits, py::arg("ids"))
      .def("decode", &decode, py::arg("ids"), py::kw_only(), py::arg("sequence") = 0)
      .def("decode_batch", &decode_batch, py::arg("tokens"))
      .def(
          "n_past", [](const PyContext& c, int sequence) { return c.context.n_past(sequence); }, py::kw_only(),
          py::arg("sequence") = 0)
      .def(
          "truncate",
          [](PyContext& c, int64_t n_positions, int sequence) {
            const InUse in_use(c.is_used, "context");
            c.forget();
            c.context.truncate(n_positions, sequence);
          },
          py::arg("n_positions"), py::kw_only(), py::arg("sequence") = 0)
      .def("clear",
           [](PyContext& c) {
             const InUse in_use(c.is_used, "context");
             c.forget();
             c.context.clear();
           })
      .def("logits_digest", [](const PyContext& c) { return c.context.logits_digest(); })
      .def(
          "kv_digest", [](const PyContext& c, int sequence) { return c.context.kv_digest(sequence); }, py::kw_only(),
          py::arg("sequence") = 0)
      .def("_generate", &generate, py::arg("prompt"), py::arg("options"), py::keep_alive<0, 1>());
  py::class_<assay::Generation>(module, "Generation")
      .def_property_readonly(
          "text", [](const assay::Generation& g) { return py::bytes(g.text).attr("decode")("utf-8", "replace"); })
      .def_property_readonly(
          "reasoning",
          [](const assay::Generation& g) { return py::bytes(g.reasoning).attr("decode")("utf-8", "replace"); })
      .def_readonly("ids", &assay::Generation::ids)
      .def_property_readonly("finish_reason",
                             [](const assay::Generation& g) { return std::string(assay::name(g.finish_reason)); })
      .def_readonly("n_prompt", &assay::Generation::n_prompt)
      .def_readonly("n_prompt_cached", &assay::Generation::n_prompt_cached)
      .def_property_readonly("prefill_ms", [](const assay::Generation& g) { return g.prefill.ms; })
      .def_property_readonly("decode_ms", [](const assay::Generation& g) { return g.decode.ms; });
}

void add_chat(py::module_& module) {
  py::class_<PyChat>(module, "Chat")
      .def(py::init(&make_chat), py::arg("model"), py::arg("system"), py::arg("chat_template"), py::arg("drops_oldest"),
           py::arg("parts_reasoning"), py::arg("context_options"), py::arg("options"))
      .def("say", &say, py::arg("text"), py::keep_alive<0, 1>())
      .def("regenerate", &regenerate, py::keep_alive<0, 1>())
      .def("undo", [](PyChat& c) { return InUse(c.is_used, "chat"), c.session.undo(); })
      .def("clear", [](PyChat& c) { InUse(c.is_used, "chat"), c.session.clear(); })
      .def(
          "set_system",
          [](PyChat& c, const std::string& text) { InUse(c.is_used, "chat"), c.session.set_system(text); },
          py::arg("text"))
      .def("save", [](PyChat& c) { return InUse(c.is_used, "chat"), c.session.save(); })
      .def(
          "load", [](PyChat& c, const std::string& json) { InUse(c.is_used, "chat"), c.session.load(json); },
          py::arg("json"))
      .def_property_readonly("messages", [](PyChat& c) {
        const InUse in_use(c.is_used, "chat");
        py::list result;
        for (const assay::Message& m : c.session.messages()) {
          py::dict message;
          message["role"] = m.role;
          message["content"] = py::bytes(m.content).attr("decode")("utf-8", "replace");
          result.append(message);
        }
        return result;
      });
}

void add_checks(py::module_& module) {
  py::class_<assay::VerifyStage>(module, "Stage")
      .def_readonly("id", &assay::VerifyStage::id)
      .def_readonly("title", &assay::VerifyStage::title)
      .def_property_readonly("verdict", [](const assay::VerifyStage& s) { return std::string(name_of(s.verdict)); })
      .def_readonly("summary", &assay::VerifyStage::summary)
      .def_readonly("details", &assay::VerifyStage::details);
  py::class_<assay::VerifyReport>(module, "Report")
      .def_property_readonly("passed", &assay::VerifyReport::passed)
      .def_readonly("stages", &assay::VerifyReport::stages)
      .def("to_text", &assay::VerifyReport::to_text)
      .def("to_json", &assay::VerifyReport::to_json)
      .def("to_html", &assay::VerifyReport::to_html);
  py::class_<assay::PerplexityResult>(module, "Perplexity")
      .def_readonly("n_tokens", &assay::PerplexityResult::n_tokens)
      .def_readonly("n_scored", &assay::PerplexityResult::n_scored)
      .def_readonly("n_chunks", &assay::PerplexityResult::n_chunks)
      .def_readonly("perplexity", &assay::PerplexityResult::perplexity)
      .def_readonly("perplexity_error", &assay::PerplexityResult::perplexity_error)
      .def_readonly("mean_nll", &assay::PerplexityResult::mean_nll)
      .def_readonly("mean_nll_error", &assay::PerplexityResult::mean_nll_error)
      .def_readonly("base_perplexity", &assay::PerplexityResult::base_perplexity)
      .def_property_readonly("kl_divergence", [](const assay::PerplexityResult& r) { return r.kl_divergence.mean; })
      .def_readonly("same_top", &assay::PerplexityResult::same_top);
  module.def("verify", &verify, py::arg("path_or_name"), py::arg("quick"), py::arg("prompt"), py::arg("against"),
             py::arg("context_options"));
  module.def("perplexity", &perplexity, py::arg("context"), py::arg("base").none(true), py::arg("ids"),
             py::arg("n_chunk"), py::arg("n_chunks_max"));
}

}  // namespace

PYBIND11_MODULE(_native, module) {
  py::register_exception_translator(&translate);
  module.attr("__version__") = ASSAY_VERSION;
  py::class_<Stream>(module, "Stream")
      .def("__iter__", [](py::object self) { return self; })
      .def("__next__", &Stream::next)
      .def("__enter__", [](py::object self) { return self; })
      .def("__exit__", [](Stream& s, const py::args&) { s.close(); })
      .def("close", &Stream::close)
      .def_property_readonly("result", &Stream::result, py::return_value_policy::copy);
  add_model(module);
  add_context(module);
  add_chat(module);
  add_checks(module);
}
