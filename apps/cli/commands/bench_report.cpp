// See bench_report.h.
#include "commands/bench_report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "assay/devices.h"
#include "assay/utf8.h"
#include "assay/version.h"
#include "flags/options.h"
#include "io/json_text.h"
#include "io/version.h"

namespace assay::cli {
namespace {

namespace json = boost::json;

std::string model_type(const Model& model) { return fmt::format("{} {}", model.architecture(), model.weights_type()); }

// As the driver calls it.
std::string gpu_name(const ContextOptions& options) {
  for (const Device& d : list_devices().devices) {
    if (d.backend == name(options.backend) && (options.devices.empty() || options.devices.front() == d.number))
      return d.name;
  }
  return {};
}

std::string percent(double share) { return share > 0 ? fmt::format("{:.0f} %", 100 * share) : ""; }

std::string rate(int64_t amount, double seconds) {
  return amount > 0 && seconds > 0 ? fmt::format("{:.1f}", static_cast<double>(amount) / seconds / 1e9) : "";
}

// Null where it is not known.
json::value known(double figure) { return figure > 0 ? json::value(figure) : json::value(nullptr); }

json::object limits_json(const MachineLimits& limits) {
  return {{"read_bandwidth", known(limits.read_bandwidth)},
          {"byte_products", known(limits.byte_products)},
          {"byte_instructions", limits.byte_instructions},
          {"float_multiply_adds", known(limits.float_multiply_adds)},
          {"float_instructions", limits.float_instructions}};
}

// What belongs to the build, the model and the run, under llama-bench's names.
json::object common_json(const BenchReport& report) {
  const Context& context = report.context;
  const Model& model = context.model();
  const ContextOptions& o = context.options();
  const bool on_gpu = o.backend != Backend::cpu;
  const std::string_view gpu = o.backend == Backend::vulkan ? "Vulkan" : "CUDA";
  return {
      {"build_commit", build_commit()},
      {"build_number", 0},
      {"version", ASSAY_VERSION},
      {"cpu_info", processor_name()},
      {"gpu_info", on_gpu ? gpu_name(o) : ""},
      {"backends", on_gpu ? gpu : "CPU"},
      {"model_filename", model.path()},
      {"model_type", model_type(model)},
      {"model_size", model.tensors_bytes()},
      {"model_n_params", model.n_parameters()},
      {"n_batch", report.n_batch},
      {"n_ubatch", o.n_ubatch},
      {"n_threads", o.n_threads},
      {"cpu_mask", "0x0"},
      {"cpu_strict", o.pin_threads},
      {"n_cpu_moe", 0},
      {"split_mode", o.split_mode == SplitMode::tensor ? "tensor" : "layer"},
      {"main_gpu", o.devices.empty() ? 0 : o.devices.front()},
      {"no_kv_offload", false},
      {"flash_attn", 1},
      {"devices", o.devices.empty() ? "auto" : fmt::format("{}{}", gpu, fmt::join(o.devices, fmt::format("/{}", gpu)))},
      {"tensor_split", o.device_shares.empty() ? "0.00" : fmt::format("{:.2f}", fmt::join(o.device_shares, "/"))},
      {"tensor_buft_overrides", "none"},
      {"use_mmap", true},
      {"embeddings", false},
      {"no_op_offload", 0},
      {"no_host", false},
      {"repack", false},
      {"type_k", name(o.cache_k)},
      {"type_v", name(o.cache_v)},
      {"n_gpu_layers", !on_gpu              ? 0
                       : o.n_gpu_layers < 0 ? model.n_layers()
                                            : std::min(o.n_gpu_layers, model.n_layers())}};
}

json::object result_json(const BenchReport& report, const BenchResult& r) {
  const double seconds = r.avg_ns * 1e-9;
  const int64_t n_tokens = (r.test.n_prompt + r.test.n_gen) * r.test.n_sequences;
  const MemoryFigures memory = report.context.memory();
  json::object result = common_json(report);
  const json::object figures = {
      {"n_prompt", r.test.n_prompt},
      {"n_gen", r.test.n_gen},
      {"n_depth", r.test.n_depth},
      {"n_parallel", r.test.n_sequences},
      {"test_time", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)))},
      {"avg_ns", static_cast<int64_t>(r.avg_ns)},
      {"stddev_ns", static_cast<int64_t>(r.stddev_ns)},
      {"avg_ts", r.avg_ts},
      {"stddev_ts", r.stddev_ts},
      {"samples_ns", json::value_from(r.samples_ns)},
      {"samples_ts", json::value_from(r.samples_ts)},
      {"bytes_per_token", r.work.bytes / n_tokens},
      {"multiply_adds_per_token", r.work.multiply_adds / n_tokens},
      {"share_of_bandwidth", known(share_of_bandwidth(r.work, seconds, report.limits))},
      {"share_of_peak", known(share_of_peak(r.work, seconds, report.limits))},
      {"limits", limits_json(report.limits)},
      {"numerics", numerics_json(report.context)},
      {"peak_memory", report.peak_memory},
      {"memory", {{"weights", memory.weights_bytes}, {"cache", memory.cache_bytes}, {"arena", memory.arena_bytes}}}};
  result.insert(figures.begin(), figures.end());
  return result;
}

// By name: the milliseconds of each start.
struct StartRow {
  const char* key;
  const char* label;
  double (*ms)(const StartTiming& timing);
};

constexpr StartRow kStartRows[] = {
    {"open_ms", "map the file, read its header", [](const StartTiming& t) { return t.load.open_ms; }},
    {"plan_ms", "plan", [](const StartTiming& t) { return t.load.plan_ms; }},
    {"vocabulary_ms", "vocabulary", [](const StartTiming& t) { return t.load.vocabulary_ms; }},
    {"template_ms", "chat template", [](const StartTiming& t) { return t.load.template_ms; }},
    {"context_ms", "context", [](const StartTiming& t) { return t.context_ms; }},
    {"first_token_ms", "first token after 5", [](const StartTiming& t) { return t.first_token_ms; }},
    {"total_ms", "all", [](const StartTiming& t) { return t.total_ms(); }},
};
static_assert(kStartTokens == 5);

std::vector<double> samples_of(const StartRow& row, const std::vector<StartTiming>& start) {
  std::vector<double> samples;
  for (const StartTiming& timing : start) samples.push_back(row.ms(timing));
  return samples;
}

double median(std::vector<double> samples) {
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  return *middle;
}

}  // namespace

std::string test_name(const BenchTest& t) {
  std::string text;
  if (t.n_prompt > 0) text += fmt::format("pp{}", t.n_prompt);
  if (t.n_gen > 0) text += fmt::format("{}tg{}", text.empty() ? "" : "+", t.n_gen);
  if (t.n_depth > 0) text += fmt::format(" @ d{}", t.n_depth);
  if (t.n_sequences > 1) text += fmt::format(" x {}", t.n_sequences);
  return text;
}

namespace {

constexpr std::string_view kTableHead =
    "| model | size | threads | test | t/s | of the bandwidth | of the peak |\n"
    "| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n";

std::string table_rows(const BenchReport& report, const std::vector<BenchResult>& results) {
  const Model& model = report.context.model();
  constexpr double kMebibyte = 1 << 20;
  std::string text;
  for (const BenchResult& r : results) {
    const double seconds = r.avg_ns * 1e-9;
    text += fmt::format("| {} {} | {:.1f} MiB | {} | {} | {:.2f} ± {:.2f} | {} | {} |\n", printable(model.name()),
                        model_type(model), static_cast<double>(model.file_bytes()) / kMebibyte,
                        report.context.options().n_threads, test_name(r.test), r.avg_ts, r.stddev_ts,
                        percent(share_of_bandwidth(r.work, seconds, report.limits)),
                        percent(share_of_peak(r.work, seconds, report.limits)));
  }
  return text;
}

std::string table_foot(const BenchReport& report) {
  const ContextOptions& o = report.context.options();
  constexpr double kMebibyte = 1 << 20;
  std::string text =
      fmt::format("\npeak memory {:.1f} MiB; kernels {}; numerics {}",
                  static_cast<double>(report.peak_memory) / kMebibyte, report.context.kernels(), name(o.numerics));
  if (o.numerics == Numerics::exact || o.numerics == Numerics::fast)
    text += fmt::format(", {} bits", o.activation_bits);
  text += fmt::format("; -ub {}", o.n_ubatch);
  if (o.backend != Backend::cpu) text += fmt::format("; -ngl {}", o.n_gpu_layers);
  const MachineLimits& limits = report.limits;
  if (limits.read_bandwidth > 0) text += fmt::format("\nmemory reads {:.1f} GB/s", limits.read_bandwidth / 1e9);
  if (limits.byte_products > 0) {
    text +=
        fmt::format("; peak {:.0f} G byte products/s ({}), {:.0f} G multiply-adds/s ({})", limits.byte_products / 1e9,
                    limits.byte_instructions, limits.float_multiply_adds / 1e9, limits.float_instructions);
  }
  return text + "\n";
}

// A figure as a table of one level has it: objects within are named with an underscore, lists (the samples) are left
// out.
void flatten(const json::object& object, const std::string& prefix,
             std::vector<std::pair<std::string, json::value>>& columns) {
  for (const auto& [key, value] : object) {
    const std::string column = prefix + std::string(key);
    if (value.is_object()) {
      flatten(value.as_object(), column + "_", columns);
    } else if (!value.is_array()) {
      columns.emplace_back(column, value);
    }
  }
}

std::string with_doubled(const std::string& text, char mark) {
  std::string out;
  out.push_back(mark);
  for (char c : text) {
    if (c == mark) out.push_back(mark);
    out.push_back(c);
  }
  out.push_back(mark);
  return out;
}

std::string cell(const json::value& value, char mark, const char* absent) {
  if (value.is_null()) return absent;
  const std::string text = to_text(value);
  return value.is_string() ? with_doubled(printable(std::string(value.as_string())), mark) : text;
}

std::string sql_type(const json::value& value) {
  return value.is_string() ? "TEXT" : value.is_double() || value.is_null() ? "REAL" : "INTEGER";
}

std::string as_csv(const json::array& all) {
  std::string text;
  for (const json::value& one : all) {
    std::vector<std::pair<std::string, json::value>> columns;
    flatten(one.as_object(), "", columns);
    std::string head, row;
    for (const auto& [column, value] : columns) {
      if (!head.empty()) head += ',', row += ',';
      head += column;
      row += cell(value, '"', "");
    }
    if (text.empty()) text = head + "\n";
    text += row + "\n";
  }
  return text;
}

// Into the table that llama-bench fills.
std::string as_sql(const json::array& all) {
  std::string text;
  for (const json::value& one : all) {
    std::vector<std::pair<std::string, json::value>> columns;
    flatten(one.as_object(), "", columns);
    std::string types, names, row;
    for (const auto& [column, value] : columns) {
      types += fmt::format("{}  {} {}", types.empty() ? "" : ",\n", column, sql_type(value));
      names += (names.empty() ? "" : ", ") + column;
      row += (row.empty() ? "" : ", ") + cell(value, '\'', "NULL");
    }
    if (text.empty()) text = fmt::format("CREATE TABLE IF NOT EXISTS llama_bench (\n{}\n);\n\n", types);
    text += fmt::format("INSERT INTO llama_bench ({}) VALUES ({});\n", names, row);
  }
  return text;
}

}  // namespace

void BenchWriter::add(const BenchReport& report, const std::vector<BenchResult>& results) {
  if (results.empty()) return;
  if (format_ == "md") {
    rows_ += table_rows(report, results);
    const std::string foot = table_foot(report);
    if (foot != last_foot_) feet_ += foot;
    last_foot_ = foot;
    return;
  }
  for (const BenchResult& r : results) all_.push_back(result_json(report, r));
}

std::string BenchWriter::text() const {
  if (format_ == "md") return rows_.empty() ? std::string() : std::string(kTableHead) + rows_ + feet_;
  if (format_ == "csv") return as_csv(all_);
  if (format_ == "sql") return as_sql(all_);
  if (format_ == "json") return to_text(all_, true) + "\n";
  std::string lines;
  for (const json::value& one : all_) lines += to_text(one) + "\n";
  return lines;
}

std::string profile_text(const Profile& p, const MachineLimits& limits) {
  std::string text = fmt::format(
      "{} token{} after {}: {:.3f} ms; {:.3f} ms where the steps are not timed\n\n"
      "{:>8} {:>7} {:>6} {:>8} {:>6} {:>8} {:>6}  ops\n",
      p.n_tokens, p.n_tokens == 1 ? "" : "s", p.n_past, 1e3 * p.seconds, 1e3 * p.untimed_seconds, "ms", "share",
      "steps", "GB/s", "of it", "GMAC/s", "of it");
  for (const ProfileRow& row : p.rows) {
    text += fmt::format(
        "{:>8.3f} {:>6.1f}% {:>6} {:>8} {:>6} {:>8} {:>6}  {}\n", 1e3 * row.seconds, 100 * row.seconds / p.seconds,
        row.n_steps, rate(row.work.bytes, row.seconds), percent(share_of_bandwidth(row.work, row.seconds, limits)),
        rate(row.work.multiply_adds, row.seconds), percent(share_of_peak(row.work, row.seconds, limits)), row.ops);
  }
  return text;
}

json::object profile_json(const Profile& p, const MachineLimits& limits) {
  json::array rows;
  for (const ProfileRow& row : p.rows) {
    rows.push_back(json::object{{"ops", row.ops},
                                {"n_steps", row.n_steps},
                                {"seconds", row.seconds},
                                {"share", row.seconds / p.seconds},
                                {"bytes", row.work.bytes},
                                {"multiply_adds", row.work.multiply_adds},
                                {"share_of_bandwidth", known(share_of_bandwidth(row.work, row.seconds, limits))},
                                {"share_of_peak", known(share_of_peak(row.work, row.seconds, limits))}});
  }
  return {{"n_tokens", p.n_tokens},        {"n_past", p.n_past},
          {"seconds", p.seconds},          {"untimed_seconds", p.untimed_seconds},
          {"limits", limits_json(limits)}, {"rows", std::move(rows)}};
}

std::string start_text(const std::vector<StartTiming>& start) {
  std::string text =
      fmt::format("start, {} times\n\n{:>10} {:>10} {:>10}  ms\n", start.size(), "median", "least", "most");
  for (const StartRow& row : kStartRows) {
    const std::vector<double> samples = samples_of(row, start);
    const auto [least, most] = std::minmax_element(samples.begin(), samples.end());
    text += fmt::format("{:>10.2f} {:>10.2f} {:>10.2f}  {}\n", median(samples), *least, *most, row.label);
  }
  return text;
}

json::object start_json(const std::vector<StartTiming>& start) {
  json::object result = {{"n_tokens", kStartTokens}};
  json::object all;
  for (const StartRow& row : kStartRows) {
    const std::vector<double> samples = samples_of(row, start);
    result[row.key] = median(samples);
    all[row.key] = json::value_from(samples);
  }
  result["samples"] = std::move(all);
  return result;
}

}  // namespace assay::cli
