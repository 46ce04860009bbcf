// assay doctor: what this machine can run, and what to do about what stands in the way.
#include "assay/doctor.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "assay/utf8.h"
#include "commands.h"
#include "commands/stores.h"
#include "flags/flags.h"
#include "io/terminal.h"

namespace assay::cli {
namespace {

int64_t threads_asked_for() {
  const char* value = std::getenv("ASSAY_THREADS");
  const std::string_view text = value == nullptr ? "" : value;
  int64_t n = 0;
  std::from_chars(text.data(), text.data() + text.size(), n);  // what is no number is refused where it is used
  return n;
}

}  // namespace

int doctor_command(const Arguments& arguments) {
  Flags flags("doctor",
              "Shows what this machine can run: processor, kernels, memory and its bandwidth, GPUs, limits, stores, "
              "which models fit and how "
              "fast they can be at most; and common mistakes, each with what to do.",
              "  assay doctor\n"
              "  assay doctor --json | jq '.findings[]'\n");
  bool as_json = false;
  flags.on("--json", as_json, "One JSON object");
  if (!flags.parse(arguments)) {
    Output().write(flags.help());
    return 0;
  }
  DoctorOptions options;
  options.stores = stores_here().folders();
  options.n_threads = threads_asked_for();
  const DoctorReport report = examine(options);
  Output().write(as_json ? report.to_json() : printable_lines(report.to_text()));
  return 0;
}

}  // namespace assay::cli
