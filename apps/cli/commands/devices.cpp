// assay devices: what a model can run on here.
#include "assay/devices.h"

#include <fmt/format.h>

#include <boost/json.hpp>

#include "commands.h"
#include "flags/flags.h"
#include "io/json_text.h"
#include "io/terminal.h"

namespace assay::cli {
namespace {

boost::json::array to_json(const DeviceList& list) {
  boost::json::array devices;
  for (const Device& d : list.devices) {
    boost::json::object device = {{"backend", d.backend},     {"number", d.number},
                                  {"name", d.name},           {"detail", d.detail},
                                  {"memory", d.memory_bytes}, {"memory_free", d.memory_free_bytes}};
    if (!d.refused.empty()) device["refused"] = d.refused;
    devices.push_back(std::move(device));
  }
  return devices;
}

}  // namespace

int devices_command(const Arguments& arguments) {
  Flags flags("devices", "Lists what a model can run on here, with its memory.",
              "  assay devices\n"
              "  assay devices --json | jq '.devices[].name'\n");
  bool as_json = false;
  flags.on("--json", as_json, "One JSON object");
  if (!flags.parse(arguments)) {
    Output().write(flags.help());
    return 0;
  }
  const DeviceList list = list_devices(true);
  if (as_json) {
    boost::json::object result = {{"devices", to_json(list)}};
    if (!list.no_cuda.empty()) result["no_cuda"] = list.no_cuda;
    if (!list.no_vulkan.empty()) result["no_vulkan"] = list.no_vulkan;
    Output().write(to_text(result) + "\n");
    return 0;
  }
  constexpr double kGibibyte = 1 << 30;
  std::string text;
  for (const Device& d : list.devices) {
    const std::string backend = d.backend == "vulkan" ? fmt::format("vulkan{}", d.number) : d.backend;
    text += fmt::format("{:<7} {}: {}, {:.1f} GiB of memory", backend, d.name, d.detail,
                        static_cast<double>(d.memory_bytes) / kGibibyte);
    if (d.backend != "vulkan" || d.memory_free_bytes > 0)
      text += fmt::format(", {:.1f} GiB free", static_cast<double>(d.memory_free_bytes) / kGibibyte);
    text += d.refused.empty() ? "\n" : fmt::format("; not used: {}\n", d.refused);
  }
  if (!list.no_cuda.empty()) text += fmt::format("{:<7} none: {}\n", "cuda", list.no_cuda);
  if (!list.no_vulkan.empty()) text += fmt::format("{:<7} none: {}\n", "vulkan", list.no_vulkan);
  Output().write(text);
  return 0;
}

}  // namespace assay::cli
