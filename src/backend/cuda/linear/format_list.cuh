// The formats that one kernel serves, by their places in its list.
#pragma once

#include "tensor/dtype.h"

namespace assay::backend::cuda {

template <class... F>
struct FormatList {
  // The place of a type, or -1.
  static int find(tensor::DType dtype) {
    int i = 0, found = -1;
    ((F::kDType == dtype ? found = i : 0, ++i), ...);
    return found;
  }
  // Calls visit(Format) with the one at a place: on the device, on the host.
  template <class Visit>
  __device__ static void with(int format, Visit&& visit) {
    int i = 0;
    ((format == i++ ? visit(F{}) : void()), ...);
  }
  template <class Visit>
  static void visit(int format, Visit&& visit) {
    int i = 0;
    ((format == i++ ? visit(F{}) : void()), ...);
  }
  // The same with a type of the list.
  template <class Visit>
  static void visit_type(tensor::DType dtype, Visit&& visit) {
    ((F::kDType == dtype ? visit(F{}) : void()), ...);
  }
};

}  // namespace assay::backend::cuda
