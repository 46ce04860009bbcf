// An Inspection as text for people and as JSON for programs.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "assay/inspect.h"
#include "base/utf8.h"
#include "engine/metadata_json.h"

namespace assay {
namespace {

using engine::json_string;

constexpr size_t kShownChars = 100;

std::string_view code_name(Errc code) noexcept {
  switch (code) {
    case Errc::bad_file: return "bad_file";
    case Errc::unsupported: return "unsupported";
    case Errc::out_of_memory: return "out_of_memory";
    case Errc::bad_request: return "bad_request";
    case Errc::io: return "io";
    case Errc::device: return "device";
  }
  return "unknown";
}

std::string_view level_name(LintLevel level) noexcept { return level == LintLevel::error ? "error" : "warning"; }

std::string join(const std::vector<int64_t>& shape, std::string_view separator) {
  return fmt::format("{}", fmt::join(shape, separator));
}

// At most kShownChars bytes, cut before a character rather than inside.
std::string cut(std::string_view text) {
  if (text.size() <= kShownChars) return std::string(text);
  size_t end = kShownChars;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "...";
}

std::string mebibytes(int64_t bytes) { return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20)); }

std::string n_of(int64_t n, std::string_view thing) { return fmt::format("{} {}{}", n, thing, n == 1 ? "" : "s"); }

void append_head(std::string& out, const Inspection& in) {
  auto to = std::back_inserter(out);
  fmt::format_to(to, "{}: GGUF version {}, {} bytes in {}, alignment {}\n", in.path, in.version, in.file_bytes,
                 n_of(in.n_shards, "file"), in.alignment);
  fmt::format_to(to, "{}: architecture {}, ", in.name.empty() ? "(no name)" : in.name,
                 in.architecture.empty() ? "(none)" : in.architecture);
  if (in.vocabulary_only) {
    out += "a vocabulary without weights\n";
  } else {
    if (!in.weights_type.empty()) fmt::format_to(to, "weights mostly {}, ", in.weights_type);
    fmt::format_to(to, "{}, {} parameters\n", n_of(static_cast<int64_t>(in.tensors.size()), "tensor"), in.n_parameters);
  }
}

void append_metadata(std::string& out, const Inspection& in) {
  auto to = std::back_inserter(out);
  fmt::format_to(to, "\nMetadata: {}, {} unread (marked -)\n", n_of(static_cast<int64_t>(in.metadata.size()), "key"),
                 in.n_unread());
  size_t key_width = 0, type_width = 0;
  for (const MetadataFact& fact : in.metadata) {
    key_width = std::max(key_width, std::min<size_t>(fact.key.size(), 48));
    type_width = std::max(type_width, fact.type.size());
  }
  for (const MetadataFact& fact : in.metadata) {
    const std::string count = fact.type.starts_with("array") ? fmt::format("{}: ", fact.count) : std::string();
    fmt::format_to(to, "{} {:<{}}  {:<{}}  {}{}{}\n", fact.read ? ' ' : '-', fact.key, key_width, fact.type, type_width,
                   count, cut(fact.json), fact.shortened ? " and more" : "");
  }
}

void append_tensors(std::string& out, const Inspection& in) {
  if (in.tensors.empty()) return;
  auto to = std::back_inserter(out);
  fmt::format_to(to, "\nTensors: {} (shape row-major, offset from the start of the file)\n", in.tensors.size());
  size_t name_width = 0;
  for (const TensorFact& tensor : in.tensors) name_width = std::max(name_width, tensor.name.size());
  for (const TensorFact& tensor : in.tensors) {
    fmt::format_to(to, "  {:<{}}  {:<7}  {:>16}  offset {:>12}  {:>12} bytes", tensor.name, name_width, tensor.type,
                   join(tensor.shape, " x "), tensor.offset, tensor.bytes);
    if (in.n_shards > 1) fmt::format_to(to, "  shard {}", tensor.shard + 1);
    out += '\n';
  }
}

void append_memory(std::string& out, const Inspection& in) {
  auto to = std::back_inserter(out);
  for (const MemoryPlan& plan : in.memory) {
    fmt::format_to(to, "\nMemory for -c {} -ub {} -ctk {} -ctv {}, {}, numerics {}\n", plan.options.n_ctx,
                   plan.options.n_ubatch, name(plan.options.cache_k), name(plan.options.cache_v),
                   n_of(plan.options.n_sequences, "sequence"), name(plan.options.numerics));
    fmt::format_to(to, "  weights (mapped)  {:>12}\n  KV cache          {:>12}\n",
                   mebibytes(plan.figures.weights_bytes), mebibytes(plan.figures.cache_bytes));
    fmt::format_to(to, "  arena             {:>12}\n  total             {:>12}\n", mebibytes(plan.figures.arena_bytes),
                   mebibytes(plan.total_bytes()));
    fmt::format_to(to, "  available         {:>12}: {}\n", mebibytes(plan.available_bytes),
                   !plan.fits()                   ? "it does not fit"
                   : plan.beyond_training.empty() ? "it fits"
                                                  : "it fits, but " + plan.beyond_training);
    for (const DeviceMemory& d : plan.devices) {
      fmt::format_to(to, "  GPU {}             {:>12} of {} available: {}\n", d.device, mebibytes(d.used_bytes),
                     mebibytes(d.available_bytes), d.name);
    }
  }
}

void append_metadata_json(std::string& out, const Inspection& in) {
  auto to = std::back_inserter(out);
  out += "  \"metadata\": [";
  for (size_t i = 0; i < in.metadata.size(); ++i) {
    const MetadataFact& fact = in.metadata[i];
    fmt::format_to(
        to, "{}\n    {{\"key\": {}, \"type\": \"{}\", \"count\": {}, \"value\": {}, \"shortened\": {}, \"read\": {}}}",
        i == 0 ? "" : ",", json_string(fact.key), fact.type, fact.count, fact.json, fact.shortened, fact.read);
  }
  out += in.metadata.empty() ? "],\n" : "\n  ],\n";
}

void append_tensors_json(std::string& out, const Inspection& in) {
  auto to = std::back_inserter(out);
  out += "  \"tensors\": [";
  for (size_t i = 0; i < in.tensors.size(); ++i) {
    const TensorFact& tensor = in.tensors[i];
    fmt::format_to(
        to, "{}\n    {{\"name\": {}, \"type\": \"{}\", \"shape\": [{}], \"shard\": {}, \"offset\": {}, \"bytes\": {}}}",
        i == 0 ? "" : ",", json_string(tensor.name), tensor.type, join(tensor.shape, ", "), tensor.shard, tensor.offset,
        tensor.bytes);
  }
  out += in.tensors.empty() ? "],\n" : "\n  ],\n";
}

void append_memory_json(std::string& out, const Inspection& in) {
  if (in.memory.empty()) {
    out += "  \"memory\": null,\n";
    return;
  }
  const MemoryPlan& plan = in.memory.front();
  std::string devices;
  for (const DeviceMemory& d : plan.devices) {
    fmt::format_to(std::back_inserter(devices),
                   "{}{{\"device\": {}, \"name\": {}, \"used_bytes\": {}, \"available_bytes\": {}}}",
                   devices.empty() ? "" : ", ", d.device, json_string(d.name), d.used_bytes, d.available_bytes);
  }
  fmt::format_to(std::back_inserter(out),
                 "  \"memory\": {{\"n_ctx\": {}, \"n_ubatch\": {}, \"n_sequences\": {}, \"cache_k\": \"{}\", "
                 "\"cache_v\": \"{}\", \"numerics\": \"{}\", "
                 "\"weights_bytes\": {}, \"cache_bytes\": {}, \"arena_bytes\": {}, \"total_bytes\": {}, "
                 "\"available_bytes\": {}, \"fits\": {}, \"beyond_training\": {}, \"devices\": [{}]}},\n",
                 plan.options.n_ctx, plan.options.n_ubatch, plan.options.n_sequences, name(plan.options.cache_k),
                 name(plan.options.cache_v), name(plan.options.numerics), plan.figures.weights_bytes,
                 plan.figures.cache_bytes, plan.figures.arena_bytes, plan.total_bytes(), plan.available_bytes,
                 plan.fits(), plan.beyond_training.empty() ? "null" : json_string(plan.beyond_training), devices);
}

}  // namespace

std::string Inspection::to_text() const {
  std::string out;
  append_head(out, *this);
  for (const InspectProblem& problem : problems)
    out += fmt::format("problem: {}: {}\n", problem.part, base::repaired_utf8(problem.message));
  if (linted) out += lint_text();
  append_metadata(out, *this);
  append_tensors(out, *this);
  append_memory(out, *this);
  return out;
}

std::string Inspection::to_json() const {
  std::string out = fmt::format(
      "{{\n  \"path\": {},\n  \"version\": {},\n  \"alignment\": {},\n  \"file_bytes\": {},\n  \"n_shards\": {},\n  "
      "\"name\": {},\n"
      "  \"architecture\": {},\n  \"weights_type\": {},\n  \"n_parameters\": {},\n  \"vocabulary_only\": {},\n  "
      "\"n_unread\": {},\n",
      json_string(path), version, alignment, file_bytes, n_shards, json_string(name), json_string(architecture),
      json_string(weights_type), n_parameters, vocabulary_only, n_unread());
  append_metadata_json(out, *this);
  append_tensors_json(out, *this);
  append_memory_json(out, *this);
  out += "  \"problems\": [";
  for (size_t i = 0; i < problems.size(); ++i) {
    out += fmt::format("{}{{\"part\": \"{}\", \"code\": \"{}\", \"message\": {}}}", i == 0 ? "" : ", ",
                       problems[i].part, code_name(problems[i].code), json_string(problems[i].message));
  }
  out += "]";
  if (linted) {
    out += ",\n  \"lint\": [";
    for (size_t i = 0; i < lint.size(); ++i) {
      out += fmt::format("{}\n    {{\"rule\": \"{}\", \"level\": \"{}\", \"message\": {}}}", i == 0 ? "" : ",",
                         lint[i].rule, level_name(lint[i].level), json_string(lint[i].message));
    }
    out += lint.empty() ? "]" : "\n  ]";
  }
  out += "\n}\n";
  return out;
}

std::string Inspection::lint_text() const {
  if (lint.empty()) return fmt::format("{}: nothing to find fault with\n", path);
  std::string out;
  for (const LintFinding& finding : lint) {
    out += fmt::format("{}: {}: {}\n", level_name(finding.level), finding.rule, base::repaired_utf8(finding.message));
  }
  return out;
}

}  // namespace assay
