// What cuda.h shows of the tables of kernels where no card is.
#include "assay/error.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda/kernels/kernel_uses.h"
#include "ops/plan/plan_check.h"

namespace assay::backend::cuda {

std::vector<std::string> card_names() {
  std::vector<std::string> names;
  for (const Card& card : known_cards()) names.emplace_back(card.name);
  return names;
}

std::vector<std::vector<ops::KernelUse>> kernels_on_card(const ops::Plan& plan, const ops::ExecutorOptions& options,
                                                         std::string_view name) {
  const Card* card = find_card(name);
  if (card == nullptr) {
    std::string names;
    for (const std::string& known : card_names()) names += (names.empty() ? "" : ", ") + known;
    throw Error(Errc::bad_request, "card \"" + std::string(name) + "\": needs one of " + names);
  }
  ops::check_plan(plan, options);
  const Schedule schedule = make_schedule(plan, options, *card);
  const KernelPlan kernels(plan, options, schedule, *card);
  std::vector<std::vector<ops::KernelUse>> uses;
  for (size_t i = 0; i < plan.ops.size(); ++i)
    uses.push_back(kernel_uses(plan, schedule, kernels, static_cast<int32_t>(i)));
  return uses;
}

}  // namespace assay::backend::cuda
