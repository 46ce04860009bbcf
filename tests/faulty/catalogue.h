// The catalogue of faults that engines really had, one row each: how the fault is
// put into a subject, and what verify must answer. 80 rows; those that cannot be expressed say why.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "faulty/fault.h"
#include "faulty/model_file.h"
#include "ops/plan/executor.h"
#include "verify/subject.h"

namespace assay::faults {

struct Row {
  const char* id;        // "C21"
  const char* source;    // public issues (repository#number) or commits where it was found
  const char* what;      // the bug
  const char* injected;  // how it is put in
  ModelSpec (*model)() = k_quants;
  const char* golden = nullptr;  // in place of model: a file of goldens/arch

  // One of these, or why_not.
  void (*change_plan)(ops::Plan& plan) = nullptr;              // the engine of this folder runs another plan
  Fault fault = Fault::none;                                   // of the engine that runs the plan and decodes the rows
  void (*change_subject)(verify::Subject& subject) = nullptr;  // of the parts around it (faulty_subject.h)
  void (*change_file)(ModelFile& file) = nullptr;              // of the file that our own engine is given
  const char* why_not = nullptr;

  int activation_bits = 0;  // of the faulty engine, as EngineOptions
  ops::CacheType cache = ops::CacheType::f32;

  // What verify must find: the first stage that fails, the first op that is out of its bound ("": not asked), and ids
  // of the dictionary or words of the stage's finding, any of which names the cause (empty: no name is expected).
  const char* stage = "ops";
  const char* op = "";
  std::vector<const char*> named_by = {};
};

const std::vector<Row>& catalogue();
const std::vector<Row>& further_rows();  // faults beside the catalogue: X1, X2, ...
const std::vector<Row>& family_rows();   // of how families are put together: F1, F2, ... (family_rows.cpp)

}  // namespace assay::faults
