// Subjects with a fault: the faulty engine with our own parts around it, or our own engine with a faulty part.
#pragma once

#include <memory>
#include <string>

#include "faulty/catalogue.h"
#include "verify/subject.h"

namespace assay::faults {

// The subject of a row, over the model that was loaded from the row's file.
verify::Subject faulty_subject(const Row& row, std::shared_ptr<const Model> model);

// Changes of the parts around the engine, named after what they do; the catalogue's rows use them.
void merge_without_scores(verify::Subject& subject);  // the vocabulary's scores are not read
void split_by_default(verify::Subject& subject);      // the pattern of the first byte-level models
void split_as_another(verify::Subject& subject);      // another model's pattern
void normalise_whitespace(verify::Subject& subject);  // runs of blanks become one
void no_space_prefix(verify::Subject& subject);       // the blank before a text is left out
void newline_as_space(verify::Subject& subject);      // every white space becomes the blank's letter
void bos_twice(verify::Subject& subject);
void bos_missing(verify::Subject& subject);
void end_of_turn_unknown(verify::Subject& subject);       // the end of a turn does not end the answer
void template_without_filters(verify::Subject& subject);  // the template language's filters are dropped in silence
void control_token_added(verify::Subject& subject);       // a prompt gets a control token that nobody asked for
void characters_by_token(verify::Subject& subject);       // every token is made text by itself
void greedy_draws(verify::Subject& subject);              // temperature 0 draws at temperature 1
void temperature_first(verify::Subject& subject);         // before top-p
void seed_ignored(verify::Subject& subject);
void penalties_of_neighbours(verify::Subject& subject);  // the history of the request before
void same_draw_each_step(verify::Subject& subject);
void penalties_unused(verify::Subject& subject);

// Changes of files.
void tensor_bytes_swapped(ModelFile& file);  // float tensors as a big-endian machine writes them
void alignment_ignored(ModelFile& file);     // the file declares one alignment and is laid out with another
void last_tensor_missed(ModelFile& file);    // never written: zeros
void heads_do_not_divide(ModelFile& file);
void other_architecture(ModelFile& file);
void no_pre_tokenizer(ModelFile& file);

}  // namespace assay::faults
