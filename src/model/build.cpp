// See build.h.
#include "model/build.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "assay/error.h"
#include "model/arch/list.h"

namespace assay::model {
namespace {

const Architecture& find_architecture(std::string_view name) {
  for (const Architecture& architecture : architectures()) {
    if (architecture.name == name) return architecture;
  }
  std::string known;
  for (const Architecture& architecture : architectures())
    known += fmt::format("{}{}", known.empty() ? "" : ", ", architecture.name);
  throw Error(Errc::unsupported, fmt::format("general.architecture = \"{}\": this build serves {}", name, known));
}

// The embedding table has one row per token, whatever the optional key vocab_size says.
int64_t vocab_size(const gguf::File& file) {
  const gguf::Tensor* table = file.find("token_embd.weight");
  if (table == nullptr) {
    throw Error(
        Errc::bad_file,
        "token_embd.weight: the file has no tensor of this name; it may be a vocabulary only, or a later part of a "
        "split model");
  }
  const int64_t rows = table->view.shape.rows();
  if (rows < 1 || rows > kVocabMax) {
    throw Error(Errc::bad_file, fmt::format("token_embd.weight: needs 1 to {} rows, found {}", kVocabMax, rows));
  }
  return rows;
}

}  // namespace

BuiltModel build_model(const gguf::File& file) {
  const Architecture& architecture = find_architecture(file.metadata().require_string("general.architecture"));
  const KeyReader keys(file.metadata(), std::string(architecture.name));
  BuiltModel built{read_hparams(keys), {}, {}};
  const Hparams& h = built.hparams;
  PlanBuilder builder(file);
  const ops::ValueId logits = architecture.build({keys, h, vocab_size(file)}, builder);
  keys.refuse_unread();
  built.dense = builder.take_dense();
  built.plan = builder.finish(logits, architecture.name, h.d_model, h.n_ctx_train);
  return built;
}

bool is_served(std::string_view architecture) noexcept {
  return std::ranges::any_of(architectures(), [&](const Architecture& one) { return one.name == architecture; });
}

}  // namespace assay::model
