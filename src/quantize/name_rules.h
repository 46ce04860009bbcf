// The user's own rules: regular expressions over tensor names.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/dtype.h"

namespace assay::quantizing {

class NameRules {
 public:
  // Expression and type name. Error(bad_request) naming the expression, its fault and where it is, or the type.
  // Expressions are taken in lower case, as tensors' names are.
  explicit NameRules(const std::vector<std::pair<std::string, std::string>>& rules);
  ~NameRules();
  NameRules(const NameRules&) = delete;
  NameRules& operator=(const NameRules&) = delete;

  bool empty() const noexcept;
  // Of the first rule that matches anywhere in the name. Error(bad_request) where matching takes too many steps.
  std::optional<tensor::DType> type_of(std::string_view name) const;

 private:
  struct Rule;
  std::vector<Rule> rules_;
};

}  // namespace assay::quantizing
