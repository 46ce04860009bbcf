// The devices of this machine, and which one is meant where none is named.
#include "assay/error.h"
#include "backend/vulkan/probe/probe.h"
#include "backend/vulkan/runtime/open_device.h"
#include "backend/vulkan/vulkan.h"

namespace assay::backend::vulkan {
namespace {

void add_probe(DeviceInfo& info, int number) {
  try {
    Device device(std::make_unique<const Instance>(), number);
    const Probe found = probe(device);
    info.arithmetic = found.text;
    info.refused = found.refused;
    info.note = device.cache_note();
  } catch (const Error& e) {
    info.refused = e.what();
  }
}

}  // namespace

Devices find_devices(bool with_probe) {
  Devices devices;
  try {
    const Instance instance;
    for (const Facts& facts : instance.devices()) {
      DeviceInfo info;
      info.name = facts.name;
      info.driver = facts.driver;
      info.version_major = static_cast<int>(VK_API_VERSION_MAJOR(facts.version));
      info.version_minor = static_cast<int>(VK_API_VERSION_MINOR(facts.version));
      info.is_software = facts.is_software;
      info.memory_bytes = facts.memory_bytes;
      info.free_bytes = facts.free_bytes;
      info.refused = facts.refused;
      devices.list.push_back(std::move(info));
    }
    if (devices.list.empty()) devices.why_none = "the loader found no device; its driver's package may be missing";
  } catch (const Error& e) {
    devices.why_none = e.what();
  }
  for (size_t i = 0; with_probe && i < devices.list.size(); ++i) {
    if (devices.list[i].refused.empty()) add_probe(devices.list[i], static_cast<int>(i));
  }
  return devices;
}

int default_device() {
  const Devices devices = find_devices(false);
  if (devices.list.empty()) throw Error(Errc::device, devices.why_none);
  std::string others;
  for (size_t i = 0; i < devices.list.size(); ++i) {
    const DeviceInfo& info = devices.list[i];
    if (info.refused.empty() && !info.is_software) return static_cast<int>(i);
    others += (others.empty() ? "" : "; ") + std::to_string(i) + ": " + info.name + ", " +
              (info.refused.empty() ? "software: the processor itself, slower than --backend cpu" : info.refused);
  }
  throw Error(Errc::device, "no Vulkan device is chosen by itself here, --device names one (" + others + ")");
}

std::unique_ptr<Device> open_device(int number) {
  auto device = std::make_unique<Device>(std::make_unique<const Instance>(), number);
  const Probe found = probe(*device);
  if (!found.refused.empty()) {
    throw Error(Errc::device, "Vulkan device " + std::to_string(number) + " (" + device->facts().name + ", " +
                                  device->facts().driver + "): " + found.refused +
                                  "; its bits could not be the CPU's, so it is not used. A newer driver may compute "
                                  "better; --backend cpu serves everything");
  }
  return device;
}

}  // namespace assay::backend::vulkan
