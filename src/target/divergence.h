// What one weight in another type does to a model's distributions over a text.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "assay/model.h"
#include "base/thread_pool.h"
#include "engine/context_options.h"
#include "gguf/file.h"
#include "kld/base_rows.h"

namespace assay::target {

class Divergence {
 public:
  // Runs the text once as the model is. Positions from the eighth on are compared. The pool must outlive this.
  Divergence(std::shared_ptr<const Model> model, std::span<const TokenId> ids, base::ThreadPool& pool);

  // The mean Kullback-Leibler divergence of the model with `bytes` of type `dtype` in place of that tensor of its file.
  // Negative: no run reads the tensor.
  double with(std::string_view tensor, tensor::DType dtype, std::span<const std::byte> bytes) const;

 private:
  // use(row, logits): of each position compared, in any order, from several threads.
  template <class Use>
  void run(const ops::Plan& plan, const Use& use) const;

  std::shared_ptr<const Model> model_;
  base::ThreadPool& pool_;
  ContextOptions options_;
  std::vector<TokenId> ids_;
  std::optional<kld::BaseRows> base_;  // a row for each position compared
};

}  // namespace assay::target
