// The report of `assay doctor` as text and as JSON.
#include <fmt/format.h>

#include <boost/json.hpp>
#include <iterator>

#include "assay/doctor.h"

namespace assay {
namespace {

namespace json = boost::json;

constexpr double kGiB = 1 << 30;
double gib(int64_t bytes) { return static_cast<double>(bytes) / kGiB; }

std::string joined(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, " ")); }

std::string limit_text(int64_t limit) {
  if (limit < 0) return "none";
  return limit < (int64_t{1} << 30) ? fmt::format("{} MiB", limit >> 20) : fmt::format("{:.1f} GiB", gib(limit));
}

json::value or_null(int64_t limit) { return limit < 0 ? json::value(nullptr) : json::value(limit); }

json::array strings(const std::vector<std::string>& words) { return json::array(words.begin(), words.end()); }

json::object to_json(const MachineFacts& m) {
  json::array devices;
  for (const Device& d : m.devices.devices) {
    devices.push_back(json::object{{"backend", d.backend},
                                   {"name", d.name},
                                   {"detail", d.detail},
                                   {"memory", d.memory_bytes},
                                   {"memory_free", d.memory_free_bytes}});
  }
  return {{"features", strings(m.features)},
          {"kernels", strings(m.kernels)},
          {"kernels_used", m.kernels.back()},
          {"cores", m.n_cores},
          {"processors", m.n_processors},
          {"processors_online", m.n_processors_online},
          {"memory_bytes", m.memory_bytes},
          {"available_bytes", m.available_bytes},
          {"swap_bytes", m.swap_bytes},
          {"swap_used_bytes", m.swap_used_bytes},
          {"read_bandwidth", m.read_bandwidth > 0 ? json::value(m.read_bandwidth) : json::value(nullptr)},
          {"devices", devices},
          {"no_cuda", m.devices.no_cuda},
          {"limits",
           {{"address_space_bytes", or_null(m.address_space_limit)},
            {"locked_memory_bytes", or_null(m.locked_memory_limit)},
            {"open_files", or_null(m.open_files_limit)},
            {"control_group_memory_bytes", or_null(m.group_memory_limit)}}}};
}

void put_machine(std::string& text, const MachineFacts& m) {
  const auto to = std::back_inserter(text);
  const std::string processor = m.devices.devices.empty() ? "processor" : m.devices.devices.front().name;
  fmt::format_to(to, "processor  {}: {} cores, {} of {} processors\n", processor, m.n_cores, m.n_processors,
                 m.n_processors_online);
  fmt::format_to(to, "features   {}\n", joined(m.features));
  fmt::format_to(to, "kernels    {} (of {})\n", m.kernels.back(), joined(m.kernels));
  fmt::format_to(to, "memory     {:.1f} GiB, {:.1f} available", gib(m.memory_bytes), gib(m.available_bytes));
  if (m.swap_bytes > 0)
    fmt::format_to(to, "; swap {:.1f} GiB, {:.1f} in use", gib(m.swap_bytes), gib(m.swap_used_bytes));
  fmt::format_to(to, "\nbandwidth  {}\n",
                 m.read_bandwidth > 0 ? fmt::format("{:.1f} GB/s read by all cores", m.read_bandwidth / 1e9)
                                      : "not measured: too little memory is free");
  for (const Device& d : m.devices.devices) {
    if (d.backend != "cpu")
      fmt::format_to(to, "gpu        {}: {}, {:.1f} GiB, {:.1f} free\n", d.name, d.detail, gib(d.memory_bytes),
                     gib(d.memory_free_bytes));
  }
  if (!m.devices.no_cuda.empty()) fmt::format_to(to, "gpu        none: {}\n", m.devices.no_cuda);
  fmt::format_to(to, "limits     address space {}, locked memory {}, control group {}, open files {}\n",
                 limit_text(m.address_space_limit), limit_text(m.locked_memory_limit), limit_text(m.group_memory_limit),
                 m.open_files_limit < 0 ? "no limit" : fmt::to_string(m.open_files_limit));
}

}  // namespace

std::string DoctorReport::to_text() const {
  std::string text;
  const auto to = std::back_inserter(text);
  put_machine(text, machine);
  text += "\n";
  for (const DoctorStore& store : stores) {
    fmt::format_to(to, "store      {:<12} {}: ", name(store.folder.kind), store.folder.path);
    if (store.exists) {
      fmt::format_to(to, "{} models, {:.1f} GiB{}\n", store.n_models, gib(store.bytes),
                     store.network_disk.empty() ? "" : ", on " + store.network_disk);
    } else {
      text += "not there\n";
    }
  }
  text += "\n";
  for (const DoctorModel& model : models) {
    if (model.problem.empty()) {
      fmt::format_to(to, "model      {}: {} {}, needs {:.2f} GiB, {}", model.name, model.architecture,
                     model.weights_type, gib(model.needs_bytes), model.fits ? "fits" : "does not fit");
      if (model.tokens_per_second > 0)
        fmt::format_to(to, ", at most {:.0f} tokens/s on the CPU", model.tokens_per_second);
      text += "\n";
    } else {
      fmt::format_to(to, "model      {}: cannot be used\n", model.name);
    }
  }
  text += findings.empty() ? "\nNothing stands in the way.\n" : "\n";
  for (const DoctorFinding& finding : findings)
    fmt::format_to(to, "{}: {}\n  to do: {}\n", finding.rule, finding.what, finding.advice);
  return text;
}

std::string DoctorReport::to_json() const {
  json::array store_list, model_list, finding_list;
  for (const DoctorStore& s : stores) {
    store_list.push_back(json::object{{"store", name(s.folder.kind)},
                                      {"path", s.folder.path},
                                      {"exists", s.exists},
                                      {"models", s.n_models},
                                      {"bytes", s.bytes},
                                      {"free_bytes", or_null(s.free_bytes)},
                                      {"network_disk", s.network_disk}});
  }
  for (const DoctorModel& m : models) {
    json::object model = {
        {"name", m.name},
        {"architecture", m.architecture},
        {"type", m.weights_type},
        {"bytes", m.bytes},
        {"needs_bytes", m.needs_bytes},
        {"fits", m.fits},
        {"tokens_per_second_max", m.tokens_per_second > 0 ? json::value(m.tokens_per_second) : json::value(nullptr)}};
    if (!m.problem.empty()) model["problem"] = m.problem;
    model_list.push_back(std::move(model));
  }
  for (const DoctorFinding& f : findings)
    finding_list.push_back(json::object{{"rule", f.rule}, {"what", f.what}, {"advice", f.advice}});
  const json::object all = {{"machine", ::assay::to_json(machine)},
                            {"stores", store_list},
                            {"models", model_list},
                            {"findings", finding_list}};
  return json::serialize(all) + "\n";
}

}  // namespace assay
