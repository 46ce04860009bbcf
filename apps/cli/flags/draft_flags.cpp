// See draft_flags.h.
#include "flags/draft_flags.h"

#include "assay/model.h"
#include "flags/options.h"

namespace assay::cli {

void DraftFlags::add(Flags& flags) {
  flags.group("Guessing ahead (never changes a result)");
  flags
      .value("--spec-type", kind, "KIND",
             "none; ngram-simple (what followed the last tokens before); draft-simple (what the model of -md says)")
      .one_of({"none", "ngram-simple", "draft-simple"})
      .shows("none, with -md draft-simple");
  flags.value("-md,--model-draft", model, "MODEL", "A smaller model of the same vocabulary");
  flags.value("--spec-draft-n-max,--draft-max", n_max, "N", "Tokens guessed at a time, at most").between(1, 256);
}

DraftOptions DraftFlags::options() const {
  DraftOptions options;
  options.n_max = n_max;
  options.kind = kind ? parse_draft_kind(*kind) : model ? DraftKind::model : DraftKind::none;
  if (model && options.kind != DraftKind::model) throw UsageError("-md needs --spec-type draft-simple");
  if (!model && options.kind == DraftKind::model)
    throw UsageError("--spec-type draft-simple needs -md MODEL, the model that guesses");
  if (model) options.model = Model::load(existing(*model));
  return options;
}

}  // namespace assay::cli
